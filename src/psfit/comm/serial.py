"""The communicator of a single process: a real object of size one, so that no caller ever branches."""

from torch import Tensor

from psfit.comm.base import Communicator, Reduction


class Serial(Communicator):
    """One rank; every reduction returns what it was given."""

    rank = 0
    size = 1

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> Tensor:
        return tensor

    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        return tensor
