"""How often the true terms of known systems are found, and how long it takes, beside pysindy's own optimizers.

``python benchmarks/sindy/run.py`` (``pip install 'psfit-toolbox[sindy]'``) follows the differential experiment of the
MIOSR paper (Bertsimas and Gurnee, arXiv:2206.00176): trajectories of the Lorenz, Hopf and MHD systems with a step of
0.002, noise relative to the root mean square of all values, slopes by smoothed finite differences over 9 points, a
library of all polynomials of degree 5 (56, 21 and 462 terms) of the smoothed values, as ``SINDy.fit`` makes it. Every
method fits its whole range (limits 1 to 5, 20 thresholds times 3 ridges) to a trajectory; for each equation the
candidate with the smallest AICc on the half as long continuation is taken, for every method alike. The support accuracy
is (found and true) / (found or true) over all equations; "within reach" is that of the best candidate of each equation,
that is, without errors of the choice (the best of each need not be the best of all together). "Proved" is the share of
the equations and limits for which PsFiT has proved its terms to be the best ones, to a ten-thousandth of the objective;
"PsFiT, exact" goes on until it has, for at most 10 seconds a limit (pysindy does not keep the proofs of MIOSR). MIOSR
(``pip install gurobipy``) runs where the size of the licence that comes with it suffices: 200 variables, not MHD. Every
run adds its rows to ``sindy.csv``, so that methods and systems can be measured one after the other (``--systems``,
``--methods``).
"""

import argparse
import csv
import sys
import time
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pysindy as ps
from systems import SYSTEMS, System

from psfit import BiCADMM
from psfit.sindy import SparseEquations

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment

STEP, WINDOW, DEGREE, MOST_TERMS, VALIDATION = 0.002, 9, 5, 5, 0.5
THRESHOLDS, RIDGES = 20, (1e-5, 1e-3, 0.05)
# The most columns for which the size-limited licence allows a problem of one equation: a coefficient and a choice each.
MOST_COLUMNS = 100
SECONDS = 10
PROVED = 1e-4
METHODS = ("STLSQ", "SSR", "MIOSR", "PsFiT", "PsFiT, exact")
HEAD = ("system", "noise", "method", "trajectories", "support accuracy", "within reach", "proved", "CPU seconds")
# A candidate: coefficients of all equations, and, if it is known, which of these are proved.
Candidate = tuple[np.ndarray, list[bool]]


def candidates(method: str, system: System, theta: np.ndarray, slopes: np.ndarray) -> Iterator[Candidate]:
    """What a method finds for each limit, threshold and ridge."""
    limits, equations = range(1, MOST_TERMS + 1), slopes.shape[1]
    if method == "STLSQ":
        for threshold in np.logspace(*system.thresholds, THRESHOLDS):
            for ridge in RIDGES:
                yield ps.STLSQ(threshold=threshold, alpha=ridge).fit(theta, slopes).coef_, []
    elif method == "SSR":
        # Its history goes from all terms to one, one at a time.
        for coef in ps.SSR(kappa=1e-10, max_iter=theta.shape[1]).fit(theta, slopes).history_:
            yield np.asarray(coef), []
    elif method == "MIOSR":
        for limit in limits:
            settings = {"target_sparsity": None, "group_sparsity": (limit,) * equations, "alpha": RIDGES[0]}
            # It keeps Gurobi's proof of the last equation only.
            yield ps.MIOSR(**settings, regression_timeout=SECONDS).fit(theta, slopes).coef_, []
    else:
        solver = BiCADMM(exact=True, time_limit=SECONDS) if method == "PsFiT, exact" else None
        for limit in limits:
            fitted = SparseEquations(limit, solver=solver).fit(theta, slopes)
            yield fitted.coef_, (fitted.gaps_ <= PROVED).tolist()


def score(coef: np.ndarray, theta: np.ndarray, slope: np.ndarray) -> float:
    """AICc of one equation on other samples."""
    terms, m = np.count_nonzero(coef), len(theta)
    error = np.mean((slope - theta @ coef) ** 2)
    return float(m * np.log(error + 1e-300) + 2 * terms + 2 * (terms + 1) * (terms + 2) / max(m - terms - 2, 1))


def accuracy(chosen: list[set[str]], true: tuple[frozenset[str], ...]) -> float:
    """The share of the terms, found or true, that are both."""
    both = sum(len(found & right) for found, right in zip(chosen, true, strict=True))
    return both / sum(len(found | right) for found, right in zip(chosen, true, strict=True))


def judge(system: System, names: list[str], found: list[np.ndarray], theta: np.ndarray, slopes: np.ndarray) -> Any:
    """The accuracy of the candidates that AICc chooses on other samples, and of the best ones."""
    chosen, best = [], []
    for k, true in enumerate(system.terms):
        terms = [{name for name, value in zip(names, coef[k], strict=True) if value != 0} for coef in found]
        scores = [score(coef[k], theta, slopes[:, k]) for coef in found]
        chosen.append(terms[int(np.argmin(scores))])
        best.append(max(terms, key=lambda one: len(one & true) / len(one | true)))
    return accuracy(chosen, system.terms), accuracy(best, system.terms)


def make_samples(system: System, seed: int, noise: float) -> tuple[Any, np.ndarray, np.ndarray, int]:
    """The library, its terms, the slopes of a noisy trajectory, and how many samples are to fit."""
    times, x = system.trajectory(seed, system.duration * (1 + VALIDATION), STEP)
    x = x + np.random.default_rng(seed + 1000).normal(size=x.shape) * noise * np.sqrt(np.mean(x**2))
    differences = ps.SmoothedFiniteDifference(smoother_kws={"window_length": WINDOW})
    library = ps.PolynomialLibrary(degree=DEGREE)
    # As `SINDy.fit` does it: the library is made of the smoothed values.
    smooth, slopes = library.calc_trajectory(differences, ps.AxesArray(x, {"ax_time": 0, "ax_coord": 1}), times)
    theta = np.asarray(library.fit(smooth).transform(smooth))
    return library, theta, np.asarray(slopes), int(system.duration / STEP)


def measure(system: System, method: str, noise: float, seeds: int) -> list[str]:
    """A row of the table."""
    shares, proved, seconds = [], [], []
    for seed in range(seeds):
        library, theta, slopes, fitted = make_samples(system, seed, noise)
        if method == "MIOSR" and theta.shape[1] > MOST_COLUMNS:
            return [system.name, f"{noise:.1%}", method, "0", "too large for the licence", "", "", ""]
        began = time.process_time()
        found = list(candidates(method, system, theta[:fitted], slopes[:fitted]))
        seconds.append(time.process_time() - began)
        proved += [proof for _, proofs in found for proof in proofs]
        coefs = [coef for coef, _ in found]
        shares.append(judge(system, library.get_feature_names(), coefs, theta[fitted:], slopes[fitted:]))
    figures = [f"{value:.2f}" for value in np.mean(shares, axis=0)]
    share = f"{np.mean(proved):.2f}" if proved else ""
    return [system.name, f"{noise:.1%}", method, str(seeds), *figures, share, f"{np.median(seconds):.2f}"]


def describe(rows: list[list[str]]) -> str:
    """The page."""
    lines = [f"| {' | '.join(row)} |" for row in [HEAD, ["---"] * len(HEAD), *rows]]
    about = [f"- {name}: {value}" for name, value in (environment() | {"pysindy": version("pysindy")}).items()]
    text = ["# Equations from data", "", " ".join((__doc__ or "").split()), ""]
    text += ["Means of the accuracy, medians of the CPU seconds of the whole range of a method, one thread.", ""]
    return "\n".join([*text, *lines, "", *about, ""])


def main() -> None:
    """Run, keep the rows, and write a page from all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--systems", nargs="+", default=[system.name for system in SYSTEMS])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--noise", type=float, nargs="+", default=[0.002, 0.01])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    methods = [method for method in options.methods if method != "MIOSR" or find_spec("gurobipy")]
    kept, file = {}, options.output / "sindy.csv"
    if file.exists():
        with file.open(newline="") as opened:
            kept = {tuple(row[:3]): row for row in list(csv.reader(opened))[1:]}
    for system in SYSTEMS:
        for noise in options.noise if system.name in options.systems else []:
            for method in methods:
                row = measure(system, method, noise, options.seeds)
                kept[tuple(row[:3])] = row
                print(*row, sep="\t", flush=True)
    order = [system.name for system in SYSTEMS]
    rows = sorted(kept.values(), key=lambda row: (order.index(row[0]), row[1], METHODS.index(row[2])))
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([HEAD, *rows])
    (options.output / "sindy.md").write_text(describe(rows))


if __name__ == "__main__":
    main()
