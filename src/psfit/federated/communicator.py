"""The communicator of a federation: every reduction is one sum over the clients, through the server.

Sums are sums. A copy of the first client's numbers is a sum in which the others add nothing. A maximum is rounded up to
a power of two and found by one sum that shows nothing else. What clients must have in common is not sent: its digest
travels with the next sum, and the server ends a run in which digests differ.
"""

import hashlib
import hmac
import os
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from psfit.comm import Communicator, Traffic
from psfit.comm.base import Reduction
from psfit.comm.peers import Peers
from psfit.federated import ring
from psfit.federated.messages import LATEST, Label

# Maxima are known up to the next power of two between these exponents, with their sign.
LEAST_EXPONENT, MOST_EXPONENT = -340, 340
POSITIONS = MOST_EXPONENT - LEAST_EXPONENT + 1


class Link(Protocol):
    """What a communicator needs of the client's side of the protocol."""

    def exchange(self, label: Label, words: np.ndarray) -> np.ndarray:
        """The sum over the clients of their fixed-point numbers."""

    def fail(self, kind: str) -> None:
        """Tell the server that this client has failed with this kind of error."""


class FederatedCommunicator(Communicator):
    """The clients of a federation; this process is number `rank` of them."""

    def __init__(self, rank: int, size: int, link: Link, classes: tuple | None = None, key: bytes = b""):
        self.rank, self.size, self.link = rank, size, link
        self.traffic, self.peers = Traffic(), Peers(rank, size)
        self.agreed_classes = classes
        # With a key that the server does not have, it cannot guess sums from their digest.
        self._digest = hmac.new(key or bytes(32), digestmod=hashlib.sha256)

    @property
    def digest(self) -> str:
        """A digest of all sums so far, and of all that clients must have in common."""
        return self._digest.hexdigest()[:32]

    def reduce_latest(self, tensor: Tensor) -> Tensor:
        self.traffic.count(tensor)
        return self._sum(tensor, LATEST)

    def have_same_values(self, values: Tensor) -> bool:
        self._note(values.double().cpu().numpy().tobytes())
        return True

    def gather_failures(self, message: bytes) -> list[bytes]:
        """The failure of this client; others learn of a failure, but not of its text, at their next sum."""
        if message:
            self.link.fail(message.decode().partition(":")[0])
        return [message if rank == self.rank else b"" for rank in range(self.size)]

    def all_gather(self, payload: bytes) -> list[bytes]:
        raise ValueError(
            "this step would show each client's own facts to the others; in a federation agree on them before: "
            "the names of the columns and the classes belong to the job"
        )

    def split(self, color: int) -> "FederatedCommunicator":
        raise ValueError("a client of a federation is one node; it cannot be divided into blocks")

    def abort(self, error: BaseException) -> None:
        self.link.fail(type(error).__name__)

    def _all_reduce(self, tensor: Tensor, op: Reduction) -> Tensor:
        if op == "sum":
            return self._sum(tensor, "sum")
        return self._maximum(tensor) if op == "max" else -self._maximum(-tensor)

    def _broadcast(self, tensor: Tensor, root: int) -> Tensor:
        exact = torch.float64 if tensor.is_floating_point() else torch.int64
        flat = tensor.detach().cpu().to(exact).flatten().contiguous().numpy()
        words = ring.from_bits(flat.view(np.uint64)) if self.rank == root else ring.zeros(flat.size)
        copied = self._exchange("copy", words)[0].view(flat.dtype).copy()
        return torch.from_numpy(copied).view(tensor.shape).to(tensor.device, tensor.dtype)

    def _sum(self, tensor: Tensor, operation: str) -> Tensor:
        flat = tensor.detach().cpu().double().flatten().numpy()
        total = ring.decode(self._exchange(operation, ring.encode(flat)))
        return torch.from_numpy(total).view(tensor.shape).to(tensor.device, tensor.dtype)

    def _maximum(self, tensor: Tensor) -> Tensor:
        """The maxima, rounded up: client i adds random numbers at all positions up to that of its own number."""
        flat = tensor.detach().cpu().double().flatten().numpy()
        reached = np.arange(2 * POSITIONS + 1)[:, None] <= _position(flat)
        words = ring.zeros(reached.size)
        own = reached.flatten()
        count = int(own.sum())
        words[:, own] = ring.from_bytes(os.urandom(ring.BYTES * count), count)
        present = self._exchange("max", words).any(axis=0).reshape(reached.shape)
        largest = torch.from_numpy(_number_at(present.sum(axis=0) - 1)).view(tensor.shape)
        return largest.to(tensor.device, tensor.dtype)

    def _exchange(self, operation: str, words: np.ndarray) -> np.ndarray:
        label = Label(operation, words.shape[1], self.traffic.phase, self.digest)
        total = self.link.exchange(label, words)
        self._note(ring.to_bytes(total))
        return total

    def _note(self, content: bytes) -> None:
        self._digest.update(hashlib.sha256(content).digest())


def _position(values: np.ndarray) -> np.ndarray:
    """The places of numbers among negative powers of two, zero, and powers of two, rounded up."""
    mantissa, exponent = np.frexp(np.abs(values))
    whole = mantissa == 0.5
    positive = np.clip(np.where(whole, exponent - 1, exponent), LEAST_EXPONENT, MOST_EXPONENT) - LEAST_EXPONENT
    negative = np.clip(exponent - 1, LEAST_EXPONENT, MOST_EXPONENT) - LEAST_EXPONENT
    positive = np.where(np.isfinite(values), positive, POSITIONS - 1)
    return np.where(values == 0, POSITIONS, np.where(values < 0, POSITIONS - 1 - negative, POSITIONS + 1 + positive))


def _number_at(position: np.ndarray) -> np.ndarray:
    """The numbers at the places that `_position` gives."""
    size = np.abs(position - POSITIONS) - 1 + LEAST_EXPONENT
    return np.where(position == POSITIONS, 0.0, np.sign(position - POSITIONS) * np.exp2(size.astype(np.float64)))
