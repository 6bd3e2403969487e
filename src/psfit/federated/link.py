"""The client's side of a sum: what its program waits for, and what the server has sent so far."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from psfit.comm import RemoteError
from psfit.federated import ring
from psfit.federated.masks import Place
from psfit.federated.messages import LATEST, Label


class FederationEndedError(RemoteError):
    """The server has ended the run."""


@dataclass(frozen=True)
class SumResult:
    """A sum as the server sends it: where it belongs, whose updates it contains, and the numbers, perhaps masked."""

    place: Place
    members: tuple[str, ...]
    words: np.ndarray


@dataclass(frozen=True)
class Update:
    """What this client adds to the sum that its program waits for."""

    number: int
    label: Label
    words: np.ndarray
    finite: bool


class ClientLink:
    """Connects the thread of a client's program with the thread that answers the server.

    The program asks for sums one after the other, and the server's results answer them. A program that starts again
    asks for the same sums again; the server sends it all results so far, and so it reaches the present.

    In sums of iterates each client adds the change of its numbers since the last sum that contained them. The total
    therefore keeps the last numbers of a client that is away.
    """

    def __init__(self, name: str, reveal: Callable[[SumResult], np.ndarray]) -> None:
        self.name, self._reveal = name, reveal
        self.condition = threading.Condition()
        self.number = 0
        self.update: Update | None = None
        self.results: dict[int, SumResult] = {}
        self.failure: str | None = None
        self.ended: str | None = None
        self._total = self._sent = ring.zeros(0)

    def exchange(self, label: Label, words: np.ndarray) -> np.ndarray:
        added = self._change(words) if label.operation == LATEST else words
        finite = label.operation != LATEST or bool(np.isfinite(ring.decode(words)).all())
        with self.condition:
            self.update = Update(self.number, label, added, finite)
            self.condition.notify_all()
            self.condition.wait_for(lambda: self.ended is not None or self.number in self.results)
            if self.ended is not None:
                raise FederationEndedError(self.ended)
            result = self.results.pop(self.number)
            self.number, self.update = self.number + 1, None
        if result.words.shape != words.shape:
            # An error of its own, not an end that the server knows of: it ends the run and names this client.
            raise ValueError("the server sent a sum of another size than the update")
        total = self._reveal(result)
        if label.operation != LATEST:
            return total
        self._total = ring.add(self._total, total)
        if self.name in result.members:
            self._sent = words
        return self._total

    def fail(self, kind: str) -> None:
        with self.condition:
            # Texts of errors may quote data, so only the kind of error leaves this client.
            self.failure = self.failure or kind
            self.condition.notify_all()

    def end(self, reason: str) -> None:
        """End the program at its next sum."""
        with self.condition:
            self.ended = reason
            self.condition.notify_all()

    def take(self, results: list[SumResult]) -> None:
        """Keep results of the server that the program has not had yet."""
        with self.condition:
            self.results |= {one.place.number: one for one in results if one.place.number >= self.number}
            self.condition.notify_all()

    @property
    def next_result(self) -> int:
        """The number of the first result that is missing here."""
        # The program's thread takes a result and counts on in one step, under the same lock.
        with self.condition:
            number = self.number
            while number in self.results:
                number += 1
            return number

    def _change(self, words: np.ndarray) -> np.ndarray:
        """The change since the last sum with this client's numbers; a sum of another size begins anew."""
        if words.shape != self._sent.shape:
            self._total = self._sent = ring.zeros(words.shape[1])
        return ring.subtract(words, self._sent)
