"""Proofs for classifiers: exact mode with logistic and squared hinge loss, alone and beside El0ps.

``python benchmarks/proof/classifiers.py --output benchmarks/results --peers-python PYTHON`` makes three tables:
breast cancer data (569 x 30) for every limit from 1 to 29; problems on which El0ps, in a process of its own, is asked
for the same optimum (it charges a price for each nonzero and gets one at which the limited optimum is its own; it has
no intercept, so PsFiT fits none there either); and, with ``--data FOLDER``, real sets, at a time limit. ``--only``
names the tables to make; the others are kept as they are in the output file.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.datasets import load_breast_cancer

from psfit import BiCADMM, Dense, GridSpec, Problem, Result, Source, solve
from psfit.losses import Logistic, Loss, SquaredHinge

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "quality"))
from environment import environment
from exact_peers import ONE_THREAD
from suite import Spec, draw, real_case

GAP = 1e-4
LOSSES: dict[str, Loss] = {"logistic": Logistic(), "squared_hinge": SquaredHinge()}
BESIDE = [
    Spec("30 features, ar 0.5", "logistic", samples=200, features=30, kappa=5, correlation=0.5, gamma=1.0),
    Spec("50 features, independent", "logistic", samples=300, features=50, kappa=5, gamma=1.0),
    Spec("60 features, few samples, gamma 0.1", "logistic", samples=100, features=60, kappa=4, gamma=0.1),
    Spec("100 features, ar 0.7", "logistic", samples=500, features=100, kappa=5, correlation=0.7, gamma=1.0),
    Spec("200 features, ar 0.5", "logistic", samples=1000, features=200, kappa=5, correlation=0.5, gamma=1.0),
]
# Runs of at most so many seconds are repeated, and their median counts.
SHORT, RUNS = 1.0, 3
REAL = {"a9a": (5, 10), "mushrooms": (5, 10), "madelon": (5, 10)}


@dataclass(frozen=True)
class Data:
    """Standardised columns, labels of plus and minus one, and a problem on them."""

    name: str
    X: np.ndarray
    y: np.ndarray
    kappa: int
    gamma: float
    intercept: bool = True
    device: str = "cpu"

    def solve(self, loss: str, limit: float, kappa: int | None = None, exact: bool = True) -> Result:
        """PsFiT's answer; with its proof if it is `exact`."""
        problem = Problem(LOSSES[loss], (kappa or self.kappa,), self.gamma, fit_intercept=self.intercept)
        X, y = (torch.from_numpy(part).to(self.device) for part in (self.X, self.y))
        source = Source(Dense(X), y.unsqueeze(1), torch.ones_like(y).unsqueeze(1))
        solver = BiCADMM(exact=True, gap_tol=GAP, time_limit=limit) if exact else BiCADMM()
        return solve(problem, source, solver, GridSpec(device=self.device), certify=False)

    def objective(self, loss: str, support: np.ndarray) -> float:
        """The least objective on a support without an intercept, by SciPy alone."""
        A, y = self.X[:, support], self.y

        def value(x: np.ndarray) -> tuple[float, np.ndarray]:
            margin = y * (A @ x)
            if loss == "logistic":
                losses, slope = np.logaddexp(0, -margin), -expit(-margin)
            else:
                short = np.maximum(1 - margin, 0)
                losses, slope = short**2, -2 * short
            ridge = x / self.gamma
            return losses.sum() + 0.5 * x @ ridge, A.T @ (slope * y) + ridge

        options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
        return float(minimize(value, np.zeros(A.shape[1]), jac=True, method="L-BFGS-B", options=options).fun)


def breast_cancer(kappa: int = 5, intercept: bool = True) -> Data:
    """The set of scikit-learn, standardised."""
    X, y = load_breast_cancer(return_X_y=True)
    return Data("breast cancer", (X - X.mean(axis=0)) / X.std(axis=0), 2.0 * y - 1, kappa, 1.0, intercept)


def prove_all_limits(seconds: float) -> list[str]:
    """Breast cancer with every limit, the time of all limits together and the largest gap."""
    data = breast_cancer()
    lines = [
        "| loss | limits proved | seconds in all | slowest | largest gap | tree nodes |",
        "|---|---|---|---|---|---|",
    ]
    for loss in LOSSES:
        times, gaps, nodes = [], [], 0
        for kappa in range(1, data.X.shape[1]):
            began = time.perf_counter()
            found = data.solve(loss, seconds, kappa)
            times.append(time.perf_counter() - began)
            gaps.append(found.gap)
            nodes += found.tree_nodes
        slowest = int(np.argmax(times))
        proved = sum(gap <= GAP for gap in gaps)
        row = f"| {loss} | {proved} of {len(gaps)} | {sum(times):.1f} | {times[slowest]:.1f} s (kappa {slowest + 1}) |"
        lines.append(f"{row} {max(gaps):.2%} | {nodes:,} |")
        print(lines[-1], flush=True)
    return lines


def price_of(data: Data, loss: str) -> float | None:
    """What a nonzero may cost so that exactly kappa of them are best; None if there is no such price."""
    less, same, more = (data.solve(loss, 60.0, data.kappa + k, exact=False).objective for k in (-1, 0, 1))
    return (same - more + less - same) / 2 if same - more < less - same else None


def choose_limit(data: Data, loss: str) -> tuple[Data, float | None]:
    """The problem with its limit, or the nearest one to which a price leads, and that price."""
    for shift in (0, 1, -1, 2, -2):
        near = replace(data, kappa=data.kappa + shift)
        price = price_of(near, loss)
        if price is not None:
            return near, price
    return data, None


def run_el0ps(python: str, data: Data, loss: str, price: float, limit: float, folder: Path) -> dict[str, float]:
    """The support, gap and seconds of the peer; without them if it failed."""
    path = folder / "problem.npz"
    np.savez(path, X=data.X, y=data.y, kappa=data.kappa, gamma=data.gamma, price=price, loss=loss)
    command = [python, str(Path(__file__).parent / "exact_peers.py"), "El0ps", str(path), str(limit)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * limit + 120, env=ONE_THREAD)
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, json.JSONDecodeError, IndexError):
        return {}


def measure(data: Data, loss: str, limit: float) -> tuple[Result, float]:
    """PsFiT's answer and its seconds; the median of three runs if they are short."""
    seconds: list[float] = []
    while True:
        began = time.perf_counter()
        found = data.solve(loss, limit)
        seconds.append(time.perf_counter() - began)
        if seconds[0] > SHORT or len(seconds) == RUNS:
            return found, float(np.median(seconds))


def measure_el0ps(python: str, data: Data, loss: str, price: float, limit: float, folder: Path) -> dict[str, float]:
    """What the peer found, with its seconds in the same way."""
    runs = [run_el0ps(python, data, loss, price, limit, folder)]
    if runs[0].get("seconds", limit) <= SHORT:
        runs += [run_el0ps(python, data, loss, price, limit, folder) for _ in range(RUNS - 1)]
        runs[0]["seconds"] = float(np.median([run["seconds"] for run in runs]))
    return runs[0]


def compare(python: str, limit: float) -> list[str]:
    """Seconds to a proof beside El0ps, one thread each."""
    torch.set_num_threads(1)
    lines = ["| problem | loss | kappa | PsFiT | El0ps | excess of El0ps's answer |", "|---|---|---|---|---|---|"]
    every = [breast_cancer(intercept=False)]
    for spec in BESIDE:
        case = draw(spec, 0)
        X = (case.X - case.X.mean(axis=0)) / case.X.std(axis=0)
        every.append(Data(spec.name, X, 2.0 * case.y - 1, spec.kappa, spec.gamma, intercept=False))
    with tempfile.TemporaryDirectory() as folder:
        for data in every:
            for loss in LOSSES:
                near, price = choose_limit(data, loss)
                mine, seconds = measure(near, loss, limit)
                cell, excess = "no price leads to this limit", ""
                if price is not None:
                    found = measure_el0ps(python, near, loss, price, limit, Path(folder))
                    cell = _cell(found.get("gap", np.nan), found.get("seconds", np.nan))
                    if "support" in found:
                        other = near.objective(loss, np.array(found["support"], dtype=int))
                        excess = f"{other / near.objective(loss, mine.support) - 1:.2e}"
                row = f"| {near.name} | {loss} | {near.kappa} | {_cell(mine.gap, seconds)} | {cell} | {excess} |"
                lines.append(row)
                print(row, flush=True)
    torch.set_num_threads(2)
    return lines


def _cell(gap: float, seconds: float) -> str:
    if gap <= GAP:
        return f"{seconds:.2f} s"
    return f"gap {gap:.2%}" if np.isfinite(gap) else ("no proof" if np.isfinite(seconds) else "failed")


def prove_real(folder: Path, options: argparse.Namespace) -> list[str]:
    """Gaps on real sets at a time limit."""
    lines = ["| set | loss | gamma | kappa | seconds | gap | tree nodes |", "|---|---|---|---|---|---|---|"]
    limit, plain = options.limit, options.no_intercept
    for name in options.sets:
        case = real_case(name, folder)
        X, y = np.ascontiguousarray(case.X), 2.0 * case.y - 1
        data = Data(name, X, y, 1, 1.0, intercept=not plain, device=options.device)
        for gamma in options.gammas:
            for loss in options.losses:
                for kappa in REAL[name]:
                    began = time.perf_counter()
                    found = replace(data, gamma=gamma).solve(loss, limit, kappa)
                    seconds = time.perf_counter() - began
                    row = f"| {name} | {loss} | {gamma:g} | {kappa} | {seconds:.1f} | {found.gap:.2%} |"
                    lines.append(f"{row} {found.tree_nodes:,} |")
                    print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Make the tables, and write the page from them and from those that are known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--peers-python", default=sys.executable, help="a Python that has El0ps")
    parser.add_argument("--data", type=Path, help="a folder with real sets as .npz files")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each problem")
    parser.add_argument("--gammas", type=float, nargs="+", default=[1.0], help="of the real sets")
    parser.add_argument("--losses", nargs="+", choices=list(LOSSES), default=list(LOSSES), help="of the real sets")
    parser.add_argument("--sets", nargs="+", choices=list(REAL), default=list(REAL), help="the real sets")
    parser.add_argument("--no-intercept", action="store_true", help="real sets without an intercept")
    parser.add_argument("--device", default="cpu", help="where the real sets are proved: cpu or cuda")
    parser.add_argument("--only", nargs="+", choices=["limits", "beside", "real"], default=["limits", "beside", "real"])
    options = parser.parse_args()
    breast_cancer().solve("logistic", 10.0, 2)
    kept = options.output / "proof-classifiers.json"
    tables: dict[str, list[str]] = json.loads(kept.read_text()) if kept.exists() else {}
    if "limits" in options.only:
        tables["Breast cancer, 569 x 30, gamma 1, kappa 1 to 29"] = prove_all_limits(options.limit)
    if "beside" in options.only:
        tables[f"Beside El0ps, at most {options.limit:g} s"] = compare(options.peers_python, options.limit)
    if "real" in options.only and options.data:
        # Sets and settings that were run before stay in the table.
        title = f"Real sets, {options.device}, at most {options.limit:g} s" + ", no intercept" * options.no_intercept
        known = [line for line in tables.get(title, []) if line.startswith("|")]
        tables[title] = known + prove_real(options.data, options)[2 if known else 0 :]
    where = "Run on: " + ", ".join(f"{k} {v}" for k, v in environment().items()) + "."
    for lines in tables.values():
        lines += [] if lines[-1].startswith("Run on") else ["", where]
    options.output.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(tables, indent=1))
    page = ["# Proofs for classifiers", "", f"Goal: a gap of {GAP:g}. Times are of whole fits, search included.", ""]
    for title, lines in tables.items():
        page += [f"## {title}", "", *lines, ""]
    (options.output / "proof-classifiers.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
