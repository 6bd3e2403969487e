"""Held-out accuracy at a few kappa, beside scikit-learn's l1 model with as many nonzero coefficients.

``python benchmarks/models/run.py --output benchmarks/results`` uses the data sets that ship with scikit-learn. With
``--data FOLDER`` it adds a9a, leukemia_golub and fashion_mnist from ``.npz`` files there. Both models see the same
standardised training data and the same ridge; the l1 model's C is found by bisection so that it has at most kappa
nonzeros, as many as it gets, and its time is that of the last fit alone. Of PsFiT's fits it also shows the seconds of
the search and of the proof (CPU time, one thread), the gap, and the gap that the optimum without a limit would leave.
``--proofs`` leaves out scikit-learn's models and writes a page of its own.
"""

import argparse
import csv
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import cross_entropy, softplus

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
REPEATS = 2
# Without a GPU the dense optimum is found for data of at most so many numbers, times the number of classes.
MOST_DENSE = 50_000_000


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
    search_seconds: float | None = None
    proof_seconds: float | None = None
    gap: float | None = None
    dense_gap: float | None = None


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
    row = Row(split.name, len(split.X), split.coefficients, kappa, label, nonzeros, *accuracy, round(seconds, 3), note)
    return replace(row, **measure_proof(model, X, split)) if label.startswith("PsFiT") else row


def measure_proof(model: SparseLogisticRegression | SparseSVC, X: object, split: Split) -> dict[str, float | None]:
    """CPU seconds of the fit without its proof, of the proof, the gap, and the one that the dense optimum would leave.

    Wall times on a GPU, whose work no CPU clock shows. The least of REPEATS runs each.
    """
    clock = time.perf_counter if isinstance(X, torch.Tensor) else time.process_time

    def least(certify: bool) -> float:
        times = []
        for _ in range(REPEATS):
            began = clock()
            clone(model).set_params(certify=certify).fit(X, split.y)
            times.append(clock() - began)
        return min(times)

    search, whole = least(False), least(True)
    dense = dense_optimum(model, split)
    gap = None if dense is None else round(1 - dense / model.objective_, 5)
    return {
        "search_seconds": round(search, 3),
        "proof_seconds": round(max(whole - search, 0.0), 3),
        "gap": round(float(model.gap_), 5),
        "dense_gap": gap,
    }


def dense_optimum(model: SparseLogisticRegression | SparseSVC, split: Split) -> float | None:
    """The least objective without any limit, by SciPy's L-BFGS-B; None where that takes too long without a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    y = torch.from_numpy(np.unique(split.y, return_inverse=True)[1]).to(device)
    if device == "cpu" and split.X.size * split.coefficients / split.X.shape[1] > MOST_DENSE:
        return None
    X = torch.from_numpy(split.X).to(device, torch.float64)
    (_, p), c = X.shape, len(np.unique(split.y))
    b, columns = 2.0 * y - 1, 1 if c == 2 else c

    def objective(v: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.from_numpy(v).to(device).requires_grad_()
        x, shift = free[: p * columns].reshape(p, columns), free[p * columns :]
        eta = X @ x + shift
        if c > 2:
            losses = cross_entropy(eta, y, reduction="sum")
        elif isinstance(model, SparseSVC):
            losses = (1 - b * eta[:, 0]).clamp_min(0).square().sum()
        else:
            losses = softplus(-b * eta[:, 0]).sum()
        value = losses + 0.5 * x.square().sum() / GAMMA
        value.backward()
        return float(value.detach()), free.grad.cpu().numpy()

    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-12, "gtol": 1e-6}
    return float(minimize(objective, np.zeros((p + 1) * columns), jac=True, method="L-BFGS-B", options=options).fun)


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


def rows(names: list[str], folder: Path | None, peers: bool) -> Iterator[Row]:
    """All fits of all data sets, one at a time; those of scikit-learn's models only if `peers` are asked for."""
    for name in names:
        split = load(name, folder)
        dense = LogisticRegression(C=GAMMA, max_iter=2000 if split.X.size < 5_000_000 else 200)
        if peers:
            yield measure(split, split.coefficients, "scikit-learn dense", dense)
        for kappa in KAPPAS[name]:
            yield measure(split, kappa, "PsFiT logistic", SparseLogisticRegression(kappa, gamma=GAMMA))
            if len(np.unique(split.y)) == 2:
                yield measure(split, kappa, "PsFiT SVM", SparseSVC(kappa, gamma=GAMMA))
            if peers:
                yield l1_with(split, kappa)


def write(found: list[Row], folder: Path, name: str) -> None:
    """A CSV of all rows and a page with the table and the environment."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-" + "-".join(sorted({row.data for row in found}))
    with (folder / f"{stem}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(found[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in found)
    lines = ["# Held-out accuracy with few coefficients", "", f"Ridge gamma = C = {GAMMA}.", ""]
    lines += [
        "| data | kappa | model | nonzeros | train | test | seconds | search | proof | gap | dense gap | note |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in found:
        cells = [r.data, str(r.kappa), r.model, str(r.nonzeros), f"{r.train_accuracy:.4f}", f"{r.test_accuracy:.4f}"]
        cells += [f"{r.seconds:.2f}", _cell(r.search_seconds, ".2f"), _cell(r.proof_seconds, ".2f")]
        lines.append("| " + " | ".join([*cells, _cell(r.gap, ".2%"), _cell(r.dense_gap, ".2%"), r.note]) + " |")
    lines += ["", "Run on: " + ", ".join(f"{key} {value}" for key, value in environment().items()) + ".", ""]
    (folder / f"{stem}.md").write_text("\n".join(lines))


def _cell(number: float | None, form: str) -> str:
    return "" if number is None else format(number, form)


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--data", type=Path, help="folder of a9a.npz, leukemia_golub.npz, fashion_mnist.npz")
    parser.add_argument("--only", nargs="+", choices=list(KAPPAS), help="some of the data sets")
    parser.add_argument("--proofs", action="store_true", help="only PsFiT's fits and what they prove")
    options = parser.parse_args()
    names = options.only or (list(KAPPAS) if options.data else ["breast_cancer", "digits"])
    warnings.simplefilter("ignore", ConvergenceWarning)
    torch.set_num_threads(1)
    found = []
    for row in rows(names, options.data, not options.proofs):
        print(row, flush=True)
        found.append(row)
    write(found, options.output, "models-proofs" if options.proofs else "models")


if __name__ == "__main__":
    main()
