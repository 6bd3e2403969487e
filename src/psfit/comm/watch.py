"""When a fit must stop before it is done: decided by all ranks together."""

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
        Its ranks stop together.
    time_limit : float, optional
        Seconds.
    callback : callable, optional
        Is told about `Progress` on this rank, and may ask to stop.
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
        self.reporter = Reporter(callback, problems)
        self.signals = Signals()
        # Why the fit ends early, once that is decided.
        self.ended: Status | None = None
        self._grid, self._time_limit, self._numbers = grid, time_limit, signals
        # Without any of these there is nothing to ask the ranks.
        self._may_stop = time_limit is not None or self._any_rank(bool(signals) or callback is not None)

    @contextmanager
    def catch_signals(self) -> Iterator[None]:
        """Take the signals that may end the fit as requests to stop."""
        with self.signals.catch(*self._numbers):
            yield

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self.reporter.seconds

    @property
    def reasons(self) -> list[bool]:
        """Which of the `STOP_REASONS` this rank has."""
        late = self._time_limit is not None and self.seconds > self._time_limit
        received = self.signals.received
        interrupted = self.reporter.asked_to_stop or signal.SIGINT in received
        return [late, interrupted, signal.SIGTERM in received]

    def decide(self, counts: list[float]) -> Status | None:
        """End the fit if any rank has a reason to; ``counts`` says how many ranks have each of them."""
        for reason, count in zip(STOP_REASONS, counts, strict=True):
            if count > 0:
                self.ended = reason
        return self.ended

    def must_stop(self) -> bool:
        """Whether to stop here; all ranks ask at the same points and get the same answer."""
        if self.ended is None and self._may_stop:
            reasons = torch.tensor(self.reasons, dtype=torch.float32)
            self.decide(self._grid.world.all_reduce(reasons, "max").tolist())
        return self.ended is not None

    def was_terminated(self) -> bool:
        """Whether some rank has received SIGTERM; all ranks must ask."""
        return self._any_rank(signal.SIGTERM in self.signals.received)

    def begin(self, phase: str) -> None:
        """Report what is done next."""
        self._grid.phase(phase)
        self.reporter.report(phase=phase)

    def _any_rank(self, fact: bool) -> bool:
        return bool(self._grid.world.all_reduce(torch.tensor([float(fact)]), "max"))
