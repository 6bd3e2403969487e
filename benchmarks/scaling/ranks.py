"""Runs on real ranks: what they send, how long an iteration takes, and what the machine under them can do.

``torchrun --standalone --nproc-per-node 4 benchmarks/scaling/ranks.py CASES`` takes a JSON list of cases and prints a
JSON list of what rank 0 found. `run.py` starts it, and calls `measure` in its own process, too.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import mean

import torch
from model import Shape
from torch import Tensor

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.admm.bilinear import bilinear_start, bilinear_step
from psfit.admm.local import FeatureSplit, Subproblem
from psfit.admm.local.feature_split import FeatureSplitState
from psfit.admm.loop import iterate
from psfit.admm.setup import PRESSURES
from psfit.comm import Grid
from psfit.data import BlockColumns, DesignMatrix
from psfit.data.synthetic import paper_recipe
from psfit.losses import Logistic, Squared
from psfit.problem import OutputItems
from psfit.problem.pose import pose

# No residual gets this small, so a run ends at its last iteration.
NEVER = 1e-15
SHORT, LONG = 10, 20
TIMED = 60
# Seconds over which a part is timed.
ENOUGH = 0.3
# Numbers in the two messages that calibrate an all-reduce.
SMALL, LARGE = 16, 300_000


@dataclass(frozen=True)
class Steady(FeatureSplit):
    """The feature split without its stopping test, so that the number of inner steps is known: `max_inner`."""

    def prox(self, sub: Subproblem, state: FeatureSplitState, v: Tensor, tol: Tensor | float) -> FeatureSplitState:
        return super().prox(sub, state, v, 0.0)


@dataclass(frozen=True)
class Case:
    """A fit on generated data with `rows` samples on each node."""

    loss: str
    nodes: int
    rows: int
    features: int
    effort: str = "medium"
    blocks: int = 1
    intercept: bool = False
    backend: str = "auto"


class Run:
    """A case on this rank."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.grid = GridSpec(case.nodes, case.blocks, device="cpu", backend=case.backend).build()
        data = paper_recipe(case.rows * case.nodes, case.features, 0.8, case.nodes)
        hosted = self.grid.nodes.hosted
        here = slice(hosted.start * case.rows, hosted.stop * case.rows)
        A, b = data.A[here], data.b[here]
        squared = case.loss == "squared"
        target = b if squared else torch.where(b > 0, 1.0, -1.0).to(b)
        self.source = Source(_matrix(A, self.grid, case.intercept), target, torch.ones_like(b))
        kappa = max(1, case.features // 5)
        self.problem = Problem(Squared() if squared else Logistic(), (kappa,), fit_intercept=case.intercept)
        self.local = None if squared else Steady()

    @property
    def shape(self) -> Shape:
        """The fit as the model sees it."""
        case, grid = self.case, self.grid
        copies = 1 if case.effort == "low" else len(PRESSURES)
        return Shape(
            rows=case.rows,
            columns=case.features + case.intercept,
            outputs=copies,
            copies=copies,
            intercept=case.intercept,
            here=len(grid.nodes.hosted),
            blocks=case.blocks,
            across=grid.blocks.comm.size,
            down=grid.nodes.comm.size,
            inner=0 if self.local is None else self.local.max_inner,
        )

    @property
    @torch.inference_mode()
    def factor_by_rows(self) -> bool:
        """Whether the solver's inverses lie in memory row by row; a batched product depends on it."""
        solver = BiCADMM(effort=self.case.effort, local=self.local)
        local = solver.init(pose(self.problem, self.source, self.grid))[1].local
        factor = local.factor if self.local is None else local.blocks[0].factor
        return factor.inverse.is_contiguous()

    @property
    def facts(self) -> dict:
        """What the reader of a measurement must know of the fit."""
        return {"shape": asdict(self.shape), "ranks": self.grid.world.size}

    @property
    def sent(self) -> Tensor:
        """Reductions, numbers and bytes that this rank has handed over so far."""
        traffic = self.grid.world.traffic
        return torch.tensor([traffic.reductions, traffic.numbers, traffic.bytes], dtype=torch.float64)

    @torch.inference_mode()
    def loop(self, max_iter: int) -> tuple[list[float], Tensor, Tensor]:
        """Set-up and iterations alone: seconds of every iteration, what the set-up sent, what the iterations sent."""
        solver = BiCADMM(tol=NEVER, max_iter=max_iter, effort=self.case.effort, local=self.local)
        start = self.sent
        setup, state = solver.init(pose(self.problem, self.source, self.grid))
        ready = self.sent
        _, _, history = iterate(solver, setup, state)
        seconds = [later.seconds - former.seconds for former, later in pairwise(history)]
        return seconds, ready - start, self.sent - ready


def _matrix(A: Tensor, grid: Grid, intercept: bool) -> DesignMatrix:
    """The columns of the blocks hosted here."""
    p = A.shape[1]
    if grid.blocks.comm.size == 1:
        return Dense(A)
    columns = grid.columns(p + intercept)
    at = slice(min(columns.start, p), min(columns.stop, p))
    return BlockColumns(Dense(A[:, at].contiguous()), at, p, grid.blocks)


def count(case: Case) -> dict:
    """Reductions, numbers and bytes of the set-up, and of one iteration as the difference of two runs."""
    run = Run(case)
    _, set_up, short = run.loop(SHORT)
    seconds, _, long = run.loop(LONG)
    if len(seconds) != LONG - 1:
        raise RuntimeError(f"{case} ended before its last iteration; nothing can be counted")
    each = (long - short) / (LONG - SHORT)
    return {"set_up": set_up.tolist(), "iteration": each.tolist(), **run.facts}


def fit(case: Case) -> dict:
    """What a whole fit with all its defaults sends, without its proof and with it."""
    run, sent = Run(case), []
    for certify in (False, True):
        start = run.sent
        result = solve(run.problem, run.source, BiCADMM(), run.grid, certify=certify)
        sent.append((run.sent - start).tolist())
    return {"unproved": sent[0], "proved": sent[1], "n_iter": result.n_iter, **run.facts}


def measure(case: Case) -> dict:
    """Seconds of an iteration, and of the parts that the model puts together, on this rank's share of the work."""
    run = Run(case)
    world = run.grid.world
    seconds = mean(run.loop(TIMED)[0])
    messages = [torch.zeros(size, dtype=torch.float64) for size in (SMALL, LARGE)]
    small, large = (clock(lambda message=message: world.all_reduce(message), 50) for message in messages)
    found = {"seconds": seconds, "latency": 0.0, "per_byte": 0.0, **parts(case.loss, run.shape), **run.facts}
    if world.size > 1:
        found |= {"latency": small, "per_byte": (large - small) / (8 * (LARGE - SMALL))}
    return found


def parts(loss: str, shape: Shape) -> dict:
    """Seconds of the local step's products, of the global step, and of the rest; each measured by itself.

    The rest is the loop with two features less its global step: what does not depend on the features. All ranks of a
    run come here together, so the parts are measured under the load that the run has.
    """
    steps = max(1, int(shape.inner))
    bare = Run(Case(loss, shape.here, shape.rows, 2, "low" if shape.copies == 1 else "medium", backend="serial"))
    lies = bare.factor_by_rows
    rates = {by_rows: steps * clock(products(shape, by_rows)) for by_rows in (lies, not lies)}
    return {
        "product": rates[lies],
        "other_layout": rates[not lies],
        "by_rows": lies,
        "global": clock(global_step(shape.columns, shape.outputs)),
        "rest": mean(bare.loop(TIMED)[0]) - clock(global_step(2, shape.outputs)),
    }


def products(s: Shape, by_rows: bool) -> Callable[[], object]:
    """The products of one local step, or inner step, on numbers without meaning: same shapes, order and layout."""
    b, c = int(s.block), s.outputs
    inverse, rhs = torch.rand(s.here, b, b, dtype=torch.float64), torch.rand(s.here, b, c, dtype=torch.float64)
    inverse = inverse if by_rows else inverse.mT
    if not s.inner:
        return lambda: inverse @ rhs
    A, R = torch.rand(s.here, s.rows, b, dtype=torch.float64), torch.rand(s.here, s.rows, c, dtype=torch.float64)

    def inner_step() -> None:
        for _ in range(s.blocks // s.across):
            x = inverse @ torch.stack([A[i].T @ R[i] for i in range(s.here)])
            for i in range(s.here):
                A[i] @ x[i]

    return inner_step


def global_step(columns: int, outputs: int) -> Callable[[], object]:
    """The data-free step for so many coefficients."""
    items = OutputItems(columns, outputs, 0)
    kappa = torch.full((outputs, 1), max(1, columns // 5))
    mean = torch.randn(columns, outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    state, ratio = bilinear_start(mean, kappa, items), torch.full((outputs, 1), 0.1, dtype=torch.float64)
    return lambda: bilinear_step(state, mean, kappa, ratio, items)


def clock(work: Callable[[], object], times: int = 0) -> float:
    """The mean time of a call, in seconds, over so many calls or over a third of a second; the first does not count.

    The mean and not the median: ranks that share a core wait for each other in few long pauses.
    """
    work()
    done, began = 0, time.perf_counter()
    while done < (times or 3) or (not times and time.perf_counter() - began < ENOUGH):
        work()
        done += 1
    return (time.perf_counter() - began) / done


def main() -> None:
    """Run the cases given on the command line, each with the function it names."""
    torch.set_num_threads(1)
    known = {"count": count, "fit": fit, "measure": measure}
    found = [known[name](Case(**case)) for name, case in json.loads(sys.argv[1])]
    if int(torch.distributed.get_rank() if torch.distributed.is_initialized() else 0) == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
