"""Copies between the memory of the host and of a GPU, counted and timed."""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor


class Moved(NamedTuple):
    """Bytes and seconds of the copies to the device, and back to the host."""

    sent_bytes: int = 0
    sent_seconds: float = 0.0
    fetched_bytes: int = 0
    fetched_seconds: float = 0.0


@dataclass
class Transfers:
    """A counter of all copies of one rank. If the device is the host, there are none."""

    moved: Moved = field(default_factory=Moved)
    pending: list[tuple[torch.cuda.Event, torch.cuda.Event]] = field(default_factory=list)

    def send(self, values: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
        """The values on a device, in a precision; the same tensor if they are there already."""
        if values.device.type == device.type:
            return values.to(device=device, dtype=dtype)
        began = time.perf_counter()
        sent = values.to(device=device, dtype=dtype)
        torch.cuda.synchronize()
        self._add(Moved(sent.nbytes, time.perf_counter() - began))
        return sent

    def fetch(self, values: Tensor) -> Tensor:
        """The values on the host. The time is that of the copy, without the work that made the values."""
        if values.device.type == "cpu":
            return values
        torch.cuda.synchronize(values.device)
        began = time.perf_counter()
        fetched = values.cpu()
        self._add(Moved(0, 0.0, fetched.nbytes, time.perf_counter() - began))
        return fetched

    def add_started(self, count: int, start: torch.cuda.Event, end: torch.cuda.Event) -> None:
        """Count a copy of `count` bytes that has started, between two events of its stream."""
        self._add(Moved(count))
        self.pending.append((start, end))

    def so_far(self) -> Moved:
        """All copies that have ended by now."""
        if not self.pending:
            return self.moved
        arrived = [pair for pair in self.pending if pair[1].query()]
        self.pending = [pair for pair in self.pending if pair not in arrived]
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
