"""Runs on real ranks: what they send, how long an iteration takes, and what the machine under them can do.

``torchrun --standalone --nproc-per-node 4 benchmarks/scaling/ranks.py CASES`` takes a JSON list of cases and prints a
JSON list of what rank 0 found. `run.py` starts it, and calls `measure` in its own process, too.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from statistics import median

import torch
from model import Shape
from torch import Tensor

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.bicadmm import PRESSURES
from psfit.comm import Grid
from psfit.data import DesignMatrix, Spread
from psfit.data.synthetic import paper_recipe
from psfit.instance import pose
from psfit.iterate import iterate
from psfit.local import FeatureSplit, Subproblem
from psfit.local.feature_split import FeatureSplitState
from psfit.losses import Logistic, Squared

# No residual gets this small, so a run ends at its last iteration.
NEVER = 1e-15
SHORT, LONG = 10, 20
TIMED = 60
# Numbers in the two messages that calibrate an all-reduce.
SMALL, LARGE = 16, 100_000


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
        state, status, history = iterate(solver, setup, state, time.perf_counter())
        if state.iteration != max_iter:
            raise RuntimeError(f"{self.case} ended with {status.name} after {state.iteration} of {max_iter} iterations")
        seconds = [later.seconds - former.seconds for former, later in zip(history, history[1:], strict=False)]
        return seconds, ready - start, self.sent - ready


def _matrix(A: Tensor, grid: Grid, intercept: bool) -> DesignMatrix:
    """This rank's columns of its nodes' rows."""
    p = A.shape[1]
    if grid.blocks.comm.size == 1:
        return Dense(A)
    columns = grid.columns(p + intercept)
    at = slice(min(columns.start, p), min(columns.stop, p))
    return Spread(Dense(A[:, at].contiguous()), at, p, grid.blocks)


def count(case: Case) -> dict:
    """Reductions, numbers and bytes of the set-up, and of one iteration as the difference of two runs."""
    run = Run(case)
    _, set_up, short = run.loop(SHORT)
    _, _, long = run.loop(LONG)
    each = (long - short) / (LONG - SHORT)
    return {"set_up": set_up.tolist(), "iteration": each.tolist(), **run.facts}


def fit(case: Case) -> dict:
    """What a whole fit with all its defaults sends, proof included."""
    run = Run(case)
    start = run.sent
    result = solve(run.problem, run.source, BiCADMM(effort=case.effort), run.grid)
    return {"sent": (run.sent - start).tolist(), "n_iter": result.n_iter, **run.facts}


def measure(case: Case) -> dict:
    """Seconds of an iteration, and of the parts that the model puts together, all on this rank's share of the work.

    `rest` is the same loop with two features, in a process of its own: what does not depend on the features.
    """
    run = Run(case)
    shape, world = run.shape, run.grid.world
    seconds = median(run.loop(TIMED)[0])
    world.all_reduce(torch.zeros(1))
    product = clock(products(shape))
    world.all_reduce(torch.zeros(1))
    small, large = (clock(lambda size=size: world.all_reduce(torch.zeros(size)), 50) for size in (SMALL, LARGE))
    bare = Run(replace(case, nodes=shape.here, features=2, backend="serial"))
    rest = median(bare.loop(TIMED)[0])
    return {
        "seconds": seconds,
        "product": product,
        "latency": small if world.size > 1 else 0.0,
        "per_byte": (large - small) / (4 * (LARGE - SMALL)) if world.size > 1 else 0.0,
        "rest": rest,
        **run.facts,
    }


def products(s: Shape) -> Callable[[], object]:
    """The local step's products on numbers without meaning, in the same shapes and the same order."""
    b, c = int(s.block), s.outputs
    inverse, rhs = torch.rand(s.here, b, b, dtype=torch.float64), torch.rand(s.here, b, c, dtype=torch.float64)
    if not s.inner:
        return lambda: inverse @ rhs
    A, R = torch.rand(s.here, s.rows, b, dtype=torch.float64), torch.rand(s.here, s.rows, c, dtype=torch.float64)

    def inner_steps() -> None:
        for _ in range(int(s.inner)):
            for _ in range(s.blocks // s.across):
                pulls = [A[i].T @ R[i] for i in range(s.here)]
                x = inverse @ torch.stack(pulls)
                for i in range(s.here):
                    A[i] @ x[i]

    return inner_steps


def clock(work: Callable[[], object], times: int = 15) -> float:
    """The median time of a call, in seconds, after a first one that does not count."""
    work()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return median(taken)


def main() -> None:
    """Run the cases given on the command line, each with the function it names."""
    torch.set_num_threads(1)
    known = {"count": count, "fit": fit, "measure": measure}
    found = [known[name](Case(**case)) for name, case in json.loads(sys.argv[1])]
    if int(torch.distributed.get_rank() if torch.distributed.is_initialized() else 0) == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
