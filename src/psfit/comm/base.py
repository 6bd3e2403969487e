"""The contract of a communicator: sums, extremes and copies over the ranks of one axis."""

from abc import ABC, abstractmethod
from typing import Literal

from torch import Tensor

Reduction = Literal["sum", "max", "min"]


class Communicator(ABC):
    """A group of ranks. Every rank calls the same methods in the same order with tensors of the same shape."""

    rank: int
    size: int

    @abstractmethod
    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> Tensor:
        """The elementwise sum, maximum or minimum over all ranks, the same on every rank."""

    @abstractmethod
    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        """The tensor of rank `root`, on every rank."""
