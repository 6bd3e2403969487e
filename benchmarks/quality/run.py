"""Whose support is best: PsFiT at three efforts against its peers, judged by the refitted objective.

``python benchmarks/quality/run.py --output benchmarks/results`` runs the synthetic suite twice, on the seeds it was
developed with and on fresh ones; ``--data FOLDER`` adds real data sets from ``.npz`` files. It writes a CSV of every
fit, a page of summaries and a picture of excess objective against time. Needs ``pip install psfit-toolbox[bench]``.
"""

import argparse
import csv
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import matplotlib
import numpy as np
import torch
from judge import Judge
from ours import items_of, problem_of, source_of
from peers import peers_of
from search import best_known
from suite import REAL, Case, cases, real_case

from psfit import BiCADMM, GridSpec, solve

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment
from pictures import finish

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OURS = {
    "PsFiT low": ("low", 1),
    "PsFiT": ("medium", 1),
    "PsFiT 4 nodes": ("medium", 4),
    "PsFiT high": ("high", 1),
}


@dataclass(frozen=True)
class Row:
    """One method on one case; `excess` is relative to the best objective anyone found."""

    group: str
    case: str
    model: str
    method: str
    objective: float
    excess: float
    seconds: float


def compare(case: Case, group: str) -> list[Row]:
    """All methods on one case."""
    judge = Judge(case)
    problem, source = problem_of(case), source_of(case)
    rows = []
    for name, (effort, nodes) in OURS.items():
        began = time.perf_counter()
        result = solve(problem, source, BiCADMM(effort=effort), GridSpec(nodes=nodes, device="cpu"))
        seconds = time.perf_counter() - began
        rows.append(_row(group, case, name, judge.objective(items_of(case, result)), seconds))
    for name, find in peers_of(case).items():
        began = time.perf_counter()
        support = find(case)
        rows.append(_row(group, case, name, judge.objective(support), time.perf_counter() - began))
    small = case.seed >= 0
    known = best_known(judge, 100 if case.spec.model == "linear" else 20) if small else float("inf")
    best = min(known, *(row.objective for row in rows))
    return [replace(row, excess=row.objective / best - 1) for row in rows]


def compared(named: tuple[str, Case]) -> list[Row]:
    """`compare` for a pool of workers."""
    return compare(named[1], named[0])


def _row(group: str, case: Case, method: str, objective: float, seconds: float) -> Row:
    return Row(group, case.name, case.spec.model, method, objective, 0.0, round(seconds, 4))


def groups(seeds: int, folder: Path | None) -> Iterator[tuple[str, Case]]:
    """The real data, which take longest, then the suite on its own seeds and on fresh ones."""
    for name in reversed(REAL) if folder else []:
        yield "real", real_case(name, folder)
    for case in cases(list(range(seeds))):
        yield "suite", case
    for case in cases(list(range(1000, 1000 + seeds))):
        yield "fresh", case


def summary(rows: list[Row]) -> list[str]:
    """Mean and worst excess and mean time by group and method."""
    lines = ["| group | method | cases | mean excess % | worst excess % | mean seconds |", "|---|---|---|---|---|---|"]
    for group in dict.fromkeys(row.group for row in rows):
        for method in dict.fromkeys(row.method for row in rows):
            mine = [row for row in rows if (row.group, row.method) == (group, method)]
            if mine:
                # A support beyond the limit has no objective; such answers are counted, not averaged.
                excess = 100 * np.array([row.excess for row in mine if np.isfinite(row.excess)])
                broken = f" ({len(mine) - len(excess)} over the limit)" if len(excess) < len(mine) else ""
                figures = f"{excess.mean():.4f} | {excess.max():.4f} | {np.mean([row.seconds for row in mine]):.2f}"
                lines.append(f"| {group} | {method} | {len(mine)}{broken} | {figures} |")
    return lines


def against_best_peer(rows: list[Row]) -> list[str]:
    """Every case where an effort ends above the best peer by more than rounding."""
    lines = ["| case | method | above the best peer % |", "|---|---|---|"]
    for case in dict.fromkeys((row.group, row.case) for row in rows):
        mine = [row for row in rows if (row.group, row.case) == case]
        peer = min(row.objective for row in mine if not row.method.startswith("PsFiT"))
        for row in mine:
            if row.method in ("PsFiT", "PsFiT 4 nodes", "PsFiT high") and row.objective > peer * (1 + 1e-7):
                lines.append(f"| {row.case} | {row.method} | {100 * (row.objective / peer - 1):.4f} |")
    return lines if len(lines) > 2 else ["None."]


def draw(rows: list[Row], path: Path) -> None:
    """Mean excess against mean time, a point per method."""
    figure, axes = plt.subplots(figsize=(8.4, 4.6), layout="constrained")
    for method in dict.fromkeys(row.method for row in rows):
        mine = [row for row in rows if row.method == method]
        excess = max(100 * float(np.mean([row.excess for row in mine if np.isfinite(row.excess)])), 1e-4)
        seconds = float(np.mean([row.seconds for row in mine]))
        axes.scatter(seconds, excess, s=60, marker="o" if method.startswith("PsFiT") else "^", label=method)
    axes.margins(0.15)
    up = "mean excess objective, % (floor 1e-4)"
    title = "Excess over the best known objective against time"
    finish(figure, axes, path, across="mean seconds a fit", up=up, title=title)


def main() -> None:
    """Run, print as it goes, write everything at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--data", type=Path, help="folder of .npz files with real data")
    parser.add_argument("--seeds", type=int, default=3, help="problems of each synthetic family")
    parser.add_argument("--jobs", type=int, default=1, help="cases to run at once, one thread each")
    options = parser.parse_args()
    rows: list[Row] = []
    with get_context("spawn").Pool(options.jobs, torch.set_num_threads, (1,)) as pool:
        for new in pool.imap(compared, groups(options.seeds, options.data)):
            rows += new
            figures = " ".join(f"{r.method}={100 * r.excess:.3f}%/{r.seconds:.2f}s" for r in new)
            print(new[0].case, figures, flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    stem = "quality" if options.seeds else "quality-real"
    with (options.output / f"{stem}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    page = ["# Quality of supports", "", *summary(rows), "", "## Above the best peer", "", *against_best_peer(rows), ""]
    page += [
        f"One thread each, {options.jobs} case(s) at a time. Run on: "
        + ", ".join(f"{k} {v}" for k, v in environment().items())
        + ".",
        "",
    ]
    (options.output / f"{stem}.md").write_text("\n".join(page))
    draw(rows, options.output / f"{stem}.png")


if __name__ == "__main__":
    main()
