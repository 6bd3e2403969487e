"""Signals that end a fit: Ctrl-C and SIGTERM."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import ClassVar

# Launchers pass on a Ctrl-C that the terminal has already sent to everyone: a second one so soon is the same one.
SAME_PRESS = 1.0
# A press so soon after one that has ended another fit is meant to end the program.
NEXT_PRESS = 3.0


def choose_signals(interruptible: bool, keyboard: bool) -> tuple[int, ...]:
    """The signals that end a fit with its best answer.

    An `interruptible` solver reacts to both; any fit whose progress is shown at a `keyboard` reacts to Ctrl-C.
    """
    if interruptible:
        return signal.SIGINT, signal.SIGTERM
    return (signal.SIGINT,) if keyboard else ()


class Signals:
    """Signals that have been received while they were caught, with their times."""

    last_press: ClassVar[float] = -math.inf

    def __init__(self) -> None:
        self.received: dict[int, float] = {}

    @contextmanager
    def catch(self, *numbers: int) -> Iterator[None]:
        """Take these signals as requests to stop; only the main thread of a process can.

        A second request means that the program must not wait: it ends at once.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # What is ignored, as Ctrl-C is by jobs in the background, stays ignored.
        caught = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._receive) for number in caught}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        now = time.perf_counter()
        again = now - min(self.received.values(), default=now) > SAME_PRESS
        self.received.setdefault(number, now)
        if number == signal.SIGINT:
            since, Signals.last_press = now - Signals.last_press, now
            if again or SAME_PRESS < since < NEXT_PRESS:
                raise KeyboardInterrupt
        elif again:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
