"""What PsFiT proves by itself: the paper's recipe, and the squared-loss problems of the quality suite.

``python benchmarks/proof/alone.py --output benchmarks/results`` writes a page with two tables: the time of a fit and
of its certificate, the gap, and the time and gap of exact mode.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from problems import quality_cases

from psfit import BiCADMM, Dense, GridSpec, Problem, Result, Source, solve
from psfit.data.synthetic import paper_recipe
from psfit.losses import Squared

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment
from ours import problem_of, source_of

HEAD = ["fit s", "certificate s", "gap", "certain in/out", "exact s", "exact gap", "tree nodes"]


def timed(problem: Problem, source: Source, grid: GridSpec, solver: BiCADMM, certify: bool) -> tuple[float, Result]:
    """Seconds and the result."""
    began = time.perf_counter()
    result = solve(problem, source, solver, grid, certify=certify)
    return time.perf_counter() - began, result


def line(name: str, problem: Problem, source: Source, grid: GridSpec, limit: float) -> str:
    """One row of a table."""
    plain, _ = timed(problem, source, grid, BiCADMM(), certify=False)
    whole, certified = timed(problem, source, grid, BiCADMM(), certify=True)
    exact_seconds, exact = timed(problem, source, grid, BiCADMM(exact=True, time_limit=limit), certify=True)
    cells = [f"{plain:.2f}", f"{max(whole - plain, 0):.2f}", f"{certified.gap:.1e}"]
    cells += [f"{certified.certain_in}/{certified.certain_out}", f"{exact_seconds:.2f}", f"{exact.gap:.1e}"]
    row = f"| {name} | " + " | ".join([*cells, f"{exact.tree_nodes:,}"]) + " |"
    print(row, flush=True)
    return row


def recipe(samples: int, features: int, limit: float) -> list[str]:
    """The paper's data at four sparsity levels, two ridges, two levels of noise; four nodes."""
    rows = []
    for level in (0.6, 0.7, 0.8, 0.9):
        for noise in (0.01, 0.001):
            data = paper_recipe(samples, features, level, 4, noise=noise)
            source = Source(Dense(data.A), data.b, torch.ones(samples, 1, dtype=torch.float64))
            for gamma in (10.0, 1000.0):
                problem = Problem(Squared(), (data.kappa,), gamma, fit_intercept=False)
                name = f"{level} | {noise} | {gamma:g}"
                rows.append(line(name, problem, source, GridSpec(nodes=4, device="cpu"), limit))
    return rows


def suite(seeds: int, limit: float) -> list[str]:
    """Squared loss, at most 200 features."""
    rows = []
    for case in quality_cases(seeds):
        rows.append(line(case.name, problem_of(case), source_of(case), GridSpec(device="cpu"), limit))
    return rows


def main() -> None:
    """Run both and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for exact mode")
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=3, help="problems of each family")
    options = parser.parse_args()
    rule = "|" + "---|" * len(HEAD)
    page = ["# What PsFiT proves", "", f"Exact mode aims at a gap of 1e-4 and has {options.limit:g} s.", ""]
    page += [f"## The paper's recipe, {options.samples:,} x {options.features:,}, four nodes", ""]
    page += ["| sparsity level | noise | gamma | " + " | ".join(HEAD) + " |", "|---|---|---" + rule]
    page += recipe(options.samples, options.features, options.limit)
    page += ["", "## Squared loss in the quality suite, up to 200 features", ""]
    page += ["| problem | " + " | ".join(HEAD) + " |", "|---" + rule, *suite(options.seeds, options.limit)]
    page += ["", "Run on: " + ", ".join(f"{k} {v}" for k, v in environment().items()) + ".", ""]
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "proof-alone.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
