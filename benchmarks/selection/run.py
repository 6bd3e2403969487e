"""Whole paths and cross-validation beside a single fit, and beside scikit-learn's LassoCV.

``python benchmarks/selection/run.py`` measures

1. a path of 50 limits against one fit at the largest of them, and its objectives against separate fits;
2. five folds over 50 limits against one fit, and against LassoCV: seconds, and how well the true features are found;

on a CPU at 20,000 x 1,000 and 100,000 x 1,000, on a GPU at 300,000 x 4,000 (the path alone: scikit-learn has no GPU).
All times are medians of runs that take turns, in one process.
"""

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LassoCV
from sklearn.metrics import f1_score

from psfit import BiCADMM, GridSpec, Problem, SparseLinearRegression, SparseLinearRegressionCV, solve
from psfit.data import Dense, Source
from psfit.data.synthetic import paper_recipe
from psfit.losses import Squared
from psfit.pipeline.path import solve_path

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment

LIMITS = 50
NODES = 4
CHECKED = 8
NOISE = 0.05


def main() -> None:
    """Run what suits the machine, and write a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--samples", type=int, nargs=2, metavar=("PATH", "FOLDS"), help="smaller sizes")
    options = parser.parse_args()
    gpu = torch.cuda.is_available()
    sizes = options.samples or ((300_000, 0) if gpu else (20_000, 100_000))
    rows = [path_beside_a_fit(sizes[0], 4_000 if gpu else 1_000, options.repeats, "cuda" if gpu else "cpu")]
    if sizes[1]:
        for correlation in (0.0, 0.5):
            rows += folds_beside_lasso(sizes[1], 1_000, correlation, options.repeats)
    write(rows, options.output, "gpu" if gpu else "cpu", options.repeats)


def path_beside_a_fit(m: int, n: int, repeats: int, device: str) -> dict[str, Any]:
    """Seconds of both, and how far the path's objectives are above those of separate fits."""
    made = paper_recipe(m, n, 0.8, NODES, dtype=torch.float32, device=device, noise=NOISE)
    grid, solver = GridSpec(nodes=NODES, device=device), BiCADMM()
    widest = made.kappa
    kappas = np.unique(np.linspace(1, widest, LIMITS).round().astype(int)).tolist()

    def fresh() -> Source:
        return Source(Dense(made.A), made.b, torch.ones_like(made.b))

    def fit(kappa: int) -> Any:
        return solve(Problem(Squared(), (kappa,)), fresh(), solver, grid)

    def path() -> Any:
        return solve_path(Problem(Squared(), (1,)), fresh(), kappas, [1.0], solver, grid)[0]

    one, whole = by_turns([lambda: fit(widest), path], repeats)
    found = path()
    chosen = np.linspace(0, len(kappas) - 1, CHECKED).round().astype(int)
    excess = [found.objectives[k] / fit(kappas[k]).objective - 1 for k in chosen]
    gaps = (found.objectives - found.lower_bounds) / found.objectives
    return {
        "what": f"path of {len(kappas)} limits up to {widest}",
        "m": m,
        "n": n,
        "seconds": whole,
        "ratio": whole / one,
        "note": f"one fit {one:.3g} s; {CHECKED} objectives against separate fits: mean {np.mean(excess):+.1e}, "
        f"worst {np.max(excess):+.1e}; gaps up to {gaps.max():.1e}",
    }


def folds_beside_lasso(m: int, n: int, correlation: float, repeats: int) -> list[dict[str, Any]]:
    """25 true features among AR(1)-correlated ones; half of the variance of the target is noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, n))
    for j in range(1, n):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    truth = np.zeros(n, dtype=bool)
    truth[rng.choice(n, 25, replace=False)] = True
    signal = X[:, truth] @ rng.uniform(0.5, 2, size=25)
    y = signal + signal.std() * rng.normal(size=m)
    models = {
        "one fit, kappa = 50": lambda: SparseLinearRegression(LIMITS).fit(X, y),
        "5 folds x 50 limits": lambda: SparseLinearRegressionCV(range(1, LIMITS + 1)).fit(X, y),
        "LassoCV, 5 folds x 50 penalties": lambda: LassoCV(alphas=50, cv=5, n_jobs=2).fit(X, y),
    }
    seconds = by_turns(list(models.values()), repeats)
    rows = []
    for (name, run), took in zip(models.items(), seconds, strict=True):
        chosen = np.ravel(run().coef_) != 0
        rows.append(
            {
                "what": f"{name}; correlation {correlation:g}",
                "m": m,
                "n": n,
                "seconds": took,
                "ratio": took / seconds[0],
                "note": f"{chosen.sum()} features, F1 {f1_score(truth, chosen):.3f}",
            }
        )
    return rows


def by_turns(jobs: list[Callable[[], Any]], repeats: int) -> list[float]:
    """Median seconds of each job; the first round only warms up."""
    times: list[list[float]] = [[] for _ in jobs]
    for turn in range(repeats + 1):
        for job, seen in zip(jobs, times, strict=True):
            began = time.perf_counter()
            job()
            if turn:
                seen.append(time.perf_counter() - began)
    return [statistics.median(seen) for seen in times]


def write(rows: list[dict[str, Any]], folder: Path, device: str, repeats: int) -> None:
    """A table for people and one for programs."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"selection-{device}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines = ["# Paths and cross-validation", "", f"Medians of {repeats} runs by turns; ratios to one fit.", ""]
    lines += ["| what | size | seconds | ratio | |", "|---|---|---:|---:|---|"]
    for row in rows:
        size = f"{row['m']:,} x {row['n']:,}"
        lines.append(f"| {row['what']} | {size} | {row['seconds']:.3g} | {row['ratio']:.2f} | {row['note']} |")
    lines += ["", *(f"- {name}: {value}" for name, value in environment().items()), ""]
    page = "\n".join(lines)
    (folder / f"selection-{device}.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
