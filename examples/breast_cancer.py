"""How few measurements tell a malignant tumour from a benign one? Logistic regression and the SVM, accuracy by kappa.

``python examples/breast_cancer.py --output FOLDER`` uses a data set of scikit-learn: 30 numbers
about the cell nuclei of 569 tumours. Random splits hold out 30 % of the tumours. On the others, one path gives the
models of all limits, whose accuracy is measured on the tumours held out.
"""

import argparse
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from psfit import SparseLogisticRegression, SparseLogisticRegressionCV, sparse_path

matplotlib.use("Agg")

LOSSES = {"logistic": "logistic regression", "squared_hinge": "support vector machine"}
GAMMA = 1.0


def accuracies(table: pd.DataFrame, labels: pd.Series, kappas: range, splits: int) -> dict[str, np.ndarray]:
    """Accuracy on held-out tumours, ``(splits, kappas)`` for every loss; and of a model with all features."""
    drawn = StratifiedShuffleSplit(splits, test_size=0.3, random_state=0)
    found: dict[str, list[list[float]]] = {name: [] for name in [*LOSSES, "all features"]}
    for train, test in drawn.split(table, labels):
        X, y, truth = table.iloc[train], labels.iloc[train], labels.iloc[test]
        for loss in LOSSES:
            path = sparse_path(X, y, kappas, gammas=GAMMA, loss=loss, standardize=True, certify=False)
            held_out = table.iloc[test].to_numpy()
            predictors = [held_out @ path.coef(kappa)[:, 0] + path.intercept(kappa)[0] for kappa in kappas]
            found[loss].append([float(np.mean((eta > 0) == truth)) for eta in predictors])
        dense = make_pipeline(StandardScaler(), LogisticRegression(C=GAMMA)).fit(X, y)
        found["all features"].append([dense.score(table.iloc[test], truth)] * len(kappas))
    return {name: np.array(rows) for name, rows in found.items()}


def draw(scores: dict[str, np.ndarray], kappas: range, picture: Path) -> None:
    """Accuracy against kappa, with standard errors."""
    axes = plt.subplots(figsize=(7.0, 4.2), layout="constrained")[1]
    for shift, (loss, title) in zip((-0.05, 0.05), LOSSES.items(), strict=True):
        mean, error = summary(scores[loss])
        axes.errorbar(np.array(kappas) + shift, 100 * mean, 100 * error, fmt="o-", ms=3, capsize=2, label=title)
    mean, _ = summary(scores["all features"])
    axes.axhline(100 * mean[0], color="black", ls="--", lw=1, label="scikit-learn, all 30 features")
    axes.set_xlabel("kappa, the limit on features")
    axes.set_ylabel("accuracy on held-out tumours, %")
    axes.xaxis.get_major_locator().set_params(integer=True)
    splits = len(scores["all features"])
    axes.set_title(f"Breast cancer, {splits} random splits (bars: one standard error)", fontsize="medium")
    axes.legend(loc="lower right")
    axes.grid(True, alpha=0.3)
    axes.figure.savefig(picture, dpi=100)


def summary(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over the splits, and their standard errors."""
    return rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(len(rows))


def main() -> None:
    """Measure, choose, certify, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the picture")
    parser.add_argument("--splits", type=int, default=20, help="random splits into training and held-out tumours")
    parser.add_argument("--most", type=int, default=12, help="the largest limit")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    data = load_breast_cancer(as_frame=True)
    # 0 is malignant in the file; here the positive class is the one to find.
    table, malignant = data.data, (data.target == 0).astype(int)
    kappas = range(1, options.most + 1)
    scores = accuracies(table, malignant, kappas, options.splits)
    print(f"Breast cancer: {len(table)} tumours, {table.shape[1]} features, accuracy on held-out ones")
    print(f"  {'kappa':>5} " + " ".join(f"{title:>22}" for title in LOSSES.values()))
    for k, kappa in enumerate(kappas):
        print(f"  {kappa:>5} " + " ".join(f"{100 * scores[loss][:, k].mean():>20.1f} %" for loss in LOSSES))
    print(f"  scikit-learn with all features: {100 * scores['all features'].mean():.1f} %")
    chosen = SparseLogisticRegressionCV(kappas, gammas=GAMMA, standardize=True, one_standard_error=True)
    chosen.fit(table, malignant)
    print(f"  cross-validation chooses {chosen.kappa_}: {', '.join(table.columns[chosen.support_])}")
    print(f"  certified gap {chosen.gap_:.2g} at gamma = {GAMMA:g}")
    tight = SparseLogisticRegression(chosen.kappa_, gamma=GAMMA / 100, standardize=True).fit(table, malignant)
    print(f"  with gamma = {GAMMA / 100:g} {tight.gap_:.2g}: {', '.join(table.columns[tight.support_])}")
    picture = options.output / "breast-cancer.png"
    draw(scores, kappas, picture)
    print(f"  picture {picture}")


if __name__ == "__main__":
    main()
