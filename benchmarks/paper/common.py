"""What the paper's experiments share: its data, a fit that is timed, and the files that are written."""

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import torch
from torch import Tensor

from psfit import BiCADMM, GridSpec, Problem, Result, solve
from psfit.data import Dense, Source
from psfit.data.synthetic import Synthetic, paper_recipe
from psfit.losses import Squared
from psfit.problem.pose import pose
from psfit.search.refit import refit

sys.path.insert(0, str(Path(__file__).parents[1]))
from environment import environment

matplotlib.use("Agg")

# The estimators' default; the paper does not say what it used.
GAMMA = 1.0
NODES = (2, 4, 8)
Row = dict[str, object]


@dataclass(frozen=True)
class Setting:
    """Where an experiment runs, and where it writes."""

    device: str
    output: Path
    repeats: int

    @property
    def gpu(self) -> bool:
        return self.device == "cuda"

    def file(self, name: str, ending: str) -> Path:
        """``paper-<name>-<device>.<ending>`` in the output folder."""
        self.output.mkdir(parents=True, exist_ok=True)
        return self.output / f"paper-{name}-{'gpu' if self.gpu else 'cpu'}.{ending}"


def setting(
    description: str, add: Callable[[argparse.ArgumentParser], None] = lambda parser: None
) -> tuple[Setting, argparse.Namespace]:
    """The setting from the command line, and all of the options."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--repeats", type=int, default=5)
    add(parser)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no GPU here; use --device cpu")
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return Setting(device, options.output, options.repeats), options


def data(m: int, n: int, level: float, nodes: int, device: str) -> Synthetic:
    """The paper's regression data in float32."""
    return paper_recipe(m, n, level, nodes, dtype=torch.float32, device=device)


def source_of(A: Tensor, b: Tensor) -> Source:
    """All samples with weight one."""
    return Source(Dense(A), b, torch.ones_like(b[:, :1]))


def regression(kappa: int) -> Problem:
    """The paper's problem."""
    return Problem(Squared(), (kappa,), GAMMA, fit_intercept=False)


def timed(action: Callable[[], Result], setting: Setting, repeats: int | None = None) -> tuple[Result, float]:
    """The last result and the median seconds; on a GPU after one run to warm up."""
    repeats = repeats or setting.repeats
    taken = []
    for _ in range(repeats + setting.gpu):
        _wait(setting)
        began = time.perf_counter()
        result = action()
        _wait(setting)
        taken.append(time.perf_counter() - began)
    return result, statistics.median(taken[setting.gpu :])


def _wait(setting: Setting) -> None:
    if setting.gpu:
        torch.cuda.synchronize()


def fit(problem: Problem, source: Source, nodes: int, setting: Setting, solver: BiCADMM | None = None) -> Result:
    """A fit of data where they lie."""
    return solve(problem, source, solver or BiCADMM(), GridSpec(nodes=nodes, device=setting.device))


def objective_at(problem: Problem, source: Source, truth: Tensor, device: str) -> float:
    """The objective of the best coefficients on the true support."""
    inst = pose(problem, source, GridSpec(device=device).build(torch.device(device)))
    chosen = inst.items.pack(truth)[0] != 0
    return refit(inst, 0, chosen, truth.double()).value


def recovered(result: Result, truth: Tensor) -> float:
    """The share of true coefficients that were found."""
    true = truth.cpu().numpy() != 0
    return float(((result.coef != 0) & true).sum() / true.sum())


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """All numbers, each row with the environment they were measured in."""
    where = environment()
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *where])
        writer.writeheader()
        writer.writerows(row | where for row in rows)
    print(path)


def write_page(title: str, lines: Sequence[str], path: Path) -> None:
    """A page with its environment in the last line."""
    run_on = "Run on: " + ", ".join(f"{key} {value}" for key, value in environment().items()) + "."
    path.write_text("\n".join([f"# {title}", "", *lines, "", run_on, ""]))
    print(path)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of a table."""
    body = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body]
