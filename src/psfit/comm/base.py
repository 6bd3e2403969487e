"""The contract of a communicator: sums, extremes and copies over a group of ranks."""

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from psfit.comm.peers import Peers, own_place

Reduction = Literal["sum", "max", "min"]


class PeerLostError(RuntimeError):
    """Another rank does not answer."""


@dataclass
class Traffic:
    """How much one rank has given to its communicators, and in which phase of the work it is."""

    phase: str = "set-up"
    reductions: int = 0
    numbers: int = 0
    bytes: int = 0

    def count(self, tensor: Tensor) -> None:
        self.reductions += 1
        self.numbers += tensor.numel()
        self.bytes += tensor.numel() * tensor.element_size()


class Communicator(ABC):
    """A group of ranks. Every rank calls the same methods in the same order with tensors of the same shape.

    All communicators of a rank share one `traffic`, and the `peers` of all ranks.
    """

    rank: int
    size: int
    traffic: Traffic
    peers: Peers
    # The classes that all ranks have agreed on before; None if they gather their labels.
    agreed_classes: tuple | None = None

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> Tensor:
        """The elementwise sum, maximum or minimum over all ranks, the same on every rank."""
        if self.size == 1:
            return tensor
        self.traffic.count(tensor)
        return self._all_reduce(tensor, op)

    def reduce_latest(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in which a rank that does not answer may be represented by its last numbers."""
        return self.all_reduce(tensor)

    def have_same_values(self, values: Tensor) -> bool:
        """Whether all ranks hold the same numbers; a communicator may also end the work later if they do not."""
        most, least = self.all_reduce(torch.stack([values, -values]), "max")
        return bool((most == -least).all())

    def gather_failures(self, message: bytes) -> list[bytes]:
        """The messages of ranks that have failed, in order of rank; empty for the others."""
        return self.all_gather(message)

    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        """The tensor of rank `root`, on every rank."""
        if self.size == 1:
            return tensor
        self.traffic.count(tensor)
        return self._broadcast(tensor, root)

    def all_gather(self, payload: bytes) -> list[bytes]:
        """The bytes of every rank, in order of rank; for labels and messages, not for data."""
        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(payload)
        sizes = self.all_reduce(sizes)
        ends = sizes.cumsum(0).tolist()
        joined = torch.zeros(ends[-1], dtype=torch.uint8)
        start = ends[self.rank] - len(payload)
        if payload:
            joined[start : start + len(payload)] = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
        joined = self.all_reduce(joined)
        whole = struct.pack(f"{ends[-1]}B", *joined.tolist())
        return [whole[end - size : end] for end, size in zip(ends, sizes.tolist(), strict=True)]

    @abstractmethod
    def split(self, color: int) -> "Communicator":
        """The group of all ranks that call this with the same colour, in the same order; every rank must call it."""

    def meet(self) -> None:
        """Exchange the processes of all ranks; every rank must call it."""
        places = self.all_gather(own_place().encode())
        self.peers = Peers(self.rank, self.size, tuple(place.decode() for place in places))

    @abstractmethod
    def abort(self, error: BaseException) -> None:
        """Tell the other ranks that this one has failed, so that none of them waits for it."""

    @abstractmethod
    def _all_reduce(self, tensor: Tensor, op: Reduction) -> Tensor:
        """`all_reduce` between at least two ranks; does not change its argument."""

    @abstractmethod
    def _broadcast(self, tensor: Tensor, root: int) -> Tensor:
        """`broadcast` between at least two ranks; does not change its argument."""

    def _gather_colors(self, color: int) -> tuple[int, ...]:
        """The colours of all ranks: the key under which a group is kept for later use."""
        colors = torch.zeros(self.size, dtype=torch.int64)
        colors[self.rank] = color
        return tuple(self.all_reduce(colors).tolist())

    def _peer_lost_error(self, reason: str) -> PeerLostError:
        """The error of a rank that has lost its peers."""
        peers = self.peers
        return PeerLostError(
            f"rank {peers.rank} of {peers.size} lost contact with {peers.describe_lost()} during {self.traffic.phase} "
            f"({reason}); the first message of the rank that failed has the cause. With a checkpoint, start again to "
            "continue from it"
        )
