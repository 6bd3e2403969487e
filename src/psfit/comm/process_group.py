"""Ranks connected by torch.distributed: gloo between CPUs, NCCL between GPUs, or whatever the caller has set up."""

import atexit
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import Tensor

from psfit.comm.base import Communicator, Reduction, Traffic
from psfit.comm.rendezvous import fresh_store

# Where launchers say which of a host's ranks this is: torchrun, Open MPI, MPICH, Slurm.
LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


class ProcessGroup(Communicator):
    """A torch.distributed group; `owned` says that PsFiT itself has joined the job and may leave it."""

    def __init__(self, group: Any, device: torch.device, timeout: float, traffic: Traffic, owned: bool) -> None:
        self.group, self.device, self.timeout, self.traffic, self.owned = group, device, timeout, traffic, owned
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self._parts: dict[tuple[int, ...], ProcessGroup] = {}
        _MEMBERS.add(self)

    def split(self, color: int) -> Communicator:
        colors = torch.zeros(self.size, dtype=torch.int64)
        colors[self.rank] = color
        colors = self.all_reduce(colors)
        table = tuple(colors.tolist())
        if table in self._parts:
            return self._parts[table]
        ranks = dist.get_process_group_ranks(self.group)
        mine = None
        # Every rank takes part in making every group, also those it will not belong to.
        for value in sorted(set(table)):
            members = [rank for rank, other in zip(ranks, table, strict=True) if other == value]
            made = dist.new_group(members, timeout=timedelta(seconds=self.timeout))
            mine = made if value == color else mine
        self._parts[table] = ProcessGroup(mine, self.device, self.timeout, self.traffic, False)
        return self._parts[table]

    def abort(self, error: BaseException) -> None:
        # Closing the connections wakes peers that wait in a reduction.
        if self.owned:
            _leave()

    def _all_reduce(self, tensor: Tensor, op: Reduction) -> Tensor:
        return self._moved(tensor, lambda own: dist.all_reduce(own, OPERATIONS[op], group=self.group))

    def _broadcast(self, tensor: Tensor, root: int) -> Tensor:
        return self._moved(tensor, lambda own: dist.broadcast(own, group=self.group, group_src=root))

    def _moved(self, tensor: Tensor, apply: Callable[[Tensor], object]) -> Tensor:
        """`apply` to a copy of the tensor that lies where the backend can reach it."""
        own = tensor.contiguous().clone()
        if dist.get_backend(self.group) == "nccl" and not own.is_cuda:
            own = own.to(self.device)
        try:
            apply(own)
        except RuntimeError as error:
            raise self._lost(str(error).splitlines()[0]) from None
        return own.to(tensor.device)


def launched() -> bool:
    """Whether this process is one of several that torchrun (or the caller) has connected or is about to connect."""
    return dist.is_available() and (dist.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) > 1)


def local_device() -> torch.device:
    """The GPU that belongs to this rank among those of its host, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    place = next((os.environ[name] for name in LOCAL_RANKS if name in os.environ), "0")
    return torch.device("cuda", int(place) % torch.cuda.device_count())


def connect(device: torch.device, timeout: float) -> ProcessGroup:
    """The group of all ranks; joins the job that torchrun's environment describes, unless the caller already has."""
    known = _WORLD[-1] if _WORLD else None
    if known is not None and dist.is_initialized() and known.group is dist.group.WORLD and known.device == device:
        return known
    owned = not dist.is_initialized()
    if owned:
        missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise ValueError(
                f"backend='torch' needs ranks started by torchrun, or torch.distributed set up beforehand; "
                f"{', '.join(missing)} is not set. Try: torchrun --standalone --nproc-per-node 4 your_program.py"
            )
        if device.type == "cuda":
            torch.cuda.set_device(device)
        limit = timedelta(seconds=timeout)
        store, rank, size = next(dist.rendezvous("env://", timeout=limit))
        store = fresh_store(store, rank, size, timeout)
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    elif known is not None and known.group is dist.group.WORLD:
        owned = known.owned
    _WORLD[:] = [ProcessGroup(dist.group.WORLD, device, timeout, Traffic(), owned)]
    return _WORLD[0]


@atexit.register
def _leave() -> None:
    """Let go of the groups, and leave the job if PsFiT itself joined it.

    The threads of a group must have ended before the interpreter does, or they end the program with an abort. They
    live as long as anybody holds the group: also one of the caller's own, which the caller may have taken down.
    """
    owned = any(world.owned for world in _WORLD)
    _WORLD.clear()
    for member in _MEMBERS:
        member.group = None
    if owned and dist.is_initialized():
        dist.destroy_process_group()


# The group of all ranks as last connected: making subgroups takes messages, so they are made once.
_WORLD: list[ProcessGroup] = []
# Every communicator that may still hold a group.
_MEMBERS: WeakSet[ProcessGroup] = WeakSet()
