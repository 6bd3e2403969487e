"""Held-out accuracy at a few kappa, beside scikit-learn's l1 model with as many nonzero coefficients.

``python benchmarks/models/run.py --output benchmarks/results`` uses the data sets that ship with scikit-learn. With
``--data FOLDER`` it adds a9a, leukemia_golub and fashion_mnist from ``.npz`` files there. Both models see the same
standardised training data and the same ridge; the l1 model's C is found by bisection so that it has at most kappa
nonzeros, as many as it gets, and its time is that of the last fit alone.
"""

import argparse
import csv
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from psfit import SparseLogisticRegression, SparseSVC

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment

KAPPAS = {
    "breast_cancer": [3, 5, 10],
    "digits": [32, 64, 128],
    "a9a": [5, 10, 20, 40],
    "leukemia_golub": [2, 5, 10],
    "fashion_mnist": [784],
}
GAMMA = 1.0


@dataclass(frozen=True)
class Row:
    """One fit: the model, its nonzeros, accuracy on training and held-out data, seconds."""

    data: str
    samples: int
    coefficients: int
    kappa: int
    model: str
    nonzeros: int
    train_accuracy: float
    test_accuracy: float
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class Split:
    """Training and held-out data, standardised by the training data."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @property
    def coefficients(self) -> int:
        classes = len(np.unique(self.y))
        return self.X.shape[1] * (1 if classes == 2 else classes)


def load(name: str, folder: Path | None) -> Split:
    """A data set by name; those without a test split lose a stratified third to it."""
    if name in ("breast_cancer", "digits"):
        X, y = (load_breast_cancer if name == "breast_cancer" else load_digits)(return_X_y=True)
        parts = train_test_split(X, y, test_size=1 / 3, random_state=0, stratify=y)
    else:
        raw = np.load(folder / f"{name}.npz")
        X, y = _dense(raw, "X"), raw["y"]
        if "y_test" in raw.files:
            parts = X, _dense(raw, "X_test"), y, raw["y_test"]
        else:
            parts = train_test_split(X, y, test_size=1 / 3, random_state=0, stratify=y)
    X, X_test, y, y_test = parts
    scaler = StandardScaler().fit(X)
    X, X_test = (scaler.transform(part).astype(np.float32) for part in (X, X_test))
    return Split(name, X, y, X_test, y_test)


def _dense(raw: np.lib.npyio.NpzFile, key: str) -> np.ndarray:
    if key in raw.files:
        return raw[key].reshape(len(raw[key]), -1)
    parts = raw[f"{key}_data"], raw[f"{key}_indices"], raw[f"{key}_indptr"]
    return sparse.csr_matrix(parts, shape=tuple(raw[f"{key}_shape"])).toarray()


def measure(split: Split, kappa: int, label: str, model: object, note: str = "") -> Row:
    """Fit, time and judge any classifier on the split."""
    device = "cuda" if torch.cuda.is_available() and label.startswith("PsFiT") else "cpu"
    X, X_test = (torch.from_numpy(part).to(device) if device == "cuda" else part for part in (split.X, split.X_test))
    began = time.perf_counter()
    model.fit(X, split.y)
    seconds = time.perf_counter() - began
    accuracy = [float((model.predict(A) == b).mean()) for A, b in ((X, split.y), (X_test, split.y_test))]
    nonzeros = int((model.coef_ != 0).sum())
    return Row(split.name, len(split.X), split.coefficients, kappa, label, nonzeros, *accuracy, round(seconds, 3), note)


def l1_with(split: Split, kappa: int) -> Row:
    """Bisection on log C for the l1 model with the most nonzeros that does not exceed kappa."""
    big = split.X.size > 5_000_000
    low, high, best = -6.0, 0.0, None
    for _ in range(5 if big else 14):
        C = 10 ** ((low + high) / 2)
        solver = "saga" if split.coefficients > split.X.shape[1] else "liblinear"
        model = LogisticRegression(
            l1_ratio=1.0, C=C, solver=solver, tol=1e-2 if big else 1e-4, max_iter=10 if big else 2000
        )
        row = measure(split, kappa, "scikit-learn l1", model, f"C={C:.2e}" + (", saga 10 passes" if big else ""))
        if row.nonzeros <= kappa:
            low, best = np.log10(C), row
        else:
            high = np.log10(C)
    return best or row


def rows(names: list[str], folder: Path | None) -> Iterator[Row]:
    """All fits of all data sets, one at a time."""
    for name in names:
        split = load(name, folder)
        dense = LogisticRegression(C=GAMMA, max_iter=2000 if split.X.size < 5_000_000 else 200)
        yield measure(split, split.coefficients, "scikit-learn dense", dense)
        for kappa in KAPPAS[name]:
            yield measure(split, kappa, "PsFiT logistic", SparseLogisticRegression(kappa, gamma=GAMMA))
            if len(np.unique(split.y)) == 2:
                yield measure(split, kappa, "PsFiT SVM", SparseSVC(kappa, gamma=GAMMA))
            yield l1_with(split, kappa)


def write(found: list[Row], folder: Path) -> None:
    """A CSV of all rows and a page with the table and the environment."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = "models-" + "-".join(sorted({row.data for row in found}))
    with (folder / f"{stem}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(found[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in found)
    lines = ["# Held-out accuracy with few coefficients", "", f"Ridge gamma = C = {GAMMA}.", ""]
    lines += [
        "| data | kappa | model | nonzeros | train | test | seconds | note |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.data} | {r.kappa} | {r.model} | {r.nonzeros} | {r.train_accuracy:.4f} | {r.test_accuracy:.4f} "
        f"| {r.seconds:.2f} | {r.note} |"
        for r in found
    ]
    lines += ["", "Run on: " + ", ".join(f"{key} {value}" for key, value in environment().items()) + ".", ""]
    (folder / f"{stem}.md").write_text("\n".join(lines))


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--data", type=Path, help="folder of a9a.npz, leukemia_golub.npz, fashion_mnist.npz")
    parser.add_argument("--only", nargs="+", choices=list(KAPPAS), help="some of the data sets")
    options = parser.parse_args()
    names = options.only or (list(KAPPAS) if options.data else ["breast_cancer", "digits"])
    warnings.simplefilter("ignore", ConvergenceWarning)
    found = []
    for row in rows(names, options.data):
        print(row, flush=True)
        found.append(row)
    write(found, options.output)


if __name__ == "__main__":
    main()
