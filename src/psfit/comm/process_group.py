"""Ranks connected by torch.distributed: gloo between CPUs, NCCL between GPUs, or what the caller has set up."""

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
from psfit.comm.peers import Peers
from psfit.comm.rendezvous import fresh_store

# Environment variables with the rank's number on its host: of torchrun, Open MPI, MPICH, Slurm.
LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}


class ProcessGroup(Communicator):
    """A torch.distributed group; `owned` means that PsFiT itself has joined the job and may leave it."""

    def __init__(
        self,
        group: Any,
        device: torch.device,
        timeout: float,
        traffic: Traffic,
        owned: bool,
        peers: Peers | None = None,
    ) -> None:
        self.group, self.device, self.timeout, self.traffic, self.owned = group, device, timeout, traffic, owned
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.peers = peers or Peers(self.rank, self.size)
        self.job = dist.group.WORLD
        self._parts: dict[tuple[int, ...], ProcessGroup] = {}
        _MEMBERS.add(self)

    def split(self, color: int) -> Communicator:
        colors = self._gather_colors(color)
        if colors in self._parts:
            return self._parts[colors]
        ranks = dist.get_process_group_ranks(self.group)
        mine = None
        # Every rank must take part in making every group, also groups that it does not belong to.
        for value in sorted(set(colors)):
            members = [rank for rank, other in zip(ranks, colors, strict=True) if other == value]
            made = dist.new_group(members, timeout=timedelta(seconds=self.timeout))
            mine = made if value == color else mine
        self._parts[colors] = ProcessGroup(mine, self.device, self.timeout, self.traffic, False, self.peers)
        return self._parts[colors]

    def abort(self, error: BaseException) -> None:
        # Closing the connections wakes peers that wait in a reduction.
        if self.owned:
            leave()

    def _all_reduce(self, tensor: Tensor, op: Reduction) -> Tensor:
        return self._apply_to_copy(tensor, lambda own: dist.all_reduce(own, OPERATIONS[op], group=self.group))

    def _broadcast(self, tensor: Tensor, root: int) -> Tensor:
        return self._apply_to_copy(tensor, lambda own: dist.broadcast(own, group=self.group, group_src=root))

    def _apply_to_copy(self, tensor: Tensor, apply: Callable[[Tensor], object]) -> Tensor:
        """`apply` to a copy of the tensor on a device that the backend can use."""
        own = tensor.contiguous().clone()
        if dist.get_backend(self.group) == "nccl" and not own.is_cuda:
            own = own.to(self.device)
        try:
            apply(own)
        except RuntimeError as error:
            raise self._peer_lost_error(str(error).splitlines()[0]) from None
        return own.to(tensor.device)


def is_launched() -> bool:
    """Whether torchrun (or the caller) has started this process as one of several."""
    return dist.is_available() and (dist.is_initialized() or int(os.environ.get("WORLD_SIZE", "1")) > 1)


def is_connected() -> bool:
    """Whether this process, or the one that it was forked from, has joined other ranks."""
    return bool(_WORLDS)


def local_device() -> torch.device:
    """The GPU that belongs to this rank among those of its host, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    place = next((os.environ[name] for name in LOCAL_RANKS if name in os.environ), "0")
    return torch.device("cuda", int(place) % torch.cuda.device_count())


def connect(device: torch.device, timeout: float) -> ProcessGroup:
    """The group of all ranks; joins the job that torchrun's environment describes, unless the caller already has."""
    _WORLDS[:] = [world for world in _WORLDS if dist.is_initialized() and world.job is dist.group.WORLD]
    for world in _WORLDS:
        if world.device == device and world.timeout == timeout:
            return world
    owned = _WORLDS[0].owned if _WORLDS else not dist.is_initialized()
    if not dist.is_initialized():
        _join_launched(device, timeout)
    group = next((world.group for world in _WORLDS if world.timeout == timeout), dist.group.WORLD)
    if owned and _WORLDS and group is dist.group.WORLD and _WORLDS[0].timeout != timeout:
        # A group keeps the time limit that it was made with.
        group = dist.new_group(timeout=timedelta(seconds=timeout))
    world = ProcessGroup(group, device, timeout, Traffic(), owned, _WORLDS[0].peers if _WORLDS else None)
    if not _WORLDS:
        world.meet()
    _WORLDS.append(world)
    return world


def _join_launched(device: torch.device, timeout: float) -> None:
    """Join the job that the environment describes."""
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ValueError(
            f"backend='torch' needs ranks started by torchrun, or torch.distributed set up beforehand; "
            f"{', '.join(missing)} is not set. Try: torchrun --standalone --nproc-per-node 4 your_program.py"
        )
    store, rank, size = next(dist.rendezvous("env://", timeout=timedelta(seconds=timeout)))
    join(store, rank, size, device, timeout)


def join(
    store: dist.Store,
    rank: int,
    size: int,
    device: torch.device,
    timeout: float,
    is_given_up: Callable[[], bool] = lambda: False,
) -> None:
    """Join the job whose ranks meet in a store; until they have, `is_given_up` may say that they never will."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = fresh_store(store, rank, size, timeout, is_given_up)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout))


@atexit.register
def leave() -> None:
    """Release the groups, and leave the job if PsFiT itself joined it.

    The threads of a group must end before the interpreter does, or they end the program with an abort. They run as
    long as any object refers to the group. This holds for the caller's own group, too.
    """
    owned = any(world.owned for world in _WORLDS)
    _WORLDS.clear()
    for member in _MEMBERS:
        member.group = member.job = None
    if owned and dist.is_initialized():
        dist.destroy_process_group()


# Groups of all ranks of this job, one for each device and time limit; making a group takes messages, so they are kept.
_WORLDS: list[ProcessGroup] = []
# Every communicator that may still refer to a group.
_MEMBERS: WeakSet[ProcessGroup] = WeakSet()
