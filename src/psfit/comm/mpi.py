"""Ranks connected by MPI through mpi4py: only buffers, no pickles; GPU memory directly if the MPI can read it."""

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

# Seconds to test for completion without pause, and the longest pause after that: ranks may share cores.
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
        # A group is made once and kept: the number of MPI's communicators is limited. Here all ranks exchange their
        # colours, so all take the same branch below.
        key = self.comm.py2f(), self._gather_colors(color)
        if key not in _PARTS:
            _PARTS[key] = self.comm.Split(color, self.rank)
        return Mpi(_PARTS[key], self.timeout, self.traffic, self.peers)

    def abort(self, error: BaseException) -> None:
        # MPI has no other way to wake peers that wait in a reduction. The program ends here, so the error is printed.
        print(f"rank {self.rank} failed during {self.traffic.phase}: {type(error).__name__}: {error}", file=sys.stderr)
        traceback.print_exception(error)
        sys.stderr.flush()
        _mpi_module().COMM_WORLD.Abort(1)

    def _all_reduce(self, tensor: Tensor, op: Reduction) -> Tensor:
        MPI = _mpi_module()
        operation = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}[op]
        own = self._copy_for_mpi(tensor)
        self._finish(lambda: self.comm.Iallreduce(MPI.IN_PLACE, _buffer(own), op=operation))
        return own.to(tensor.device)

    def _broadcast(self, tensor: Tensor, root: int) -> Tensor:
        own = self._copy_for_mpi(tensor)
        self._finish(lambda: self.comm.Ibcast(_buffer(own), root=root))
        return own.to(tensor.device)

    @staticmethod
    def _copy_for_mpi(tensor: Tensor) -> Tensor:
        """A copy in memory that the MPI can read."""
        if not tensor.is_cuda:
            return tensor.contiguous().clone()
        if is_cuda_aware():
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
        except _mpi_module().Exception as error:
            _LOST.append(True)
            raise self._peer_lost_error(str(error)) from None

    def _wait(self, request: Any) -> None:
        began, pause = time.monotonic(), 0.0
        while not request.Test():
            waited = time.monotonic() - began
            if waited > self.timeout:
                raise self._peer_lost_error(f"no answer for {self.timeout:g} s")
            if waited > SPIN_SECONDS:
                pause = min(LONGEST_PAUSE, 2 * pause + 1e-5)
                time.sleep(pause)


def is_launched() -> bool:
    """Whether an MPI launcher has started this process together with others."""
    names = ("PMI_SIZE", "PMIX_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
    return any(int(os.environ.get(name, "1")) > 1 for name in names)


def is_connected() -> bool:
    """Whether this process, or the one that it was forked from, is connected to other ranks."""
    return bool(_PEERS)


def connect(timeout: float) -> Mpi:
    """The communicator of all ranks."""
    _wait_for_all_ranks_to_start_mpi(timeout)
    world = Mpi(_mpi_module().COMM_WORLD, timeout, Traffic(), _PEERS[0] if _PEERS else None)
    if not _PEERS:
        world.meet()
        _PEERS.append(world.peers)
    return world


def _wait_for_all_ranks_to_start_mpi(timeout: float) -> None:
    """Start MPI; if another rank does not start within `timeout`, exit. The printed traceback has this name."""
    # No Python code runs while MPI starts, so only this timer of the interpreter can end the process.
    if "mpi4py.MPI" in sys.modules or not is_launched():
        return
    faulthandler.dump_traceback_later(timeout, exit=True, file=STANDARD_ERROR)
    try:
        _mpi_module()
    finally:
        faulthandler.cancel_dump_traceback_later()


@atexit.register
def _abort_after_loss() -> None:
    """Abort the whole job if a peer was lost: MPI's own end would wait for the lost rank forever."""
    if _LOST:
        sys.stdout.flush()
        sys.stderr.flush()
        _mpi_module().COMM_WORLD.Abort(1)


def is_cuda_aware() -> bool:
    """Whether this MPI can read GPU memory, as far as it says (Open MPI and MPICH do)."""
    library = ctypes.CDLL(_mpi_module().__file__)
    if hasattr(library, "MPIX_Query_cuda_support"):
        return bool(library.MPIX_Query_cuda_support())
    if hasattr(library, "MPIX_GPU_query_support"):
        answer = ctypes.c_int(0)
        library.MPIX_GPU_query_support(0, ctypes.byref(answer))
        return bool(answer.value)
    return False


def _buffer(tensor: Tensor) -> Any:
    """What mpi4py reads and writes in place: a NumPy view, or the tensor itself if it is on a GPU."""
    return tensor if tensor.is_cuda else tensor.numpy()


def _mpi_module() -> Any:
    try:
        from mpi4py import MPI
    except ImportError:
        raise ImportError(
            "backend='mpi' needs mpi4py: pip install 'psfit-toolbox[mpi]', or build it for your MPI"
        ) from None
    return MPI


# Groups of ranks, by the communicator that was split and the colours of all its ranks; each is made once.
_PARTS: dict[tuple[int, tuple[int, ...]], Any] = {}
# The processes of all ranks, once they have been exchanged.
_PEERS: list[Peers] = []
# Whether a peer was lost.
_LOST: list[bool] = []
