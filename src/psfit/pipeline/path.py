"""Paths: many limits kappa and gammas at little more than the cost of one fit.

The data are posed once, and all limits and gammas share the Gram matrices and factors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import Grid, GridSpec
from psfit.common.arguments import describe, integer, several
from psfit.common.progress import Callback
from psfit.common.signals import Signals
from psfit.common.status import CUT_SHORT, Status
from psfit.data import Source
from psfit.data.raw_form import RawForm
from psfit.kernels.cpu.threads import limit_threads
from psfit.pipeline.checks import require_finite
from psfit.pipeline.run import run
from psfit.pipeline.task import Task, agree_on_task
from psfit.problem import NO_CONSTRAINTS, Constraints, Items, Problem
from psfit.problem.constrained_domain import count_extra, most_counted, require_feasible
from psfit.problem.instance import Instance

KAPPAS = several("a sequence of integers of at least 1", integer(1, floats=True))


@dataclass(frozen=True)
class Points:
    """A path for one gamma, an entry for each limit: coefficients ``(K, p, c)`` and intercepts ``(K, c)`` in the
    user's units, objectives and lower bounds ``(K,)`` summed over independent problems; and why the iteration or the
    search ended early, if it did.
    """

    coefs: np.ndarray
    intercepts: np.ndarray
    objectives: np.ndarray
    lower_bounds: np.ndarray
    ended: Status | None


@torch.inference_mode()
def solve_path(
    problem: Problem,
    source: Source,
    kappas: Iterable[int],
    gammas: Sequence[float],
    solver: BiCADMM | None = None,
    grid: Grid | GridSpec | None = None,
    certify: bool = True,
    brief: bool = False,
    raw: RawForm | None = None,
    callback: Callback | None = None,
    keyboard: bool = False,
    received: Signals | None = None,
) -> list[Points]:
    """Paths over rising `kappas`, one for each of `gammas`; the `kappa` and `gamma` of the problem do not matter.

    With several targets (independent problems) each limit holds for each of them. A `brief` path ends at supports that
    no swap improves, without restarts or bounds. A known `raw` form of the source saves a pass. `callback` is called
    with a `Progress`. If it returns True, or the time limit is reached, or at Ctrl-C with `keyboard`, the best supports
    so far are refitted and returned. Signals are noted in `received`, if it is given. Paths have no exact mode and no
    checkpoints.
    """
    limits = check_kappas(kappas, problem.items(source.matrix.shape[1], source.outputs), problem.constraints)
    task = agree_on_task(
        widen(problem, source, limits),
        source,
        solver,
        grid,
        certify and not brief,
        brief,
        kappas=limits,
        gammas=list(gammas),
    )
    return run_path(task, limits, gammas, raw, callback, keyboard, received)


def widen(problem: Problem, source: Source, limits: Sequence[int]) -> Problem:
    """The problem with the last of the rising limits."""
    items = problem.items(source.matrix.shape[1], source.outputs)
    return replace(problem, kappa=(limits[-1],) * items.problems)


def run_path(
    task: Task,
    limits: Sequence[int],
    gammas: Sequence[float],
    raw: RawForm | None = None,
    callback: Callback | None = None,
    keyboard: bool = False,
    received: Signals | None = None,
) -> list[Points]:
    """The paths of a task that all ranks have agreed on; its problem has the last of the limits.

    Signals are noted in `received`, if it is given; those that came before end the paths, too.
    """
    task = replace(task, problem=replace(task.problem, gamma=gammas[0]))
    watch = task.start_watch(callback, keyboard=keyboard, received=received)
    with limit_threads(task.solver.n_jobs), watch.catch_signals():
        inst = task.pose(watch, raw)
        with task.end_other_ranks_on_error():
            paths = []
            for number, gamma in enumerate(gammas, start=1):
                watch.reporter.report(done=0, total=len(limits), gamma=number, gammas=len(gammas))
                paths.append(_solve_gamma(inst.at_gamma(gamma), limits, task))
            return paths


def check_kappas(kappas: Iterable[int], items: Items, constraints: Constraints = NO_CONSTRAINTS) -> tuple[int, ...]:
    """The limits, rising; or an error that says what is wrong with them."""
    rising = tuple(sorted(set(KAPPAS("kappas", kappas))))
    most = most_counted(items, constraints)
    if rising[-1] > most:
        raise ValueError(
            f"kappas={describe(list(rising))} must lie between 1 and {most}, the most that kappa can count with "
            f"n_features={items.features}" + ("" if constraints.is_empty else " and these groups and constraints")
        )
    require_feasible(items, rising[0] + count_extra(items, constraints), constraints)
    return rising


def _solve_gamma(inst: Instance, limits: Sequence[int], task: Task) -> Points:
    """All limits for one gamma."""
    outcome = run(inst, limits, task)
    inst.watch.reporter.report(done=len(limits), total=len(limits))
    answers = outcome.answers
    users = [inst.to_user(Z) for Z in answers.Z]
    coefs, intercepts = (torch.stack(parts) for parts in zip(*users, strict=True))
    # Objectives of a brief path are not exact, and they are not used.
    require_finite(coefs, intercepts, *([] if task.brief else [answers.objectives]))
    ended = inst.watch.ended
    if ended is None and outcome.status in CUT_SHORT:
        ended = outcome.status
    return Points(
        coefs=coefs.cpu().numpy(),
        intercepts=intercepts.cpu().numpy(),
        objectives=answers.objectives.sum(dim=1).numpy(),
        lower_bounds=outcome.proofs.lower_bounds.sum(axis=1),
        ended=ended,
    )
