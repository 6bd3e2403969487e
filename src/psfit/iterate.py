"""The outer loop: step until the status says so, with checkpoints and signals."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import torch

from psfit.bicadmm import MEASURED, BiCADMM, Setup, State
from psfit.checkpoint import Checkpoint, Row
from psfit.result import Record, Status
from psfit.stepping import stepper

# On a GPU reading a number waits for the device, so the stopping test is not made at every iteration there.
CHECK_EVERY = {"cpu": 1, "cuda": 10}


class StoppedError(RuntimeError):
    """A signal asked the run to end, and a checkpoint was written."""


@dataclass
class Signals:
    """Whether SIGTERM has come."""

    stop: bool = False

    def hear(self, number: int, frame: FrameType | None) -> None:
        self.stop = True


def iterate(solver: BiCADMM, setup: Setup, state: State, began: float) -> tuple[State, Status, tuple[Record, ...]]:
    """The last state, why it is the last, and the history; a diverged run falls back to its last finite point."""
    keeper = None
    rows: list[Row] = []
    if solver.checkpoint is not None:
        keeper = Checkpoint(Path(solver.checkpoint), solver.checkpoint_every, solver, setup)
        state, rows = keeper.load(state)
    with _listening(keeper is not None) as signals:
        state, status = _loop(solver, setup, state, began, rows, keeper, signals)
    return state, status, _history(solver, setup, rows, solver.measure(setup, state))


def _loop(
    solver: BiCADMM,
    setup: Setup,
    state: State,
    began: float,
    rows: list[Row],
    keeper: Checkpoint | None,
    signals: Signals,
) -> tuple[State, Status]:
    every = CHECK_EVERY[setup.instance.source.matrix.device.type]
    status = solver.status(setup, state) if rows else Status.RUNNING
    step, finite, kept = stepper(solver, setup), state, state.iteration
    transfers = setup.instance.grid.transfers
    while status is Status.RUNNING:
        for _ in range(min(every, solver.max_iter - state.iteration)):
            late = solver.time_limit is not None and time.perf_counter() - began > solver.time_limit
            if late or signals.stop:
                state = replace(state, wishes=state.wishes.new_tensor([late, signals.stop]))
            state = step(state)
            objective = _objective(setup, state) if solver.record_objective else None
            rows.append(Row(state.measured, time.perf_counter() - began, objective, transfers.so_far()))
            if keeper is not None and keeper.due(state):
                keeper.save(state, rows)
                kept = state.iteration
        status = solver.status(setup, state)
        if status is Status.DIVERGED or not bool(state.bilinear.z.isfinite().all()):
            return finite, Status.DIVERGED
        finite = step.kept(state)
        late_ranks, stopped_ranks = state.heard.tolist()
        if status is Status.RUNNING and late_ranks > 0:
            status = Status.TIME_LIMIT
        if keeper is not None and kept < state.iteration and (status is not Status.RUNNING or stopped_ranks > 0):
            keeper.save(state, rows)
            kept = state.iteration
        if keeper is not None and stopped_ranks > 0:
            raise StoppedError(
                f"stopped by a signal at iteration {state.iteration}; the same command goes on from the checkpoint in "
                f"{keeper.folder}"
            )
    return state, status


@contextmanager
def _listening(wanted: bool) -> Iterator[Signals]:
    """Turn SIGTERM into a wish to stop; only the main thread of a process can."""
    signals = Signals()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = signal.signal(signal.SIGTERM, signals.hear)
    try:
        yield signals
    finally:
        signal.signal(signal.SIGTERM, before)


def _objective(setup: Setup, state: State) -> float:
    """The objective at z of all problems, without their copies under other penalties."""
    objectives = setup.instance.objective(state.bilinear.z)
    return float(objectives[: len(objectives) // setup.copies].sum())


def _history(solver: BiCADMM, setup: Setup, rows: list[Row], last: torch.Tensor) -> tuple[Record, ...]:
    """A record an iteration; each measurement describes the iteration before its own."""
    measured = torch.stack([row.measured for row in rows[1:]] + [last]).cpu()
    residuals = solver.residuals(setup, measured)[0].amax(dim=2).tolist()
    nonzeros = measured[:, MEASURED.index("nonzeros")].amax(dim=1).nan_to_num().tolist()
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
