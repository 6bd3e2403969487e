"""What passes between the host's memory and that of a GPU, counted and timed."""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor


class Moved(NamedTuple):
    """Bytes and seconds to the device, and back to the host."""

    sent_bytes: int = 0
    sent_seconds: float = 0.0
    fetched_bytes: int = 0
    fetched_seconds: float = 0.0


@dataclass
class Transfers:
    """A counter for all copies of one rank. Where the device is the host there are none."""

    moved: Moved = field(default_factory=Moved)
    under_way: list[tuple[torch.cuda.Event, torch.cuda.Event]] = field(default_factory=list)

    def send(self, values: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
        """The numbers on a device, in a precision; the same tensor if they are there already."""
        if values.device.type == device.type:
            return values.to(device=device, dtype=dtype)
        began = time.perf_counter()
        sent = values.to(device=device, dtype=dtype)
        torch.cuda.synchronize()
        self._add(Moved(sent.nbytes, time.perf_counter() - began))
        return sent

    def fetch(self, values: Tensor) -> Tensor:
        """The numbers on the host. The time is that of the copy, not of the work that leads to them."""
        if values.device.type == "cpu":
            return values
        torch.cuda.synchronize(values.device)
        began = time.perf_counter()
        fetched = values.cpu()
        self._add(Moved(0, 0.0, fetched.nbytes, time.perf_counter() - began))
        return fetched

    def sending(self, count: int, start: torch.cuda.Event, end: torch.cuda.Event) -> None:
        """So many bytes are on their way, between two events of a stream of their own."""
        self._add(Moved(count))
        self.under_way.append((start, end))

    def so_far(self) -> Moved:
        """All that has arrived by now."""
        arrived = [pair for pair in self.under_way if pair[1].query()]
        self.under_way = [pair for pair in self.under_way if pair not in arrived]
        self._add(Moved(0, sum(start.elapsed_time(end) for start, end in arrived) / 1e3))
        return self.moved

    def _add(self, more: Moved) -> None:
        now = self.moved
        self.moved = Moved(
            now.sent_bytes + more.sent_bytes,
            now.sent_seconds + more.sent_seconds,
            now.fetched_bytes + more.fetched_bytes,
            now.fetched_seconds + more.fetched_seconds,
        )
