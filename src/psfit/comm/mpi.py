"""Ranks connected by MPI through mpi4py: buffers, never pickles; GPU memory directly where the MPI can read it."""

import atexit
import ctypes
import faulthandler
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from psfit.comm.base import Communicator, PeerLostError, Reduction, Traffic
from psfit.comm.peers import Peers

# How long to look for completion without pause, and the longest pause after that: ranks may share cores.
SPIN_SECONDS = 2e-4
LONGEST_PAUSE = 1e-3
STANDARD_ERROR = 2


class Mpi(Communicator):
    """An MPI communicator whose operations have a time limit."""

    def __init__(self, comm: Any, timeout: float, traffic: Traffic, peers: Peers | None = None) -> None:
        self.comm, self.timeout, self.traffic = comm, timeout, traffic
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.peers = peers or Peers(self.rank, self.size)

    def split(self, color: int) -> Communicator:
        # All ranks have told their colours then, so that none waits in vain. MPI has only so many communicators.
        key = self.comm.py2f(), self._colors(color)
        if key not in _PARTS:
            _PARTS[key] = self.comm.Split(color, self.rank)
        return Mpi(_PARTS[key], self.timeout, self.traffic, self.peers)

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
        self._finish(lambda: self.comm.Iallreduce(MPI.IN_PLACE, _buffer(own), op=operation))
        return own.to(tensor.device)

    def _broadcast(self, tensor: Tensor, root: int) -> Tensor:
        own = self._reachable(tensor)
        self._finish(lambda: self.comm.Ibcast(_buffer(own), root=root))
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

    def _finish(self, start: Callable[[], Any]) -> None:
        """Start an operation and wait until it is done."""
        try:
            self._wait(start())
        except PeerLostError:
            _LOST.append(True)
            raise
        except _module().Exception as error:
            _LOST.append(True)
            raise self._lost(str(error)) from None

    def _wait(self, request: Any) -> None:
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


def connected() -> bool:
    """Whether this process, or the one that it was forked from, has met other ranks."""
    return bool(_PEERS)


def connect(timeout: float) -> Mpi:
    """The communicator of all ranks."""
    _wait_for_all_ranks_to_start_mpi(timeout)
    world = Mpi(_module().COMM_WORLD, timeout, Traffic(), _PEERS[0] if _PEERS else None)
    if not _PEERS:
        world.meet()
        _PEERS.append(world.peers)
    return world


def _wait_for_all_ranks_to_start_mpi(timeout: float) -> None:
    """MPI starts when all ranks do; a rank that never comes ends this one, with this function in what is printed."""
    # Nothing of Python runs while MPI starts, so that only this watch of the interpreter's own can end it.
    if "mpi4py.MPI" in sys.modules or not launched():
        return
    faulthandler.dump_traceback_later(timeout, exit=True, file=STANDARD_ERROR)
    try:
        _module()
    finally:
        faulthandler.cancel_dump_traceback_later()


@atexit.register
def _leave() -> None:
    """End the whole job if a peer was lost: the end of MPI waits for all ranks, and so for those that are lost."""
    if _LOST:
        sys.stdout.flush()
        sys.stderr.flush()
        _module().COMM_WORLD.Abort(1)


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


# Communicators of some of the ranks by what they were split from and the colours of all ranks there: made once.
_PARTS: dict[tuple[int, tuple[int, ...]], Any] = {}
# Who the ranks are, once they have met.
_PEERS: list[Peers] = []
# Whether a peer was lost.
_LOST: list[bool] = []
