"""Sparse regression against the lasso of the same size: main effects, squares and products of ten measurements.

``python examples/diabetes_interactions.py --output FOLDER`` uses a data set of scikit-learn: the
progression of diabetes in 442 patients. Random splits hold out a quarter of the patients. For every size the R^2 on
these is that of three models: the best subset found here, the lasso whose penalty leaves as many terms, and least
squares on the lasso's terms. The latter two differ by the lasso's shrinkage, the first and the last by which terms
they take.
"""

import argparse
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, lars_path
from sklearn.metrics import r2_score
from sklearn.model_selection import ShuffleSplit
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from psfit import sparse_path

matplotlib.use("Agg")

MODELS = ("best subset", "lasso", "least squares on the lasso's terms")


def terms() -> tuple[pd.DataFrame, pd.Series]:
    """65 terms in units of their standard deviations, and the progression of the disease."""
    data = load_diabetes(as_frame=True)
    products = PolynomialFeatures(2, include_bias=False).set_output(transform="pandas").fit_transform(data.data)
    return StandardScaler().set_output(transform="pandas").fit_transform(products), data.target


def compared(X: np.ndarray, y: np.ndarray, test: np.ndarray, truth: np.ndarray, kappas: range) -> np.ndarray:
    """R^2 on held-out patients, ``(models, kappas)``."""
    path = sparse_path(X, y, kappas, gammas=10.0, certify=False)
    subset = [r2_score(truth, test @ path.coef(k)[:, 0] + path.intercept(k)[0]) for k in kappas]
    center, level = X.mean(axis=0), y.mean()
    _, _, coefs = lars_path(X - center, y - level, method="lasso", max_iter=2 * kappas[-1])
    sizes = np.count_nonzero(coefs, axis=0)
    lasso, refit = [], []
    for k in kappas:
        # The weakest penalty with at most so many terms: the best that the lasso offers at this size.
        coef = coefs[:, np.flatnonzero(sizes <= k)[-1]]
        used = np.flatnonzero(coef)
        lasso.append(r2_score(truth, (test - center) @ coef + level))
        refit.append(LinearRegression().fit(X[:, used], y).score(test[:, used], truth))
    return np.array([subset, lasso, refit])


def draw(scores: np.ndarray, kappas: range, picture: Path) -> None:
    """R^2 against the number of terms, with standard errors."""
    axes = plt.subplots(figsize=(7.0, 4.2), layout="constrained")[1]
    mean, error = scores.mean(axis=0), scores.std(axis=0, ddof=1) / np.sqrt(len(scores))
    for model, title in enumerate(MODELS):
        axes.errorbar(kappas, mean[model], error[model], fmt="o-", ms=3, capsize=2, label=title)
    axes.set_xlabel("terms, at most")
    axes.set_ylabel("R^2 on held-out patients")
    axes.xaxis.get_major_locator().set_params(integer=True)
    title = f"Diabetes with all products, {len(scores)} random splits (bars: one standard error)"
    axes.set_title(title, fontsize="medium")
    axes.legend(loc="lower right")
    axes.grid(True, alpha=0.3)
    axes.figure.savefig(picture, dpi=100)


def main() -> None:
    """Compare, certify, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the picture")
    parser.add_argument("--splits", type=int, default=30, help="random splits into training and held-out patients")
    parser.add_argument("--most", type=int, default=15, help="the largest number of terms")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    table, progression = terms()
    X, y, kappas = table.to_numpy(), progression.to_numpy(), range(1, options.most + 1)
    drawn = ShuffleSplit(options.splits, test_size=0.25, random_state=0).split(X)
    scores = np.stack([compared(X[train], y[train], X[test], y[test], kappas) for train, test in drawn])
    print(f"Diabetes: {len(X)} patients, {X.shape[1]} terms, R^2 on held-out patients")
    print("  terms " + " ".join(f"{title:>35}" for title in MODELS))
    for k, kappa in enumerate(kappas):
        print(f"  {kappa:>5} " + " ".join(f"{value:>35.3f}" for value in scores.mean(axis=0)[:, k]))
    path = sparse_path(table, progression, kappas, gammas=10.0)
    print("  all patients, with certificates:")
    for row in path.rows()[:: max(1, len(kappas) // 5)]:
        print(f"  {row['kappa']:>5}  gap {row['gap']:.3f}  {', '.join(row['features'])}")
    picture = options.output / "diabetes-interactions.png"
    draw(scores, kappas, picture)
    print(f"  picture {picture}")


if __name__ == "__main__":
    main()
