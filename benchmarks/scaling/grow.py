"""How many iterations a fit takes as the same samples are dealt to more and more nodes, all in one process."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, product
from multiprocessing import get_context

import numpy as np
import torch

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.data.synthetic import paper_recipe
from psfit.losses import Logistic, Squared
from psfit.pipeline.result import Result

NODES = (1, 4, 16, 64, 256)
# Beyond the others, on even nodes alone: a number to go with the extrapolated time of an iteration.
MOST = 1000
EFFORTS = ("medium", "low")
SIZES = {"squared": (20_000, 200), "logistic": (8_000, 80)}
GAMMA = 1.0
# Every fourth node has so many times the rows of the others.
SKEW, EVERY = 10, 4


@dataclass(frozen=True)
class Job:
    """One fit.

    Parameters
    ----------
    deal : str
        "even"; "skewed", where some nodes have many more rows; "one class", where rows are sorted by label first.
    solver : str
        An effort; or "weak", which is effort "low" with rho_b a share of one node's rho_c and not of N rho_c, to see
        what that factor is for.
    """

    loss: str
    deal: str
    solver: str
    nodes: int

    @property
    def name(self) -> str:
        """What is the same for all numbers of nodes."""
        return f"{self.loss}, {self.deal}, {self.solver}"


@dataclass(frozen=True)
class Growth:
    """A job's outcome; the last two compare it with one node."""

    job: Job
    n_iter: int
    status: str
    seconds: float
    same: bool
    excess: float


def jobs(nodes: tuple[int, ...] = NODES, most: int = MOST) -> Iterator[Job]:
    """The slow ones first, so that processes side by side end at about the same time."""
    losses = ("logistic", "squared")
    deals = [
        ("logistic", "even"),
        ("logistic", "skewed"),
        ("logistic", "one class"),
        ("squared", "even"),
        ("squared", "skewed"),
    ]
    # Weak penalties take long on many nodes: one loss will do there.
    yield from (Job(loss, "even", "weak", N) for loss, N in product(losses, nodes) if loss == "squared" or N <= 64)
    yield from (Job(loss, "even", effort, most) for loss, effort in product(losses, EFFORTS))
    for N in sorted(nodes, reverse=True):
        yield from (Job(loss, deal, effort, N) for (loss, deal), effort in product(deals, EFFORTS))


def run(job: Job) -> Result:
    """Solve it without a proof."""
    torch.set_num_threads(1)
    rows, features = SIZES[job.loss]
    data = paper_recipe(rows, features, 0.8, 1)
    A, b, loss = data.A, data.b, Squared()
    if job.loss == "logistic":
        # Entries of about one, so that the data and not the ridge decide.
        A, b, loss = A * rows**0.5, torch.where(b > 0, 1.0, -1.0).to(b), Logistic()
    if job.deal == "one class":
        order = b[:, 0].argsort(stable=True)
        A, b = A[order], b[order]
    bounds = _skewed(rows, job.nodes) if job.deal == "skewed" and job.nodes > 1 else None
    source, problem = (
        Source(Dense(A), b, torch.ones_like(b), bounds),
        Problem(loss, (data.kappa,), GAMMA, fit_intercept=False),
    )
    grid = GridSpec(nodes=job.nodes, backend="serial", device="cpu")
    if job.solver != "weak":
        return solve(problem, source, BiCADMM(effort=job.solver), grid, certify=False)
    alone = Source(source.matrix, b, source.weight)
    first = solve(problem, alone, BiCADMM(effort="low", max_iter=1), GridSpec(device="cpu"), certify=False)
    weak = BiCADMM(effort="low", rho_b=first.penalties["rho_b"] / job.nodes)
    return solve(problem, source, weak, grid, certify=False)


def _skewed(rows: int, nodes: int) -> tuple[int, ...]:
    """Bounds where every fourth node is ten times as high."""
    shares = [SKEW if i % EVERY == 0 else 1 for i in range(nodes)]
    return (0, *(rows * part // sum(shares) for part in accumulate(shares)))


def growth(todo: list[Job], workers: int) -> list[Growth]:
    """All jobs, a few at a time; times are of busy processes and only say what was worth running."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        results = dict(zip(todo, pool.map(run, todo), strict=True))
    found = []
    for job in sorted(todo, key=lambda job: (job.name, job.nodes)):
        mine, alone = results[job], results[Job(job.loss, job.deal, job.solver, 1)]
        same = np.array_equal(mine.support, alone.support)
        excess = mine.objective / alone.objective - 1
        found.append(Growth(job, mine.n_iter, mine.status.name, mine.seconds, same, excess))
    return found
