"""All ranks decide together when a fit must stop early."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from psfit.comm import Grid
from psfit.common.progress import Callback, Reporter
from psfit.common.signals import Signals
from psfit.common.status import STOP_REASONS, Status


class Watch:
    """What all layers of one fit share: the time limit, the signals, the reporter, and the decision to stop.

    Parameters
    ----------
    grid : Grid
        The ranks that stop together.
    time_limit : float, optional
        Seconds.
    callback : callable, optional
        Called with a `Progress` on this rank; it may ask to stop.
    problems : int
        The number of independent problems whose objectives are summed; zero if they are not, as on a path.
    signals : tuple of int
        Signals that end the fit with the best answer so far.
    received : Signals, optional
        Signals of the fits before this one, where one signal is to end all that are left.
    """

    def __init__(
        self,
        grid: Grid,
        time_limit: float | None = None,
        callback: Callback | None = None,
        problems: int = 0,
        signals: tuple[int, ...] = (),
        received: Signals | None = None,
    ) -> None:
        self.reporter = Reporter(callback, problems)
        self.signals = Signals() if received is None else received
        # Why the fit ends early; None before that is decided.
        self.ended: Status | None = None
        self._grid, self._time_limit, self._numbers = grid, time_limit, signals
        # Without any of these the fit cannot end early, and the ranks need not exchange anything.
        self._may_stop = time_limit is not None or self._any_rank(bool(signals) or callback is not None)

    @contextmanager
    def catch_signals(self) -> Iterator[None]:
        """Treat the signals that may end the fit as requests to stop."""
        with self.signals.catch(*self._numbers):
            yield

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self.reporter.seconds

    @property
    def reasons(self) -> list[bool]:
        """Which of the `STOP_REASONS` this rank has."""
        late = self._time_limit is not None and self.seconds > self._time_limit
        received = self.signals.received
        interrupted = self.reporter.asked_to_stop or signal.SIGINT in received
        return [late, interrupted, signal.SIGTERM in received]

    def decide(self, counts: list[float]) -> Status | None:
        """End the fit if any rank has a reason; ``counts`` holds how many ranks have each reason."""
        for reason, count in zip(STOP_REASONS, counts, strict=True):
            if count > 0:
                self.ended = reason
        return self.ended

    def must_stop(self) -> bool:
        """Whether to stop here. All ranks must call this at the same points; they get the same answer."""
        if self.ended is None and self._may_stop:
            reasons = torch.tensor(self.reasons, dtype=torch.float32)
            self.decide(self._grid.world.all_reduce(reasons, "max").tolist())
        return self.ended is not None

    def was_terminated(self) -> bool:
        """Whether some rank has received SIGTERM; all ranks must call this."""
        return self._any_rank(signal.SIGTERM in self.signals.received)

    def begin(self, phase: str) -> None:
        """Report the phase that begins now."""
        self._grid.phase(phase)
        self.reporter.report(phase=phase)

    def _any_rank(self, fact: bool) -> bool:
        return bool(self._grid.world.all_reduce(torch.tensor([float(fact)]), "max"))
