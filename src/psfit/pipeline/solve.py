"""`solve`: a problem, the data, a solver and a grid in; a `Result` out."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.checkpoint import CheckpointError, Store, open_store
from psfit.admm.loop import StoppedError
from psfit.comm import Grid, GridSpec, RemoteError, build_grid
from psfit.comm.watch import Callback, Watch
from psfit.common.signals import choose_signals
from psfit.common.status import Status
from psfit.data import Source
from psfit.data.raw_form import RawForm
from psfit.pipeline.candidates import fit_candidates
from psfit.pipeline.fit import fit
from psfit.pipeline.proofs import Certificates, Proofs, search
from psfit.pipeline.result import Result
from psfit.problem import Problem
from psfit.problem.instance import Instance
from psfit.problem.pose import pose

T = TypeVar("T")


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
    """Fit a sparse model: Bi-cADMM finds the support, the polish improves it and refits it exactly, a bound proves it.

    Parameters
    ----------
    problem : Problem
        Loss, limit on nonzeros, ridge.
    source : Source
        This rank's samples.
    solver : BiCADMM, optional
        Configuration; the default suits all scales.
    grid : Grid or GridSpec, optional
        Nodes and blocks, and the ranks they lie on; by default one of each in this process, also under torchrun and
        mpirun. The data must already be where and what it asks for.
    start : tuple of Tensor, optional
        Coefficients ``(p, c)`` and intercepts ``(c,)`` to start from.
    certify : bool, default=True
        Prove a lower bound on the objective of every support; exact mode does so anyway.
    callback : callable, optional
        Hears of `Progress` now and then, on its own rank; if it returns True, the fit ends with the best answer so far.
    raw : RawForm, optional
        The quadratic form of the samples, where it is known already.
    keyboard : bool, default=False
        Whether Ctrl-C ends the fit with the best answer so far; a solver that is `interruptible` hears SIGTERM, too.
    """
    solver = solver or BiCADMM()
    grid = prepared(problem, source, solver, grid, certify=certify, start=start is not None)
    watch = Watch(grid, solver.time_limit, callback, len(problem.kappa), choose_signals(solver.interruptible, keyboard))
    kept = open_store(solver.checkpoint, solver.checkpoint_every, source, start, grid)
    with watch.catch_signals(), kept as store:
        exact = solver.exact or solver.precision == "highest"
        inst = pose(problem, source, grid, exact, raw, watch)
        return guarded(grid, lambda: _solved(inst, solver, start, certify, store))


def prepared(problem: Problem, source: Source, solver: BiCADMM, grid: Grid | GridSpec | None, **others: object) -> Grid:
    """The grid itself, once all ranks have been found to ask for the same, `others` included."""
    grid = _built(grid, source)
    _require_same_settings(problem, source, solver, grid, others)
    return grid


def guarded(grid: Grid, action: Callable[[], T]) -> T:
    """The result of an action of all ranks; an exception that may be this rank's alone ends the others, too."""
    try:
        return action()
    except (RemoteError, CheckpointError, StoppedError):
        raise
    except Exception as error:
        grid.world.abort(error)
        raise


def _solved(
    inst: Instance, solver: BiCADMM, start: tuple[Tensor, Tensor] | None, certify: bool, store: Store | None
) -> Result:
    """Iteration, polish and proof; an exception from here may be this rank's alone."""
    grid, problem, watch = inst.grid, inst.problem, inst.watch
    begin = None if start is None else inst.coordinates.from_user(*start).to(inst.source.matrix.dtype)
    certificates = Certificates(inst, solver.certified_gap) if certify and not solver.exact else None
    if inst.costs.uses_candidates:
        fitted = fit_candidates(inst, solver, begin, store)
    else:
        fitted = fit(inst, solver, begin, None, None if certificates is None else certificates.settled, store)
    answer, status = fitted.answer, fitted.status
    proved = Proofs.none(len(problem.kappa))
    watch.begin("the proof")
    if solver.exact:
        answer, proved, status = search(inst, answer, solver.gap_tol)
    elif certificates is not None:
        proved = certificates.of(answer)
    if watch.ended is not None and status is not Status.PROVED:
        status = watch.ended
    coef, intercept = inst.coordinates.to_user(answer.Z)
    require_finite(coef, intercept, answer.objectives)
    if not grid.same(torch.stack([coef.sum(), coef.square().sum(), answer.objectives.sum().to(coef)])):
        raise RuntimeError(
            "the ranks ended with different answers; run all of them on the same kind of processor, with the same "
            "number of threads and the same version of torch"
        )
    return Result(
        coef=coef.cpu().numpy(),
        intercept=intercept.cpu().numpy(),
        objectives=answer.objectives.cpu().numpy(),
        lower_bounds=proved.lower_bounds,
        kappa=problem.kappa,
        loss=problem.loss.name,
        sparsity=problem.sparsity,
        samples=inst.samples,
        nodes=grid.nodes.size,
        blocks=grid.blocks.size,
        local=fitted.local,
        status=status,
        n_iter=len(fitted.history),
        seconds=watch.seconds,
        certain_in=proved.certain_in,
        certain_out=proved.certain_out,
        tree_nodes=proved.tree_nodes,
        residual=answer.residual,
        penalties=fitted.penalties,
        candidates=fitted.candidates,
        passes=inst.source.matrix.rows_read / inst.source.matrix.shape[0],
        history=fitted.history,
    )


def require_finite(*numbers: Tensor) -> None:
    """Refuse an answer that is not made of numbers."""
    if not all(bool(part.isfinite().all()) for part in numbers):
        raise FloatingPointError(
            "the fit left the range of floating-point numbers: the loss or the ridge of some answer is infinite or "
            "undefined. Rescale X, y or sample_weight, or use a gamma of a more usual size"
        )


def _built(grid: Grid | GridSpec | None, source: Source) -> Grid:
    """The grid itself, checked against where the data lie."""
    grid = build_grid(grid, source.matrix.device)
    if grid.device.type != source.matrix.device.type:
        raise ValueError(
            f"device={str(grid.device)!r}, but the data lie on {str(source.matrix.device)!r}; move them first"
        )
    if grid.dtype not in (None, source.matrix.dtype):
        raise ValueError(f"dtype={grid.dtype}, but the data are {source.matrix.dtype}; convert them first")
    return grid


def _require_same_settings(
    problem: Problem, source: Source, solver: BiCADMM, grid: Grid, others: dict[str, object]
) -> None:
    """Ranks that were asked for different things would wait for each other for ever."""
    bare = replace(solver, checkpoint=None, local=None, interruptible=False)
    grid.require_alike(
        features=source.matrix.shape[1],
        outputs=source.outputs,
        dtype=str(source.matrix.dtype),
        nodes=grid.nodes.size,
        blocks=grid.blocks.size,
        kappa=problem.kappa,
        gamma=problem.gamma,
        loss=(problem.loss.name, vars(problem.loss)),
        sparsity=problem.sparsity,
        fit_intercept=problem.fit_intercept,
        standardize=problem.standardize,
        solver=bare,
        local=getattr(solver.local, "name", solver.local),
        checkpoint=solver.checkpoint is not None,
        **others,
    )
