"""`solve`: a problem, the data, a solver and a grid in; a `Result` out."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from psfit.bicadmm import BiCADMM, Setup, State
from psfit.certificate import Progress
from psfit.comm import Grid, GridSpec
from psfit.data import Source
from psfit.instance import pose
from psfit.polish import polish
from psfit.problem import Problem
from psfit.proofs import Proofs, certificates, search
from psfit.result import Record, Result, Status

# On a GPU reading a number waits for the device, so the stopping test is not made at every iteration there.
CHECK_EVERY = {"cpu": 1, "cuda": 10}


@torch.inference_mode()
def solve(
    problem: Problem,
    source: Source,
    solver: BiCADMM | None = None,
    grid: Grid | GridSpec | None = None,
    start: tuple[Tensor, Tensor] | None = None,
    certify: bool = True,
    progress: Callable[[Progress], None] | None = None,
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
        Nodes and blocks; one of each by default. The data must already be where and what it asks for.
    start : tuple of Tensor, optional
        Coefficients ``(p, c)`` and intercepts ``(c,)`` to start from.
    certify : bool, default=True
        Prove a lower bound on the objective of every support; exact mode does so anyway.
    progress : callable, optional
        Hears of the `Progress` of exact mode.
    """
    began = time.perf_counter()
    solver = solver or BiCADMM()
    grid = _built(grid, source)
    inst = pose(problem, source, grid)
    setup, state = solver.init(inst, None if start is None else inst.from_user(*start))
    state, status, history = _iterate(solver, setup, state, began)
    answer = polish(setup.instance, state.bilinear.z, setup.copies, solver.thoroughness)
    proved = Proofs.none(len(problem.kappa))

    def late() -> bool:
        return solver.time_limit is not None and time.perf_counter() - began > solver.time_limit

    if solver.exact:
        answer, proved, status = search(inst, answer, solver.gap_tol, late, progress)
    elif certify:
        proved = certificates(inst, answer, late)
    coef, intercept = inst.to_user(answer.Z)
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
        local=setup.solver.name,
        status=status,
        n_iter=state.iteration,
        seconds=time.perf_counter() - began,
        certain_in=proved.certain_in,
        certain_out=proved.certain_out,
        tree_nodes=proved.tree_nodes,
        residual=answer.residual,
        penalties={"rho_c": setup.rho_c, "rho_b": float(setup.rho_b[0]), "rho_l": setup.sub.rho_l},
        history=history,
    )


def _built(grid: Grid | GridSpec | None, source: Source) -> Grid:
    """The grid itself, checked against where the data lie."""
    if not isinstance(grid, Grid):
        grid = (grid or GridSpec()).build(source.matrix.device)
    if grid.device.type != source.matrix.device.type:
        raise ValueError(
            f"device={str(grid.device)!r}, but the data lie on {str(source.matrix.device)!r}; move them first"
        )
    if grid.dtype not in (None, source.matrix.dtype):
        raise ValueError(f"dtype={grid.dtype}, but the data are {source.matrix.dtype}; convert them first")
    return grid


def _iterate(solver: BiCADMM, setup: Setup, state: State, began: float) -> tuple[State, Status, tuple[Record, ...]]:
    """Step until the status says so; a diverged run falls back to its last finite point."""
    rows: list[tuple[Tensor, float, float | None]] = []
    every = CHECK_EVERY[setup.instance.source.matrix.device.type]
    status, finite = Status.RUNNING, state
    while status is Status.RUNNING:
        for _ in range(min(every, solver.max_iter - state.iteration)):
            state = solver.step(setup, state)
            objective = _objective(setup, state) if solver.record_objective else None
            rows.append((state.measured, time.perf_counter() - began, objective))
        status = solver.status(state)
        if status is Status.DIVERGED or not bool(state.bilinear.z.isfinite().all()):
            state, status = finite, Status.DIVERGED
        finite = state
        if status is Status.RUNNING and solver.time_limit is not None and rows[-1][1] > solver.time_limit:
            status = Status.TIME_LIMIT
    return state, status, _history(rows, solver.measure(setup, state))


def _objective(setup: Setup, state: State) -> float:
    """The objective at z of all problems, without their copies under other penalties."""
    objectives = setup.instance.objective(state.bilinear.z)
    return float(objectives[: len(objectives) // setup.copies].sum())


def _history(rows: list[tuple[Tensor, float, float | None]], last: Tensor) -> tuple[Record, ...]:
    """A record an iteration; each measurement describes the iteration before its own."""
    measured = torch.stack([row[0] for row in rows[1:]] + [last]).amax(dim=2).tolist()
    return tuple(
        Record(
            iteration=k + 1,
            primal=values[0],
            dual=values[1],
            bilinear=values[2],
            nonzeros=int(values[6]) if values[6] == values[6] else 0,
            seconds=rows[k][1],
            objective=rows[k][2],
        )
        for k, values in enumerate(measured)
    )
