"""The outer loop: make steps until the status says to stop, with checkpoints and signals."""

import signal
from contextlib import nullcontext
from dataclasses import replace

import torch

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.checkpoint import Checkpoint, Row, Store
from psfit.admm.record import Record
from psfit.admm.residuals import MEASURED
from psfit.admm.setup import Setup
from psfit.admm.state import State
from psfit.admm.steps import choose_steps
from psfit.common.status import Status

# Reading a number from a GPU waits for it, so the stopping test is not made at every iteration there.
CHECK_EVERY = {"cpu": 1, "cuda": 10}


class StoppedError(RuntimeError):
    """The run was asked to end before it had an answer; the message tells whether it can go on later.

    Every rank raises it. A program can use `rank` to print the message only once. `status` tells what ended the run.
    """

    def __init__(self, message: str, rank: int = 0, status: Status = Status.TERMINATED) -> None:
        super().__init__(message)
        self.rank, self.status = rank, status


def iterate(
    solver: BiCADMM, setup: Setup, state: State, store: Store | None = None
) -> tuple[State, Status, tuple[Record, ...]]:
    """The last state, why the run ended, and the history; a run that diverged returns its last finite state.

    With a store the run continues from a checkpoint in it, and writes its own.
    """
    keeper = None
    rows: list[Row] = []
    if store is not None:
        keeper = Checkpoint(store, solver, setup)
        state, rows = keeper.load(state)
    # A checkpoint can be continued later, so SIGTERM may end every run that has one.
    watch = setup.instance.watch
    with nullcontext() if keeper is None else watch.signals.catch(signal.SIGTERM):
        state, status = _loop(solver, setup, state, rows, keeper)
        # The signal may have come after the last exchange between the ranks.
        if keeper is not None and watch.was_terminated():
            raise StoppedError(
                f"stopped by a signal at iteration {state.iteration}; the same command goes on from the checkpoint in "
                f"{keeper.folder}",
                setup.instance.grid.world.rank,
            )
    return state, status, _history(solver, setup, rows, solver.measure(setup, state))


def _loop(
    solver: BiCADMM, setup: Setup, state: State, rows: list[Row], keeper: Checkpoint | None
) -> tuple[State, Status]:
    watch = setup.instance.watch
    every = CHECK_EVERY[setup.instance.source.matrix.device.type]
    status = solver.status(setup, state) if rows else Status.RUNNING
    step, finite, saved = choose_steps(solver, setup), state, state.iteration
    transfers = setup.instance.grid.transfers
    while status is Status.RUNNING:
        for _ in range(min(every, solver.max_iter - state.iteration)):
            reasons = watch.reasons
            if any(reasons):
                state = replace(state, stop_reasons=state.stop_reasons.new_tensor(reasons))
            state = step(state)
            objective = _objective(setup, state) if solver.record_objective else None
            rows.append(Row(state.measured, watch.seconds, objective, transfers.so_far()))
            if keeper is not None and keeper.due(state):
                keeper.save(state, rows)
                saved = state.iteration
        status = solver.status(setup, state)
        if status is Status.DIVERGED:
            return finite, Status.DIVERGED
        finite = step.keep(state)
        _report(solver, setup, state)
        status = watch.decide(state.stop_counts.tolist()) or status
        if keeper is not None and saved < state.iteration and status is not Status.RUNNING:
            keeper.save(state, rows)
            saved = state.iteration
    return state, status


def _report(solver: BiCADMM, setup: Setup, state: State) -> None:
    """Report the progress if there is a callback; only then, because the numbers must be read from the device."""
    reporter = setup.instance.watch.reporter
    if reporter.callback is not None and bool(state.measured.isfinite().all()):
        residuals, nonzeros = _describe(solver, setup, state.measured.cpu().unsqueeze(0))
        primal, dual, bilinear = residuals[0]
        reporter.report(
            iteration=state.iteration, primal=primal, dual=dual, bilinear=bilinear, nonzeros=int(nonzeros[0])
        )


def _objective(setup: Setup, state: State) -> float:
    """The objective at z of all problems, without their copies under other penalties."""
    objectives = setup.instance.objective(state.bilinear.z)
    return float(objectives[: len(objectives) // setup.copies].sum())


def _history(solver: BiCADMM, setup: Setup, rows: list[Row], last: torch.Tensor) -> tuple[Record, ...]:
    """One record for each iteration; the measurements in a row belong to the iteration before it."""
    measured = torch.stack([row.measured for row in rows[1:]] + [last]).cpu()
    residuals, nonzeros = _describe(solver, setup, measured)
    return tuple(
        Record(
            iteration=k + 1,
            primal=primal,
            dual=dual,
            bilinear=bilinear,
            nonzeros=int(nonzeros[k]),
            seconds=rows[k].seconds,
            objective=rows[k].objective,
            sent_bytes=int(rows[k].moved.sent_bytes),
            sent_seconds=rows[k].moved.sent_seconds,
            fetched_bytes=int(rows[k].moved.fetched_bytes),
            fetched_seconds=rows[k].moved.fetched_seconds,
        )
        for k, (primal, dual, bilinear) in enumerate(residuals)
    )


def _describe(solver: BiCADMM, setup: Setup, measured: torch.Tensor) -> tuple[list[list[float]], list[float]]:
    """The residuals p, d, b as shares of the sizes that they compare, and the nonzeros, for each iteration; the largest
    of all problems.
    """
    residuals, limits = solver.residuals(setup, measured)
    shares = torch.where(residuals == 0, 0.0, solver.tol * residuals / limits)
    return shares.amax(dim=2).tolist(), measured[:, MEASURED.index("nonzeros")].amax(dim=1).nan_to_num().tolist()
