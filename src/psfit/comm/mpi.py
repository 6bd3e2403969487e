"""Ranks connected by MPI through mpi4py: buffers, never pickles; GPU memory directly where the MPI can read it."""

import ctypes
import os
import sys
import time
import traceback
from typing import Any

import torch
from torch import Tensor

from psfit.comm.base import Communicator, Reduction, Traffic

# How long to look for completion without pause, and the longest pause after that: ranks may share cores.
SPIN_SECONDS = 2e-4
LONGEST_PAUSE = 1e-3


class Mpi(Communicator):
    """An MPI communicator whose operations have a time limit."""

    def __init__(self, comm: Any, timeout: float, traffic: Traffic) -> None:
        self.comm, self.timeout, self.traffic = comm, timeout, traffic
        self.rank, self.size = comm.Get_rank(), comm.Get_size()

    def split(self, color: int) -> Communicator:
        return Mpi(self.comm.Split(color, self.rank), self.timeout, self.traffic)

    def abort(self, error: BaseException) -> None:
        # MPI has no other way to wake peers that wait in a reduction, and the exception will not get any further.
        print(f"rank {self.rank} failed during {self.traffic.phase}: {type(error).__name__}: {error}", file=sys.stderr)
        traceback.print_exception(error)
        sys.stderr.flush()
        _module().COMM_WORLD.Abort(1)

    def _all_reduce(self, tensor: Tensor, op: Reduction) -> Tensor:
        MPI = _module()
        operation = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}[op]
        own = self._reachable(tensor)
        self._finish(self.comm.Iallreduce(MPI.IN_PLACE, _buffer(own), op=operation))
        return own.to(tensor.device)

    def _broadcast(self, tensor: Tensor, root: int) -> Tensor:
        own = self._reachable(tensor)
        self._finish(self.comm.Ibcast(_buffer(own), root=root))
        return own.to(tensor.device)

    @staticmethod
    def _reachable(tensor: Tensor) -> Tensor:
        """A copy in memory that the MPI can read."""
        if not tensor.is_cuda:
            return tensor.contiguous().clone()
        if cuda_aware():
            own = tensor.contiguous().clone()
            torch.cuda.current_stream(tensor.device).synchronize()
            return own
        return tensor.contiguous().cpu()

    def _finish(self, request: Any) -> None:
        began, pause = time.monotonic(), 0.0
        while not request.Test():
            waited = time.monotonic() - began
            if waited > self.timeout:
                raise self._lost(f"no answer for {self.timeout:g} s")
            if waited > SPIN_SECONDS:
                pause = min(LONGEST_PAUSE, 2 * pause + 1e-5)
                time.sleep(pause)


def launched() -> bool:
    """Whether an MPI launcher has started this process together with others."""
    names = ("PMI_SIZE", "PMIX_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
    return any(int(os.environ.get(name, "1")) > 1 for name in names)


def connect(timeout: float) -> Mpi:
    """The communicator of all ranks."""
    return Mpi(_module().COMM_WORLD, timeout, Traffic())


def cuda_aware() -> bool:
    """Whether this MPI says that it reads GPU memory (Open MPI and MPICH can be asked)."""
    library = ctypes.CDLL(_module().__file__)
    if hasattr(library, "MPIX_Query_cuda_support"):
        return bool(library.MPIX_Query_cuda_support())
    if hasattr(library, "MPIX_GPU_query_support"):
        answer = ctypes.c_int(0)
        library.MPIX_GPU_query_support(0, ctypes.byref(answer))
        return bool(answer.value)
    return False


def _buffer(tensor: Tensor) -> Any:
    """What mpi4py reads and writes in place: a NumPy view, or the tensor itself on a GPU."""
    return tensor if tensor.is_cuda else tensor.numpy()


def _module() -> Any:
    try:
        from mpi4py import MPI
    except ImportError:
        raise ImportError("backend='mpi' needs mpi4py: pip install 'psfit[mpi]', or build it for your MPI") from None
    return MPI
