"""`solve`: a problem, the data, a solver and a grid in; a `Result` out."""

import numpy as np
import torch
from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.checkpoint import open_store
from psfit.comm import Grid, GridSpec
from psfit.common.progress import Callback
from psfit.data import Source
from psfit.data.raw_form import RawForm
from psfit.kernels.cpu.threads import limit_threads
from psfit.pipeline.checks import require_finite, require_same_answers
from psfit.pipeline.result import Result
from psfit.pipeline.run import Outcome, run
from psfit.pipeline.task import agree_on_task
from psfit.problem import Problem
from psfit.problem.constraint_words import describe_constraints, describe_count
from psfit.problem.instance import Instance


@torch.inference_mode()
def solve(
    problem: Problem,
    source: Source,
    solver: BiCADMM | None = None,
    grid: Grid | GridSpec | None = None,
    start: tuple[Tensor, Tensor] | None = None,
    certify: bool = True,
    callback: Callback | None = None,
    raw: RawForm | None = None,
    keyboard: bool = False,
) -> Result:
    """Fit a sparse model: Bi-cADMM finds a support, swaps improve it, an exact refit follows, and a bound proves it.

    Parameters
    ----------
    problem : Problem
        Loss, limit on nonzeros, ridge.
    source : Source
        This rank's samples.
    solver : BiCADMM, optional
        Configuration; the default suits all scales.
    grid : Grid or GridSpec, optional
        Nodes and blocks, and their ranks; by default one of each in this process, also under torchrun and mpirun. The
        data must already have its device and precision.
    start : tuple of Tensor, optional
        Coefficients ``(p, c)`` and intercepts ``(c,)`` to start from.
    certify : bool, default=True
        Prove a lower bound on the objective of every support; exact mode does so anyway.
    callback : callable, optional
        Called with a `Progress` from time to time, on its own rank; if it returns True, the fit ends with the best
        answer so far.
    raw : RawForm, optional
        The quadratic form of the samples, if it is known already.
    keyboard : bool, default=False
        Whether Ctrl-C ends the fit with the best answer so far. With an `interruptible` solver, SIGTERM does so, too.
    """
    exact = solver is not None and solver.exact
    task = agree_on_task(problem, source, solver, grid, certify, exact=exact, start=start is not None)
    watch = task.start_watch(callback, len(problem.kappa), keyboard)
    checkpoints = open_store(task.solver.checkpoint, task.solver.checkpoint_every, source, start, task.grid)
    with limit_threads(task.solver.n_jobs), watch.catch_signals(), checkpoints as store:
        inst = task.pose(watch, raw)
        with task.end_other_ranks_on_error():
            return _describe(inst, run(inst, None, task, start, store))


def _describe(inst: Instance, outcome: Outcome) -> Result:
    """The result; refused if its numbers are not finite or differ between ranks."""
    answers, proofs, problem, grid = outcome.answers, outcome.proofs, inst.problem, inst.grid
    coef, intercept = inst.to_user(answers.Z[0])
    require_finite(coef, intercept, answers.objectives)
    require_same_answers(grid, coef, answers.objectives)
    return Result(
        coef=coef.cpu().numpy(),
        intercept=intercept.cpu().numpy(),
        objectives=answers.objectives[0].numpy(),
        lower_bounds=proofs.lower_bounds[0],
        kappa=tuple(kappa - inst.extra for kappa in problem.kappa),
        loss=problem.loss.name,
        sparsity=problem.sparsity,
        gamma=problem.gamma,
        standardize=problem.standardize,
        samples=inst.samples,
        nodes=grid.nodes.size,
        blocks=grid.blocks.size,
        local=answers.iteration.local,
        status=outcome.status,
        n_iter=len(answers.iteration.history),
        seconds=inst.watch.seconds,
        certain_in=proofs.certain_in,
        certain_out=proofs.certain_out,
        tree_nodes=proofs.tree_nodes,
        residual=answers.residual,
        penalties=answers.iteration.penalties,
        candidates=answers.candidates,
        passes=inst.source.matrix.rows_read / inst.source.matrix.shape[0],
        history=answers.iteration.history,
        starts=answers.contributions,
        constraints=describe_constraints(problem.constraints),
        counted=describe_count(problem.constraints),
        spreads=_find_spreads(inst, coef),
    )


def _find_spreads(inst: Instance, coef: Tensor) -> np.ndarray | None:
    """The standard deviations of the features that are used; None where columns were divided by something else."""
    problem = inst.problem
    if not problem.fit_intercept or (inst.items.in_groups and not problem.standardize):
        return None
    scale = inst.coordinates.scale[(coef != 0).any(dim=1)]
    return np.asarray(torch.where(scale.isinf(), 0.0, scale).cpu().numpy())
