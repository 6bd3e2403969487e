"""The progress of a fit: a line that changes in a terminal or notebook, else plain lines at growing intervals."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from psfit.admm.loop import StoppedError
from psfit.comm import Grid
from psfit.common.progress import Callback, Progress
from psfit.common.status import Status
from psfit.pipeline.path import Points

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

REFRESHES_PER_SECOND = 4
# Seconds between plain lines: at least LEAST_INTERVAL, and at least the share SHARE of the time so far, so that long
# runs do not fill logs.
LEAST_INTERVAL = 2.0
SHARE = 0.05
# The phases of a fit in words; callbacks and messages of ranks have their short names.
WORDS = {
    "the set-up": "reading the data",
    "the first factorisation": "preparing the data",
    "the iteration": "looking for features that matter",
    "the polish": "exchanging features for better ones",
    "the proof": "proving how good the answer is",
}


def prints(verbose: int, grid: Grid) -> bool:
    """Whether this rank prints the progress of all ranks: only the first one does, and only if `verbose`."""
    return verbose > 0 and grid.world.rank == 0


@contextmanager
def show_progress(verbose: int, grid: Grid, callback: Callback | None = None) -> Iterator[Callback | None]:
    """The callback for a fit: the user's one and, on the first rank if `verbose`, a display."""
    if not prints(verbose, grid):
        yield callback
        return
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_jupyter:
        # In a notebook, a line of the standard output can be overwritten; other displays need widgets.
        yield _call_both(callback, _OverwrittenLine(verbose > 1))
        sys.stdout.write("\n")
    elif console.is_terminal:
        with _LiveLine(console, verbose > 1) as line:
            yield _call_both(callback, line)
    else:
        yield _call_both(callback, _PlainLines(verbose > 1))


def label_round(callback: Callback | None, name: str, number: int, total: int, start: float) -> Callback | None:
    """The callback for fit `number` of `total`, of which the first began at `start`.

    It puts the number before the phases, and knows the time of all fits so far, and about how long the others take.
    """
    if callback is None:
        return None
    now = time.perf_counter()
    expected = (now - start) / (number - 1) * (total - number + 1) if number > 1 else math.nan

    def report(progress: Progress) -> bool | None:
        spent = time.perf_counter() - now
        # During the first fit only its own share tells how long the others take.
        left = expected - spent if number > 1 else spent * (total / progress.share_done - 1)
        phase = f"{name} {number} of {total}, {progress.phase}"
        return callback(replace(progress, phase=phase, seconds=now - start + spent, seconds_left=max(left, 0.0)))

    return report


def require_complete(paths: list[Points]) -> list[Points]:
    """The paths; an error if the callback has stopped one of them, since an incomplete path cannot be compared."""
    if any(path.ended is Status.INTERRUPTED for path in paths):
        raise StoppedError("the callback asked to stop before all models could be compared; there is no answer")
    return paths


def _call_both(first: Callback | None, second: Callable[[Progress], None]) -> Callback:
    def call(progress: Progress) -> bool | None:
        stop = None if first is None else first(progress)
        second(progress)
        return stop

    return call


class _LiveLine:
    """One line of a terminal with the time so far, rewritten a few times a second."""

    def __init__(self, console: "Console", detailed: bool) -> None:
        from rich.live import Live

        self.detailed = detailed
        self.progress, self.received = Progress(), time.perf_counter()
        self.live = Live(
            get_renderable=self._render,
            console=console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
            # Other output of the program in this terminal appears above the line.
            redirect_stdout=sys.stdout.isatty(),
        )

    def __enter__(self) -> "_LiveLine":
        self.live.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self.live.stop()

    def __call__(self, progress: Progress) -> None:
        self.progress, self.received = progress, time.perf_counter()

    def _render(self) -> "Text":
        from rich.text import Text

        seconds = self.progress.seconds + time.perf_counter() - self.received
        line = describe(replace(self.progress, seconds=seconds), self.detailed)
        return Text(line, no_wrap=True, overflow="ellipsis")


class _OverwrittenLine:
    """A line of standard output that the next one replaces."""

    def __init__(self, detailed: bool) -> None:
        self.detailed = detailed
        self.last, self.width = -math.inf, 0

    def __call__(self, progress: Progress) -> None:
        now = time.perf_counter()
        if now - self.last >= 1 / REFRESHES_PER_SECOND:
            line = describe(progress, self.detailed)
            sys.stdout.write(f"\r{line:<{self.width}}")
            sys.stdout.flush()
            self.last, self.width = now, len(line)


class _PlainLines:
    """A line at every new phase or fold, at every better answer of a search tree, and from time to time."""

    def __init__(self, detailed: bool) -> None:
        self.detailed = detailed
        self.last, self.printed = -math.inf, Progress(phase="")

    def __call__(self, progress: Progress) -> None:
        waited = progress.seconds - self.last >= max(LEAST_INTERVAL, SHARE * progress.seconds)
        better = progress.explored > 0 and progress.objective < self.printed.objective
        if waited or better or _stage(progress) != _stage(self.printed):
            print(describe(progress, self.detailed), file=sys.stderr, flush=True)
            self.last, self.printed = progress.seconds, progress


def describe(progress: Progress, detailed: bool = False) -> str:
    """One line with what is known; `detailed` adds the residuals of the iteration."""
    parts = [f"{progress.seconds:7.1f} s  {phase_in_words(progress.phase)}"]
    if progress.gammas > 1:
        parts.append(f"gamma {progress.gamma} of {progress.gammas}")
    if progress.done:
        parts.append(f"limit {progress.done} of {progress.total}")
    parts += _time_left(progress)
    if not math.isnan(progress.objective):
        parts.append(f"best {progress.objective:.8g}")
        if math.isfinite(progress.lower_bound):
            parts.append(f"gap {progress.gap:.2g}")
    if progress.explored:
        parts.append(f"explored {progress.explored:,}, open {progress.open:,}")
    # This comes last: a narrow terminal cuts it off, and it matters least after an answer was found.
    if progress.iteration and detailed:
        residuals = f"{progress.primal:.1e} {progress.dual:.1e} {progress.bilinear:.1e}"
        parts.append(f"iteration {progress.iteration}, residuals {residuals}, {progress.nonzeros:,} nonzeros")
    elif progress.iteration:
        parts.append(f"iteration {progress.iteration}")
    return " | ".join(parts)


def phase_in_words(phase: str) -> str:
    """A phase as a person understands it; a label before it, such as that of a fold, stays."""
    label, comma, own = phase.rpartition(", ")
    return f"{label}{comma}{WORDS.get(own, own)}"


def _stage(progress: Progress) -> str:
    """What a plain line stands for: a fold or a resample as a whole, else a phase."""
    label, _, own = progress.phase.rpartition(", ")
    return label or own


def _time_left(progress: Progress) -> list[str]:
    """About how long the folds, or the limits of a path, still take, if some of them are done."""
    seconds = progress.seconds_left
    if math.isnan(seconds):
        seconds = progress.seconds * (1 / progress.share_done - 1)
    return [f"about {seconds:.0f} s left"] if seconds >= 1 else []
