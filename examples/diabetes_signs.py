"""Signs that are known from theory: a model whose coefficients contradict the textbook convinces nobody.

``python examples/diabetes_signs.py --output FOLDER`` uses a data set of scikit-learn: the progression of diabetes in
442 patients. A higher body mass index, blood pressure, cholesterol, triglyceride or sugar does not slow the disease,
and more of the good cholesterol (HDL, s3) does not speed it up. Cholesterol (s1), its bad part (s2) and their ratio
(s4) are so strongly correlated that plain models give some of them the wrong sign. Random splits hold out a quarter
of the patients: the price of the right signs is how much R^2 falls there.
"""

import argparse
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score
from sklearn.model_selection import ShuffleSplit
from sklearn.preprocessing import StandardScaler

from psfit import SparsePath, sparse_path

matplotlib.use("Agg")

# Age and sex are free.
LOWER = dict.fromkeys(["bmi", "bp", "s1", "s2", "s4", "s5", "s6"], 0.0)
UPPER = {"s3": 0.0}
MODELS = {"signs from theory": {"lower": LOWER, "upper": UPPER}, "free signs": {}}


def score(table: pd.DataFrame, y: np.ndarray, kappas: range, splits: int) -> np.ndarray:
    """R^2 on held-out patients, ``(splits, models, kappas)``."""
    found = []
    for train, test in ShuffleSplit(splits, test_size=0.25, random_state=0).split(table):
        rows = []
        for constraints in MODELS.values():
            path = sparse_path(table.iloc[train], y[train], kappas, gammas=10.0, certify=False, **constraints)
            held = table.iloc[test].to_numpy()
            rows.append([r2_score(y[test], held @ path.coef(k)[:, 0] + path.intercept(k)[0]) for k in kappas])
        found.append(rows)
    return np.array(found)


def contradictions(path: SparsePath, kappa: int) -> list[str]:
    """The features whose coefficients contradict the theory."""
    coef = dict(zip(path.feature_names, path.coef(kappa)[:, 0], strict=True))
    return [name for name, value in coef.items() if (name in LOWER and value < 0) or (name in UPPER and value > 0)]


def draw(paths: dict[str, SparsePath], scores: np.ndarray, kappas: range, picture: Path) -> None:
    """The coefficients of the largest models, and R^2 against the number of features."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 4.2), layout="constrained")
    for place, (title, path) in enumerate(paths.items()):
        coef = path.coef(kappas[-1])[:, 0]
        left.barh(np.arange(len(coef)) + 0.4 * place, coef, 0.4, label=title)
        mean, error = scores.mean(axis=0)[place], scores.std(axis=0, ddof=1)[place] / np.sqrt(len(scores))
        right.errorbar(kappas, mean, error, fmt="o-", ms=3, capsize=2, label=title)
    left.set_yticks(np.arange(len(path.feature_names)) + 0.2, path.feature_names)
    left.axvline(0, color="black", lw=0.5)
    left.set_xlabel("coefficient for one standard deviation")
    left.set_title(f"At most {kappas[-1]} features, all patients", fontsize="medium")
    right.set_xlabel("features, at most")
    right.set_ylabel("R^2 on held-out patients")
    right.set_title(f"{len(scores)} random splits (bars: one standard error)", fontsize="medium")
    right.legend(loc="lower right")
    right.grid(True, alpha=0.3)
    figure.savefig(picture, dpi=100)


def main() -> None:
    """Fit with and without signs, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the picture")
    parser.add_argument("--splits", type=int, default=30, help="random splits into training and held-out patients")
    parser.add_argument("--most", type=int, default=8, help="the largest number of features")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    data = load_diabetes(as_frame=True)
    table = StandardScaler().set_output(transform="pandas").fit_transform(data.data)
    y, kappas = data.target.to_numpy(), range(1, options.most + 1)
    paths = {title: sparse_path(table, y, kappas, gammas=10.0, **given) for title, given in MODELS.items()}
    for title, path in paths.items():
        print(f"{title}, all patients:")
        for row in path.rows():
            wrong = contradictions(path, row["kappa"])
            said = f"; against theory: {', '.join(wrong)}" if wrong else ""
            print(f"  {row['kappa']:>2}  gap {row['gap']:.1e}  {', '.join(row['features'])}{said}")
    scores = score(table, y, kappas, options.splits)
    print("R^2 on held-out patients")
    print("  features " + " ".join(f"{title:>18}" for title in MODELS))
    for place, kappa in enumerate(kappas):
        print(f"  {kappa:>8} " + " ".join(f"{value:>18.3f}" for value in scores.mean(axis=0)[:, place]))
    picture = options.output / "diabetes-signs.png"
    draw(paths, scores, kappas, picture)
    print(f"  picture {picture}")


if __name__ == "__main__":
    main()
