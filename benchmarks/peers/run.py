"""PsFiT's default beside other packages: the objective of each support, refitted by the judge, and the time.

``python benchmarks/peers/run.py --set quick`` tries it in less than a minute; ``--set suite fresh large`` is the whole,
``--data FOLDER`` adds real data sets from ``.npz`` files. Rows are appended to ``peers.csv``, and what is there is not
run again, so that a long run can be made in parts, by sets, by ``--only`` (parts of names) and by ``--methods``;
``--again METHOD`` runs a method anew. Every call draws the page and the picture from all rows.

Each method has a process of its own, with the same number of threads. The methods take turns on a problem: a first
round that does not count, then three that do (one for a method that needs more than 20 s), of which the median is
taken. No process works while another is timed. A run over the cap is stopped and reported.
"""

import argparse
import csv
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from methods import METHODS
from problems import SETS, Problem, problems
from report import write_page
from worker import OverTime, Worker, write_case

sys.path.append(str(Path(__file__).parents[1] / "quality"))
from judge import Judge
from suite import Case

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment

ROUNDS = 3
# A method whose first run takes longer is timed once.
SLOW = 20.0
# Threads of the process before may still wait actively for work.
PAUSE = 0.05


@dataclass(frozen=True)
class Row:
    """One method on one problem; `objective` is the judge's, infinite without an answer within the limit."""

    group: str
    problem: str
    model: str
    samples: int
    features: int
    kappa: int
    gamma: float
    method: str
    status: str
    nonzeros: int
    objective: float
    seconds: float
    runs: int


def measure(case: Case, workers: dict[str, Worker], cap: float) -> dict[str, tuple[str, list[list[int]], list[float]]]:
    """Status, supports and seconds of each method on a case, by turns."""
    seen: dict[str, tuple[str, list[list[int]], list[float]]] = {name: ("", [], []) for name in workers}
    rounds = dict.fromkeys(workers, ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        write_case(case, Path(folder))
        for turn in range(ROUNDS + 1):
            for name, worker in workers.items():
                if seen[name][0] or turn > rounds[name]:
                    continue
                time.sleep(PAUSE)
                try:
                    found = worker.turn(Path(folder), cap)
                except OverTime:
                    seen[name] = (f"over {cap:g} s", [], [])
                except RuntimeError as error:
                    seen[name] = (f"failed: {error}", [], [])
                else:
                    once = METHODS[name].untimed
                    if turn or once:
                        seen[name][2].append(found["seconds"])
                    else:
                        rounds[name] = 1 if found["seconds"] > SLOW else ROUNDS
                    seen[name] = ("done" if once else "", found["supports"], seen[name][2])
    return {name: (status or "done", *rest) for name, (status, *rest) in seen.items()}


def judge_all(problem: Problem, case: Case, measured: dict[str, tuple[str, list, list]]) -> list[Row]:
    """A row for each method; a support that several found is judged once."""
    judge, known, rows = Judge(case), dict[tuple[int, ...], float](), []
    about = (problem.group, problem.name, case.spec.model, *case.X.shape, case.spec.kappa, case.spec.gamma)
    for method, (status, supports, seconds) in measured.items():
        best, size = float("inf"), 0
        for support in map(tuple, supports):
            if support not in known:
                known[support] = judge.objective(np.array(support, dtype=int))
            if known[support] < best:
                best, size = known[support], len(support)
        if status == "done" and not np.isfinite(best):
            status = "more than kappa nonzeros"
        middle = statistics.median(seconds) if seconds else float("nan")
        rows.append(Row(*about, method, status, size, best, middle, len(seconds)))
    return rows


def read(path: Path) -> list[dict[str, str]]:
    """The rows of earlier runs."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(rows: list[dict[str, str]], path: Path) -> None:
    """All rows, in place of what was there; those of an interrupted run are whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    with fresh.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)] + list(environment()) + ["packages"])
        writer.writeheader()
        writer.writerows(rows)
    fresh.replace(path)


def run(options: argparse.Namespace, names: list[str], path: Path) -> list[dict[str, str]]:
    """All that is missing, problem by problem; rows are on disk after each."""
    chosen = {problem.name for problem in problems(options.set, options.data, options.only)}
    rows = [row for row in read(path) if row["method"] not in options.again or row["problem"] not in chosen]
    there = {(row["group"], row["problem"], row["method"]) for row in rows}
    where = environment() | {"threads": str(options.threads), "packages": versions(names)}
    workers = {name: Worker(name, options.threads) for name in names}
    try:
        for problem in problems(options.set, options.data, options.only):
            missing = [name for name in names if (problem.group, problem.name, name) not in there]
            if not missing:
                continue
            case = problem.make()
            chosen = {name: workers[name] for name in missing if METHODS[name].suits(case)}
            new = judge_all(problem, case, measure(case, chosen, options.cap))
            rows += [{key: str(value) for key, value in asdict(row).items()} | where for row in new]
            write(rows, path)
            figures = "; ".join(f"{r.method} {r.objective:.8g} {r.seconds:.3f} s ({r.status})" for r in new)
            print(f"{problem.name}: {figures}", flush=True)
    finally:
        for worker in workers.values():
            worker.stop()
    return rows


def versions(names: list[str]) -> str:
    """The packages of the methods with their versions."""
    from importlib.metadata import version

    packages = sorted({METHODS[name].package for name in names} - {"psfit", "sklearn"})
    return " ".join(f"{package} {version(package)}" for package in packages)


def main() -> None:
    """Run what is missing, then write the page and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--set", nargs="+", choices=SETS, default=["suite", "fresh", "real", "large"])
    parser.add_argument("--data", type=Path, help="folder of .npz files with real data, for the set real")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="problems whose names contain a part")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), help="some of the methods")
    again = "drop earlier rows of these on the chosen problems"
    parser.add_argument("--again", nargs="+", choices=list(METHODS), default=[], help=again)
    parser.add_argument("--high", action="store_true", help='add PsFiT with effort="high"')
    parser.add_argument("--exact", action="store_true", help="add PsFiT's exact mode, 60 s, up to 200 features")
    parser.add_argument("--threads", type=int, default=2, help="of every method")
    parser.add_argument("--cap", type=float, default=120.0, help="seconds after which a run is stopped")
    options = parser.parse_args()
    extra = {"PsFiT high": options.high, "PsFiT exact": options.exact}
    names = options.methods or [name for name in METHODS if extra.get(name, True)]
    absent = [name for name in names if METHODS[name].absent]
    if absent:
        print("Not installed:", ", ".join(absent))
    path = options.output / "peers.csv"
    rows = run(options, [name for name in names if name not in absent], path)
    if not rows:
        parser.error(f"no problem to run, and no rows in {path}")
    write_page(rows, absent, options.output)


if __name__ == "__main__":
    main()
