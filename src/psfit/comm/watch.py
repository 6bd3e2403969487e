"""Watching a fit: the clock, wishes to stop, and those who want to hear how far it is."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, ClassVar

import torch

from psfit.comm import Grid
from psfit.common.result import Status, relative_gap

# Launchers pass on a Ctrl-C that the terminal has already sent to everyone: a second one so soon is the same one.
SAME_PRESS = 1.0
# Who presses again so soon after a press that has ended another fit wants to end the program.
AGAIN = 3.0
# Why a fit may end before it is done; with several reasons the last one counts.
REASONS = (Status.TIME_LIMIT, Status.INTERRUPTED, Status.TERMINATED)


@dataclass(frozen=True)
class Progress:
    """How far a fit is; what is not known yet is not a number, or minus infinity for the bound.

    Parameters
    ----------
    phase : str
        What is being done: the iteration, the polish, the proof, ...
    seconds : float
        Since the start of the fit.
    iteration : int
        The last outer iteration.
    primal, dual, bilinear : float
        The paper's residuals of the iteration before, the largest of all problems; shares, as in `Record`.
    nonzeros : int
        Nonzero coefficients of the iterate, the most of any problem.
    objective : float
        The best answer so far, refitted on at most kappa nonzeros; summed over independent problems.
    lower_bound : float
        Proved so far: no answer within the limit is better.
    done, total : int
        Limits of a path that have an answer, and all of them.
    explored, open : int
        Nodes of the search tree of exact mode: looked at, and waiting.
    """

    phase: str = "the set-up"
    seconds: float = 0.0
    iteration: int = 0
    primal: float = math.nan
    dual: float = math.nan
    bilinear: float = math.nan
    nonzeros: int = 0
    objective: float = math.nan
    lower_bound: float = -math.inf
    done: int = 0
    total: int = 0
    explored: int = 0
    open: int = 0

    @property
    def gap(self) -> float:
        """``(objective - lower_bound) / |objective|``."""
        return relative_gap(self.objective, self.lower_bound)


# Hears of progress; if it returns True, the fit ends with the best answer so far.
Callback = Callable[[Progress], bool | None]


class Signals:
    """Signals that have come while somebody listened."""

    last_press: ClassVar[float] = -math.inf

    def __init__(self) -> None:
        self.heard: dict[int, float] = {}

    @contextmanager
    def listening(self, *numbers: int) -> Iterator[None]:
        """Take these signals as wishes to stop; only the main thread of a process can.

        Who sends two of them does not want to wait.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # What is ignored, as Ctrl-C is by jobs in the background, stays ignored.
        wanted = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._hear) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        now = time.perf_counter()
        impatient = now - min(self.heard.values(), default=now) > SAME_PRESS
        self.heard.setdefault(number, now)
        if number == signal.SIGINT:
            since, Signals.last_press = now - Signals.last_press, now
            if impatient or SAME_PRESS < since < AGAIN:
                raise KeyboardInterrupt
        elif impatient:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


class Watch:
    """What all layers of one fit ask and tell: whether to stop, how far it is.

    Parameters
    ----------
    grid : Grid
        Its ranks stop together.
    time_limit : float, optional
        Seconds.
    callback : callable, optional
        Hears of `Progress` on this rank, and may ask to stop.
    problems : int
        Independent problems whose objectives add up; zero if they do not, as along a path.
    signals : tuple of int
        Those that may end the fit with an answer.
    """

    def __init__(
        self,
        grid: Grid,
        time_limit: float | None = None,
        callback: Callback | None = None,
        problems: int = 0,
        signals: tuple[int, ...] = (),
    ) -> None:
        self.began = time.perf_counter()
        self.grid, self.time_limit, self.callback, self.wanted = grid, time_limit, callback, signals
        self.signals = Signals()
        self.progress = Progress()
        # Why the fit ends early, once that is decided.
        self.ended: Status | None = None
        self._asked = False
        self._objectives, self._bounds = [math.inf] * problems, [-math.inf] * problems
        self._heeds = time_limit is not None or self._any(bool(signals) or callback is not None)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear the signals that may end the fit."""
        with self.signals.listening(*self.wanted):
            yield

    def _any(self, wish: bool) -> bool:
        """Whether some rank has a wish."""
        return bool(self.grid.world.all_reduce(torch.tensor([float(wish)]), "max"))

    def terminated(self) -> bool:
        """Whether some rank has heard SIGTERM; all ranks must ask."""
        return self._any(signal.SIGTERM in self.signals.heard)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self.began

    @property
    def wishes(self) -> list[bool]:
        """Which of the `REASONS` to stop this rank has."""
        late = self.time_limit is not None and self.seconds > self.time_limit
        heard = self.signals.heard
        return [late, self._asked or signal.SIGINT in heard, signal.SIGTERM in heard]

    def decide(self, ranks: list[float]) -> Status | None:
        """End the fit if any rank has a reason to; ``ranks`` counts those who have, reason by reason."""
        for reason, wished in zip(REASONS, ranks, strict=True):
            if wished > 0:
                self.ended = reason
        return self.ended

    def over(self) -> bool:
        """Whether to stop here; all ranks ask at the same points and hear the same."""
        if self.ended is None and self._heeds:
            self.decide(self.grid.world.all_reduce(torch.tensor(self.wishes, dtype=torch.float32), "max").tolist())
        return self.ended is not None

    def phase(self, name: str) -> None:
        """Say what comes next."""
        self.grid.phase(name)
        self.tell(phase=name)

    def tell(self, **news: Any) -> None:
        """Pass on what is new."""
        if self.callback is not None:
            self.progress = replace(self.progress, seconds=self.seconds, **news)
            self._asked = bool(self.callback(self.progress)) or self._asked

    def found(self, problem: int, objective: float) -> None:
        """A problem has an answer with this objective."""
        if self._objectives and objective < self._objectives[problem]:
            self._objectives[problem] = objective
            total = sum(self._objectives)
            if math.isfinite(total):
                self.tell(objective=total)

    def proved(self, problem: int, lower: float) -> None:
        """No answer of a problem is below this bound."""
        if self._bounds and lower > self._bounds[problem]:
            self._bounds[problem] = lower
            self.tell(lower_bound=sum(self._bounds))
