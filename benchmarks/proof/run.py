"""Time to a proof: exact mode against the exact solvers of others, on the same problems in the same run.

``python benchmarks/proof/run.py --output benchmarks/results --peers-python /path/to/python`` runs every solver on
every problem with a time limit. The peers run under a Python of their own (``pip install "numpy<2" l0bnb el0ps okridge
requests gurobipy pyscipopt mpich``), one process each, and are timed inside it after a warm-up. Peers that charge a
price for each nonzero get one at which the limited optimum is theirs too, which spares them the search for it.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib
import numpy as np
import torch
from exact_peers import ONE_THREAD, PEERS
from problems import Case, cases

from psfit import BiCADMM, GridSpec, Progress, solve

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment
from judge import Judge
from ours import problem_of, source_of
from pictures import finish

matplotlib.use("Agg")
import matplotlib.pyplot as plt

GAP = 1e-4
NOTE = (
    "Times are of whole fits, PsFiT's with its search for a good support. L0BnB and El0ps charge a price for a nonzero "
    "and were given one that leads to kappa of them. Gurobi ran with the licence that comes with gurobipy, which "
    'refuses quadratic models of more than 200 variables. "Failed": the peer ended without an answer.'
)


@dataclass(frozen=True)
class Row:
    """One solver on one problem: the judged objective, the gap it proved, and its time."""

    case: str
    solver: str
    objective: float
    gap: float
    seconds: float
    proved: bool


def ours(case: Case, judge: Judge, limit: float) -> tuple[Row, list[tuple[float, float]]]:
    """Exact mode, with the course of its gap."""
    began, course = time.perf_counter(), []

    def listen(state: Progress) -> None:
        if np.isfinite(state.gap):
            course.append((time.perf_counter() - began, state.gap))

    solver = BiCADMM(exact=True, gap_tol=GAP, time_limit=limit)
    result = solve(problem_of(case), source_of(case), solver, GridSpec(device="cpu"), callback=listen)
    seconds = time.perf_counter() - began
    course.append((seconds, max(result.gap, 1e-9)))
    objective = judge.objective(result.support)
    return Row(case.name, "PsFiT", objective, result.gap, seconds, result.gap <= GAP), course


def price_of(case: Case) -> float | None:
    """What a nonzero may cost so that exactly kappa of them are best; None if there is no such price."""

    def objective(kappa: int) -> float:
        return solve(problem_of(case, kappa), source, grid=GridSpec(device="cpu"), certify=False).objective

    kappa, source = case.spec.kappa, source_of(case)
    low, high = objective(kappa) - objective(kappa + 1), objective(kappa - 1) - objective(kappa)
    return (low + high) / 2 if low < high else None


def theirs(name: str, python: str, path: Path, case: Case, judge: Judge, limit: float) -> Row:
    """A peer in a process of its own; one that dies or hangs has proved nothing."""
    command = [python, str(Path(__file__).parent / "exact_peers.py"), name, str(path), str(limit)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * limit + 120, env=ONE_THREAD)
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, json.JSONDecodeError, IndexError):
        return Row(case.name, name, float("nan"), float("nan"), float("nan"), False)
    objective = judge.objective(np.array(found["support"], dtype=int))
    return Row(case.name, name, objective, found["gap"], found["seconds"], found["gap"] <= GAP)


def problem_file(case: Case, folder: Path) -> tuple[Path, bool]:
    """The problem as the peers read it, and whether those with a price can take part."""
    X, y = case.X - case.X.mean(axis=0), case.y - case.y.mean()
    coef = solve(problem_of(case), source_of(case), grid=GridSpec(device="cpu"), certify=False).coef
    price = price_of(case)
    path = folder / "problem.npz"
    extra = {"kappa": case.spec.kappa, "gamma": case.spec.gamma, "most": 3 * np.abs(coef).max(), "price": price or 1.0}
    np.savez(path, X=X, y=y, **extra)
    return path, price is not None


def summary(rows: list[Row]) -> list[str]:
    """Who proved how many, who was faster where, and every disagreement."""
    mine = {row.case: row for row in rows if row.solver == "PsFiT"}
    lines = ["| solver | problems | failed to run | proved | PsFiT faster | PsFiT slower | disagreements |"]
    lines.append("|---|---|---|---|---|---|---|")
    for solver in dict.fromkeys(row.solver for row in rows):
        every = [row for row in rows if row.solver == solver]
        theirs = [row for row in every if np.isfinite(row.seconds)]
        counts = f"| {solver} | {len(every)} | {len(every) - len(theirs)} | {sum(row.proved for row in theirs)} |"
        if solver == "PsFiT":
            lines.append(counts + " | | |")
            continue
        # Faster: proved sooner, or proved where the other did not within the limit. Neither proved: nobody is faster.
        won = sum(mine[r.case].proved and not (r.proved and r.seconds <= mine[r.case].seconds) for r in theirs)
        lost = sum(r.proved and not (mine[r.case].proved and mine[r.case].seconds < r.seconds) for r in theirs)
        both = [(r, mine[r.case]) for r in theirs if r.proved and mine[r.case].proved]
        apart = sum(abs(r.objective - m.objective) > 2 * GAP * m.objective for r, m in both)
        lines.append(f"{counts} {won} | {lost} | {apart} |")
    return lines


def table(rows: list[Row]) -> list[str]:
    """Seconds to the proof, or the gap that was left."""
    solvers = list(dict.fromkeys(row.solver for row in rows))
    lines = ["| problem | " + " | ".join(solvers) + " |", "|---|" + "---|" * len(solvers)]
    for case in dict.fromkeys(row.case for row in rows):
        found = {row.solver: row for row in rows if row.case == case}
        cells = [_cell(found.get(solver)) for solver in solvers]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return lines


def _cell(row: Row | None) -> str:
    if row is None:
        return "not posed"
    if row.proved:
        return f"{row.seconds:.2f} s"
    return f"gap {row.gap:.1%}" if np.isfinite(row.gap) else ("no proof" if np.isfinite(row.seconds) else "failed")


def draw(rows: list[Row], courses: dict[str, list[tuple[float, float]]], path: Path) -> None:
    """Gap against time: the course of exact mode, and where the peers ended."""
    figure, axes = plt.subplots(figsize=(9.0, 5.0), layout="constrained")
    for course in courses.values():
        seconds, gaps = zip(*course, strict=True)
        axes.plot(seconds, np.maximum(gaps, 1e-6), color="tab:blue", alpha=0.6, linewidth=1)
    axes.plot([], [], color="tab:blue", label="PsFiT, a line per problem")
    for solver, marker in zip(PEERS, "osv^D", strict=True):
        ends = [row for row in rows if row.solver == solver and np.isfinite(row.seconds)]
        gaps = [max(row.gap, 1e-6) if np.isfinite(row.gap) else 1.0 for row in ends]
        axes.scatter([row.seconds for row in ends], gaps, s=22, marker=marker, alpha=0.7, label=f"{solver}, its end")
    axes.axhline(GAP, color="grey", linewidth=0.8, linestyle="--")
    title = "Gap against time; the dashed line is the goal"
    finish(figure, axes, path, across="seconds", up="proved relative gap (floor 1e-6)", title=title)


def main() -> None:
    """Run, print as it goes, write everything at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--peers-python", default=sys.executable, help="a Python that has the peers")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each solver and problem")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = []
    courses: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ours(cases(options.seed)[0], Judge(cases(options.seed)[0]), 10.0)
        for case in cases(options.seed):
            judge = Judge(case)
            path, priced = problem_file(case, Path(folder))
            row, courses[case.name] = ours(case, judge, options.limit)
            new = [row]
            for name in PEERS:
                if priced or name not in ("L0BnB", "El0ps"):
                    new.append(theirs(name, options.peers_python, path, case, judge, options.limit))
            rows += new
            print(case.name, " ".join(f"{r.solver}={_cell(r)}" for r in new), flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    with (options.output / "proof.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    page = [
        "# Time to a proof",
        "",
        f"Goal: a gap of {GAP:g}; limit {options.limit:g} s; one thread each.",
        "",
        *summary(rows),
        "",
    ]
    page += [*table(rows), "", NOTE, "", "Run on: " + ", ".join(f"{k} {v}" for k, v in environment().items()) + ".", ""]
    (options.output / "proof.md").write_text("\n".join(page))
    draw(rows, courses, options.output / "proof.png")


if __name__ == "__main__":
    main()
