"""Fits and paths on one GPU, from data in its memory to the certificate.

``python benchmarks/gpu/run.py`` fits AR(1)-correlated problems of the squared, logistic and softmax loss, and a path of
50 limits for each of the squared ones. ``--data FOLDER`` adds fashion_mnist from its ``.npz`` file there. float32 data,
warm: every fit is run once before it is timed. Seconds are medians; a path's ratio is that to one fit at its largest
limit, by turns.
"""

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psfit import SparseLinearRegression, SparseLogisticRegression, sparse_path

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment

LIMITS = 50


@dataclass(frozen=True)
class Case:
    """A problem on the GPU: its name, an estimator, data, the largest limit."""

    name: str
    model: Any
    X: Tensor
    y: Tensor
    path: bool = False


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--data", type=Path, help="folder of fashion_mnist.npz")
    parser.add_argument("--only", help="cases whose name contains this")
    options = parser.parse_args()
    rows = []
    for make in cases(options.data):
        case = make()
        if not options.only or options.only in case.name:
            rows += measure(case, options.repeats)
            for row in rows[-2 if case.path else -1 :]:
                print(row, flush=True)
        del case
        torch.cuda.empty_cache()
    write(rows, options.output, options.repeats)


def cases(folder: Path | None) -> Iterator[Callable[[], Case]]:
    """Makers of the problems, so that one at a time is in memory."""
    yield lambda: squared(100_000, 2_000, 0.9, 200)
    yield lambda: squared(300_000, 4_000, 0.7, 400)
    yield lambda: logistic(100_000, 2_000, 100)
    yield lambda: logistic(300_000, 4_000, 200)
    yield lambda: softmax(60_000, 784, 10, 600)
    if folder:
        yield lambda: fashion(folder, 600)


def squared(m: int, n: int, correlation: float, kappa: int) -> Case:
    """Standard normal coefficients and noise of standard deviation 3."""
    X, truth, generator = draw(m, n, correlation, kappa)
    y = X @ truth + 3 * torch.randn(m, generator=generator, device="cuda")
    return Case(f"squared, {m:,} x {n:,}, AR(1) {correlation}", SparseLinearRegression(kappa), X, y, path=True)


def logistic(m: int, n: int, kappa: int) -> Case:
    """Labels drawn from margins of standard deviation 2."""
    X, truth, generator = draw(m, n, 0.5, kappa)
    eta = X @ truth
    chance = torch.sigmoid(2 * eta / eta.std())
    y = (torch.rand(m, generator=generator, device="cuda") < chance).long()
    return Case(f"logistic, {m:,} x {n:,}, AR(1) 0.5", SparseLogisticRegression(kappa), X, y)


def softmax(m: int, n: int, classes: int, kappa: int) -> Case:
    """Labels drawn from the softmax of linear scores."""
    X, _, generator = draw(m, n, 0.5, 1)
    truth = torch.zeros(n * classes, device="cuda")
    place = torch.randperm(n * classes, generator=generator, device="cuda")[:kappa]
    truth[place] = torch.randn(kappa, generator=generator, device="cuda")
    scores = torch.softmax(X @ truth.reshape(n, classes), dim=1)
    y = torch.multinomial(scores, 1, generator=generator)[:, 0]
    return Case(f"softmax, {m:,} x {n:,} x {classes}, AR(1) 0.5", SparseLogisticRegression(kappa), X, y)


def fashion(folder: Path, kappa: int) -> Case:
    """Pictures of clothes in ten classes, columns standardised."""
    raw = np.load(folder / "fashion_mnist.npz")
    X = torch.from_numpy(raw["X"].reshape(len(raw["X"]), -1)).to("cuda", torch.float32)
    X = (X - X.mean(dim=0)) / X.std(dim=0).clamp_min(1e-6)
    y = torch.from_numpy(raw["y"].astype(np.int64)).to("cuda")
    return Case("softmax, fashion_mnist, 60,000 x 784 x 10", SparseLogisticRegression(kappa), X, y)


def draw(m: int, n: int, correlation: float, kappa: int) -> tuple[Tensor, Tensor, torch.Generator]:
    """AR(1) columns and a vector with kappa normal entries at random places."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    X = torch.randn(m, n, generator=generator, device="cuda")
    for j in range(1, n):
        X[:, j] = correlation * X[:, j - 1] + (1 - correlation**2) ** 0.5 * X[:, j]
    truth = torch.zeros(n, device="cuda")
    place = torch.randperm(n, generator=generator, device="cuda")[:kappa]
    truth[place] = torch.randn(kappa, generator=generator, device="cuda")
    return X, truth, generator


def measure(case: Case, repeats: int) -> list[dict[str, Any]]:
    """Seconds of the fit and, where asked for, of a path up to its limit."""
    found: dict[str, Any] = {}

    def fit() -> None:
        found["model"] = case.model.fit(case.X, case.y)

    def path() -> None:
        limits = np.unique(np.linspace(1, case.model.kappa, LIMITS).round().astype(int)).tolist()
        found["path"] = sparse_path(case.X, case.y, limits)

    seconds = by_turns([fit, path] if case.path else [fit], repeats)
    model = found["model"]
    row = {
        "problem": case.name,
        "kappa": model.kappa,
        "what": "fit",
        "seconds": round(seconds[0], 3),
        "objective": model.objective_,
        "gap": model.gap_,
        "ratio": "",
    }
    rows = [row]
    if case.path:
        rows.append(
            row
            | {
                "what": f"path of {LIMITS} limits",
                "seconds": round(seconds[1], 3),
                "objective": float(np.ravel(found["path"].objectives)[-1]),
                "gap": "",
                "ratio": round(seconds[1] / seconds[0], 2),
            }
        )
    return rows


def by_turns(runs: list[Callable[[], None]], repeats: int) -> list[float]:
    """Median seconds of each, after one run of each that does not count."""
    taken: list[list[float]] = [[] for _ in runs]
    for turn in range(repeats + 1):
        for run, times in zip(runs, taken, strict=True):
            torch.cuda.synchronize()
            began = time.perf_counter()
            run()
            torch.cuda.synchronize()
            if turn:
                times.append(time.perf_counter() - began)
    return [statistics.median(times) for times in taken]


def write(rows: list[dict[str, Any]], folder: Path, repeats: int) -> None:
    """A CSV of all rows and a page with the table and the environment."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "gpu.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines = ["# Fits on one GPU", "", f"float32 data in its memory, warm, medians of {repeats}.", ""]
    lines += ["| problem | kappa | | seconds | objective | gap | fits |", "|---|---:|---|---:|---:|---:|---:|"]
    for row in rows:
        gap = f"{row['gap']:.2%}" if row["gap"] != "" else ""
        cells = [row["problem"], row["kappa"], row["what"], f"{row['seconds']:.3f}", f"{row['objective']:.8g}", gap]
        lines.append("| " + " | ".join(str(cell) for cell in [*cells, row["ratio"]]) + " |")
    lines += ["", "Run on: " + ", ".join(f"{key} {value}" for key, value in environment().items()) + ".", ""]
    (folder / "gpu.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
