"""Held-out scores of PsFiT's default settings beside LassoCV, LogisticRegressionCV and abess, on real data.

``python benchmarks/selection/held_out.py`` uses the data sets that come with scikit-learn; with ``--data FOLDER`` also
the other sets that are found there as ``.npz`` files (arrays ``X`` and ``y``). Every method gets the same
random splits, three quarters of the samples to fit and the rest to score: R^2 for numbers, the accuracy for classes.
All methods choose their own settings on the samples to fit. The models of scikit-learn get standardised columns, PsFiT
and abess get them as they are. Rows are merged into the table that exists, so parts can be made one after the other.
"""

import argparse
import csv
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LassoCV, LogisticRegressionCV
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from psfit import SparseLinearRegressionCV, SparseLogisticRegressionCV

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment

# The defaults have to be as good as the best peer on these sets; the others show what else to expect.
TABLE = ("diabetes, products", "communities", "blog posts", "breast cancer", "leukemia")
CLASSES = ("breast cancer", "leukemia", "madelon")
FILES = {
    "communities": "communities",
    "blog posts": "blogfeedback",
    "riboflavin": "riboflavin",
    "leukemia": "leukemia_golub",
    "madelon": "madelon",
}
OWN = ("diabetes, products", "breast cancer", "diabetes")
PSFIT = "PsFiT"
COLUMNS = ("set", "split", "method", "score", "features", "seconds")
# Fewer than this below the best peer is as good.
ALLOWED = 0.005


def read(name: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Samples and targets of a set; None if its file is not there. Columns that are constant are left out."""
    if name in OWN:
        X, y = load_breast_cancer(return_X_y=True) if name in CLASSES else load_diabetes(return_X_y=True)
        X = PolynomialFeatures(2, include_bias=False).fit_transform(X) if name == "diabetes, products" else X
    else:
        file = None if folder is None else folder / f"{FILES[name]}.npz"
        if file is None or not file.is_file():
            return None
        with np.load(file) as stored:
            X, y = stored["X"].astype(np.float64), stored["y"]
        if name not in CLASSES:
            # The counts of comments have a heavy tail, their logarithms do not.
            y = np.log1p(y.astype(np.float64)) if name == "blog posts" else y.astype(np.float64)
    return X[:, X.std(axis=0) > 0], y


def make_methods(classes: bool) -> dict[str, Callable[[], Any]]:
    """All methods for numbers or for classes; abess if it is installed."""
    found: dict[str, Callable[[], Any]] = {}
    if classes:
        found[PSFIT] = SparseLogisticRegressionCV
        # Its solver for l1 visits the features in random order.
        path = partial(LogisticRegressionCV, max_iter=5_000, use_legacy_attributes=False, random_state=0)
        found["LogisticRegressionCV, l2"] = lambda: make_pipeline(StandardScaler(), path(l1_ratios=(0,)))
        found["LogisticRegressionCV, l1"] = lambda: make_pipeline(
            StandardScaler(), path(l1_ratios=(1,), solver="liblinear")
        )
    else:
        found[PSFIT] = SparseLinearRegressionCV
        found["LassoCV"] = lambda: make_pipeline(StandardScaler(), LassoCV(max_iter=20_000))
    try:
        import abess
    except ImportError:
        return found
    kind = abess.LogisticRegression if classes else abess.LinearRegression
    found["abess"] = kind
    found["abess, 5 folds"] = partial(kind, cv=5)
    return found


def measure(name: str, split: int, method: str, folder: Path | None) -> dict[str, Any]:
    """Fit one method to one split, and score it on the other samples."""
    data = read(name, folder)
    assert data is not None
    X, y = data
    kind = StratifiedShuffleSplit if name in CLASSES else ShuffleSplit
    ((train, test),) = kind(1, test_size=0.25, random_state=split).split(X, y)
    began = time.process_time()
    with warnings.catch_warnings():
        # The peers warn of slow convergence; what they find is scored all the same.
        warnings.simplefilter("ignore")
        model = make_methods(name in CLASSES)[method]().fit(X[train], y[train])
        predicted = model.predict(X[test])
    seconds = time.process_time() - began
    last = model[-1] if hasattr(model, "steps") else model
    if name in CLASSES:
        score = float(np.mean(predicted == y[test]))
    else:
        score = 1 - float(np.sum((y[test] - predicted) ** 2) / np.sum((y[test] - y[test].mean()) ** 2))
    features = int(np.any(np.atleast_2d(last.coef_) != 0, axis=0).sum())
    return dict(zip(COLUMNS, (name, split, method, score, features, seconds), strict=True))


def main() -> None:
    """Measure what is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--data", type=Path, help="folder with .npz files")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--sets", nargs="*", choices=[*OWN, *FILES], default=[*OWN, *FILES])
    parser.add_argument("--methods", nargs="*", help="the names in the table; all if not given")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--note", help="a sentence for the page, such as which rows come from an earlier run")
    options = parser.parse_args()
    jobs = [
        (name, split, method, options.data)
        for name in options.sets
        if read(name, options.data) is not None
        for split in range(options.splits)
        for method in make_methods(name in CLASSES)
        if not options.methods or method in options.methods
    ]
    file = options.output / "held-out.csv"
    rows = _read_rows(file)
    with ProcessPoolExecutor(options.jobs) as pool:
        for number, done in enumerate(as_completed([pool.submit(measure, *job) for job in jobs])):
            row = done.result()
            rows[(row["set"], int(row["split"]), row["method"])] = row
            print(f"{number + 1} of {len(jobs)}: {row}", flush=True)
            _write_rows(file, rows)
    page = make_page(list(rows.values()), options.note)
    (options.output / "held-out.md").write_text(page)
    print(page)


def _read_rows(file: Path) -> dict[tuple[str, int, str], dict[str, Any]]:
    if not file.is_file():
        return {}
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {(row["set"], int(row["split"]), row["method"]): row for row in rows}


def _write_rows(file: Path, rows: dict[tuple[str, int, str], dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerows(rows[key] for key in sorted(rows))


def make_page(rows: list[dict[str, Any]], note: str | None = None) -> str:
    """The table of means over the splits."""
    lines = ["# Held-out scores of default settings", "", __doc__.split("\n\n", 1)[1].strip(), ""]
    lines += ["| data | method | score | features | splits | CPU s |", "|---|---|---:|---:|---:|---:|"]
    verdicts = []
    names = sorted({row["set"] for row in rows}, key=lambda name: ([*TABLE, name].index(name), name))
    for name in names:
        scores: dict[str, dict[int, float]] = {}
        for method in dict.fromkeys(row["method"] for row in rows if row["set"] == name):
            own = [row for row in rows if row["set"] == name and row["method"] == method]
            score, features, seconds = (np.mean([float(row[key]) for row in own]) for key in COLUMNS[3:])
            scores[method] = {int(row["split"]): float(row["score"]) for row in own}
            lines.append(f"| {name} | {method} | {score:.4f} | {features:.1f} | {len(own)} | {seconds:.2f} |")
        behinds = _compare(scores)
        if behinds:
            peer, behind = max(behinds.items(), key=lambda one: one[1])
            word = "ahead" if behind < 0 else "behind" if behind > ALLOWED else "as good"
            kind = "" if name in TABLE else " (a further set)"
            splits = len(scores[PSFIT].keys() & scores[peer].keys())
            verdicts.append(f"- {name}{kind}: {word}, {round(-behind, 4) + 0.0:+.4f} against {peer} ({splits} splits)")
    lines += ["", f"PsFiT against the best of the peers; up to {ALLOWED} below it is as good:", "", *verdicts]
    lines += ["", note] if note else []
    lines += ["", *(f"- {name}: {value}" for name, value in environment().items()), ""]
    return "\n".join(lines)


def _compare(scores: dict[str, dict[int, float]]) -> dict[str, float]:
    """By how much each peer is ahead of PsFiT, over the splits that both have."""
    own, found = scores.get(PSFIT, {}), {}
    for method, other in scores.items():
        common = own.keys() & other.keys()
        if method != PSFIT and common:
            found[method] = float(np.mean([other[split] - own[split] for split in common]))
    return found


if __name__ == "__main__":
    main()
