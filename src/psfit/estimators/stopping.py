"""What is known when a choice of the limit is stopped early, by a signal or by a callback."""

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.loop import StoppedError
from psfit.comm import Grid
from psfit.comm.watch import Watch
from psfit.common.signals import choose_signals
from psfit.common.status import Status
from psfit.estimators.results.selection import Selection
from psfit.pipeline.path import Points

STOPPED = (Status.INTERRUPTED, Status.TERMINATED)
WORDS = {
    Status.INTERRUPTED: "stopped by Ctrl-C",
    Status.TERMINATED: "stopped by SIGTERM",
    None: "the callback stopped it",
}


def watch_choice(grid: Grid, solver: BiCADMM) -> Watch:
    """Hears the signals during a whole choice; its `signals` are for each fit of the choice."""
    return Watch(grid, signals=choose_signals(solver.interruptible, keyboard=False))


def was_stopped(paths: list[Points]) -> bool:
    """Whether someone asked to stop these paths: they cannot be compared with others."""
    return any(path.ended in STOPPED for path in paths)


def stop_choice(watch: Watch, grid: Grid, place: str, basis: str, selection: Selection | None) -> StoppedError:
    """The error that says where a choice was stopped, and what it would be so far; all ranks must call this.

    Parameters
    ----------
    place : str
        What was being done.
    basis : str
        What the selection so far comes from, or why there is none.
    selection : Selection or None
    """
    # If no rank has a signal, it was the callback.
    watch.must_stop()
    found = basis
    if selection is not None:
        found = f"the best choice so far, {basis}, is {selection.summary}; no model was fitted with it"
    message = f"{WORDS[watch.ended]} {place}: {found}"
    return StoppedError(message, grid.world.rank, watch.ended or Status.INTERRUPTED)
