"""How often the true terms of known systems are found, and how long it takes, beside pysindy's own optimizers.

``python benchmarks/sindy/run.py`` (``pip install 'psfit-toolbox[sindy]'``) makes trajectories of the Lorenz, Hopf and
MHD systems, adds noise, and fits a library of all polynomials of degree 5 (56, 21 and 462 terms). Each method fits its
whole range of limits or thresholds, and the one with the smallest AIC on a second trajectory is taken, for each
equation by itself. The support accuracy is (found and true) / (found or true), over all equations. MIOSR needs Gurobi
with a licence and is left out.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pysindy as ps
from systems import SYSTEMS, System

from psfit.sindy import SparseEquations

DEGREE, MOST_TERMS = 5, 6
THRESHOLDS = np.logspace(-3, 1, 9)


def candidates(method: str, theta: np.ndarray, slopes: np.ndarray) -> Iterator[np.ndarray]:
    """Coefficients of all equations, for each limit or threshold of a method."""
    if method == "STLSQ":
        for threshold in THRESHOLDS:
            yield ps.STLSQ(threshold=threshold, alpha=0.01).fit(theta, slopes).coef_
    elif method == "SSR":
        # Its history goes from all terms to one, one at a time.
        yield from map(np.asarray, ps.SSR(kappa=1e-10, max_iter=theta.shape[1]).fit(theta, slopes).history_)
    else:
        for limit in range(1, MOST_TERMS + 1):
            yield SparseEquations(limit).fit(theta, slopes).coef_


def choose(found: list[np.ndarray], theta: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """For each equation, the coefficients with the smallest AIC on other samples."""
    chosen = []
    for k in range(slopes.shape[1]):
        scores = []
        for coef in found:
            terms, m = np.count_nonzero(coef[k]), len(theta)
            error = np.mean((slopes[:, k] - theta @ coef[k]) ** 2)
            scores.append(m * np.log(error + 1e-300) + 2 * terms + 2 * terms * (terms + 1) / max(m - terms - 1, 1))
        chosen.append(found[int(np.argmin(scores))][k])
    return np.array(chosen)


def accuracy(system: System, names: list[str], coef: np.ndarray) -> float:
    """The share of the terms, found or true, that are both."""
    both = either = 0
    for row, true in zip(coef, system.terms, strict=True):
        found = {name for name, value in zip(names, row, strict=True) if value != 0}
        both, either = both + len(found & true), either + len(found | true)
    return both / either


def make_samples(system: System, seed: int, samples: int, noise: float) -> tuple[Any, np.ndarray, np.ndarray]:
    """The library, its terms and the slopes of a noisy trajectory, with smoothed finite differences."""
    times, x = system.trajectory(seed, samples)
    x = x + np.random.default_rng(seed + 1000).normal(size=x.shape) * noise * x.std(axis=0)
    slopes = np.asarray(ps.SmoothedFiniteDifference()._differentiate(x, times))
    library = ps.PolynomialLibrary(degree=DEGREE).fit(x)
    return library, np.asarray(library.transform(x)), slopes


def measure(system: System, samples: int, noise: float, seeds: int) -> list[list[Any]]:
    """A row of the table for each method."""
    rows = []
    for method in ("STLSQ", "SSR", "PsFiT"):
        shares, seconds = [], []
        for seed in range(seeds):
            library, theta, slopes = make_samples(system, 2 * seed, samples, noise)
            _, held, held_slopes = make_samples(system, 2 * seed + 1, samples, noise)
            began = time.perf_counter()
            found = list(candidates(method, theta, slopes))
            seconds.append(time.perf_counter() - began)
            shares.append(accuracy(system, library.get_feature_names(), choose(found, held, held_slopes)))
        rows.append([system.name, f"{noise:.1%}", method, f"{np.mean(shares):.2f}", f"{np.median(seconds):.2f}"])
        print(*rows[-1], sep="\t", flush=True)
    return rows


def main() -> None:
    """Run, and write a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.002, 0.02])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [
        row
        for system in SYSTEMS
        for noise in options.noise
        for row in measure(system, options.samples, noise, options.seeds)
    ]
    head = ["system", "noise", "method", "support accuracy", "seconds (all limits or thresholds)"]
    lines = [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]]
    text = f"# Equations from data\n\n{' '.join((__doc__ or '').split())}\n\n{options.samples} samples a trajectory, "
    text += f"{options.seeds} pairs of trajectories; means of the accuracy, medians of the seconds.\n\n"
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "sindy.md").write_text(text + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
