"""The grid: nodes (positions on the sample axis) by blocks (positions on the feature axis).

A rank hosts a contiguous range of positions on each axis. With one process it hosts them all; the code that uses the
grid is the same either way, because a reduction always means "over what this rank hosts, then over the ranks".
"""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

import torch
from torch import Tensor

from psfit.comm import mpi, process_group
from psfit.comm.base import Communicator
from psfit.comm.forks import is_forked, note_use
from psfit.comm.serial import Serial
from psfit.comm.transfers import Transfers
from psfit.common.arguments import NONE, Rule, check, instance, integer, number, one_of

T = TypeVar("T")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
# More seconds than these, some 30 years, are no time to wait for.
LONGEST = 1e9
DEVICE = instance("a device", str, torch.device)
# What each part of a request for a grid may be.
RULES: dict[str, Rule] = {
    "nodes": integer(1) | NONE,
    "blocks": integer(1),
    "device": Rule("'auto' or a device such as 'cpu' or 'cuda:0'", lambda value: str(DEVICE.read(value))),
    "dtype": one_of(*DTYPES) | NONE,
    "backend": one_of("auto", "serial", "torch", "mpi"),
    "timeout": number("a positive number of seconds, at most 1e9", lambda value: 0 < value <= LONGEST),
}
# Ranks that a message names one by one.
MOST_NAMED = 8


class RemoteError(RuntimeError):
    """Another rank could not go on; the message is its own."""


@dataclass(frozen=True)
class GridSpec:
    """What a user asks for: how many nodes and blocks, and what they run on.

    Parameters
    ----------
    nodes : int or None, default=None
        Parts N of the samples; each keeps its rows to itself and only sums leave it. None: one for each rank (or group
        of ranks that share a node's blocks); in a single process, one.
    blocks : int, default=1
        Parts M of the features inside each node (the paper's devices).
    device : str, default="auto"
        A torch device such as ``"cpu"`` or ``"cuda:0"``; ``"cuda"`` is the GPU that belongs to this rank.
        ``"auto"``: where a tensor already lies, else a GPU if there is one.
    dtype : {None, "float32", "float64"}, default=None
        Precision of the iterations; None keeps that of the data. The final refit is always float64.
    backend : {"auto", "serial", "torch", "mpi"}, default="auto"
        The engine that connects ranks. ``"serial"`` hosts the whole grid in this process, ``"torch"`` uses
        torch.distributed (torchrun), ``"mpi"`` mpi4py; ``"auto"`` is whichever has started this process.
    timeout : float, default=1800
        Seconds to wait for another rank before it is given up. A group of torch.distributed that the program has set up
        itself keeps its own time.
    """

    nodes: int | None = None
    blocks: int = 1
    device: str = "auto"
    dtype: str | None = None
    backend: str = "auto"
    timeout: float = 1800.0

    def build(self, data_device: torch.device | None = None) -> "Grid":
        """Check the request and make the grid; `data_device` is where the data already lies, if anywhere.

        With several ranks every one of them must call this.
        """
        asked = GridSpec(**check(self, RULES))
        note_use()
        device = _device(asked.device, data_device)
        dtype = None if asked.dtype is None else DTYPES[asked.dtype]
        world = asked._connect(device)
        # Ranks form a table of their own: the blocks of a node are spread over the columns of a row of ranks.
        blocks = asked.blocks
        across = math.gcd(world.size, blocks)
        down = world.size // across
        nodes = asked.nodes or down
        if nodes < down:
            raise ValueError(
                f"nodes={nodes} and blocks={blocks} cannot occupy {world.size} ranks; "
                f"ask for at least {down} nodes, or start {nodes * across} ranks"
            )
        row, column = divmod(world.rank, across)
        along_nodes = world.split(column) if world.size > 1 else world
        along_blocks = world.split(row) if world.size > 1 else world
        return Grid(Axis(nodes, along_nodes), Axis(blocks, along_blocks), world, device, dtype, self)

    def _connect(self, device: torch.device) -> Communicator:
        backend = self.backend
        if backend == "auto":
            backend = "torch" if process_group.launched() else "mpi" if mpi.launched() else "serial"
        if backend != "serial" and is_forked() and (process_group.connected() or mpi.connected()):
            raise RuntimeError(
                "this process was forked from a rank and cannot speak for it; start processes with multiprocessing's "
                "'spawn' method, or fit without other ranks (grid=None)"
            )
        if backend == "torch":
            return process_group.connect(device, self.timeout)
        return mpi.connect(self.timeout) if backend == "mpi" else Serial()


# What no grid means, whoever has started this process: one node in it.
ALONE = GridSpec(backend="serial")


@dataclass(frozen=True)
class Axis:
    """One axis of the grid: `size` positions in all, of which this rank hosts the range `hosted`."""

    size: int
    comm: Communicator
    hosted: range = field(init=False)

    def __post_init__(self) -> None:
        bounds = even_bounds(self.size, self.comm.size)
        object.__setattr__(self, "hosted", range(bounds[self.comm.rank], bounds[self.comm.rank + 1]))

    def share(self, count: int) -> slice:
        """The part of ``range(count)`` that belongs to the positions hosted here, if all get equally much."""
        bounds = even_bounds(count, self.size)
        return slice(bounds[self.hosted.start], bounds[self.hosted.stop])

    def total(self, local: Tensor) -> Tensor:
        """The sum over the ranks of what each of them has already summed over its own positions."""
        return self.comm.all_reduce(local)

    def most(self, local: Tensor) -> Tensor:
        """The largest over the ranks."""
        return self.comm.all_reduce(local, "max")


@dataclass(frozen=True)
class Grid:
    """Two named axes, all ranks together, the device and precision that this rank computes in, and its `transfers`.

    `spec` is what was asked for. A grid holds live connections: copies of it are the grid itself, and it cannot be
    pickled.
    """

    nodes: Axis
    blocks: Axis
    world: Communicator
    device: torch.device
    dtype: torch.dtype | None
    spec: GridSpec = field(default_factory=GridSpec, repr=False, compare=False)
    transfers: Transfers = field(default_factory=Transfers, repr=False, compare=False)

    def __copy__(self) -> "Grid":
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> "Grid":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a grid that is built holds connections to other ranks and cannot be pickled; pass its GridSpec instead "
            "(set_params(grid=grid.spec) for an estimator)"
        )

    def total(self, local: Tensor) -> Tensor:
        """The sum over all ranks, for numbers that belong to one node and one block each."""
        return self.world.all_reduce(local)

    def once(self, known: Tensor) -> Tensor:
        """A node's number that all the ranks of its blocks know, such that `total` counts it once."""
        return known / self.blocks.comm.size

    def agree(self, wish: bool) -> bool:
        """What the first rank says: for decisions that depend on a clock."""
        return bool(self.world.broadcast(torch.tensor([float(wish)])))

    def rows(self, count: int) -> slice:
        """The range of `count` rows, dealt evenly, that belong to the nodes hosted here."""
        return self.nodes.share(count)

    def columns(self, count: int) -> slice:
        """The range of `count` columns that belong to the blocks hosted here."""
        return self.blocks.share(count)

    def phase(self, name: str) -> None:
        """Say what comes next, for the message of a rank that loses contact."""
        self.world.traffic.phase = name

    def together(self, action: Callable[[], T]) -> T:
        """The result of work on this rank's own data; if it fails on any rank, it fails on all with the reason.

        Where it fails alike on several ranks, the cause of the others' errors is that of the first.
        """
        if self.world.size == 1:
            return action()
        failure, result = None, None
        try:
            result = action()
        except Exception as error:
            failure = error
        message = b"" if failure is None else f"{type(failure).__name__}: {failure}".encode()
        messages = self.world.all_gather(message)
        if failure is not None:
            first = messages.index(message)
            if first < self.world.rank:
                raise failure from RemoteError(f"rank {first} failed alike")
            raise failure
        for rank, other in enumerate(messages):
            if other:
                raise RemoteError(f"rank {rank} failed: {other.decode()}")
        return result  # type: ignore[return-value]

    def require_alike(self, **facts: object) -> None:
        """Raise an error on every rank unless all have the same facts; it says which ranks have what."""
        if self.alike(facts):
            return
        ranks = [json.loads(one) for one in self.world.all_gather(json.dumps([*map(repr, facts.values())]).encode())]
        said = []
        for name, values in zip(facts, zip(*ranks, strict=True), strict=True):
            if len(set(values)) > 1:
                shares = [(value, [r for r, v in enumerate(values) if v == value]) for value in dict.fromkeys(values)]
                said.append(f"{name} is " + " but ".join(f"{value} on {_ranks(where)}" for value, where in shares))
        error = ValueError(f"the ranks do not agree on what to solve: {'; '.join(said)}. Call all of them alike")
        raise error from (RemoteError("rank 0 failed alike") if self.world.rank else None)

    def alike(self, *settings: object) -> bool:
        """Whether all ranks were given settings that print the same."""
        digest = hashlib.sha256(repr(settings).encode()).digest()
        return self.same(torch.tensor([int.from_bytes(digest[:6])], dtype=torch.float64))

    def same(self, values: Tensor) -> bool:
        """Whether all ranks hold the same numbers."""
        values = values.nan_to_num()
        most, least = self.world.all_reduce(torch.stack([values, -values]), "max")
        return bool((most == -least).all())


def build_grid(asked: Grid | GridSpec | None, data_device: torch.device | None = None) -> Grid:
    """The grid that is asked for: one that is built already, or a new one; None is one node in this process."""
    return asked if isinstance(asked, Grid) else (asked or ALONE).build(data_device)


def even_bounds(total: int, parts: int) -> list[int]:
    """Boundaries of `parts` contiguous ranges of ``range(total)`` whose lengths differ by at most one."""
    return [total * k // parts for k in range(parts + 1)]


def _ranks(numbers: list[int]) -> str:
    """Some ranks in words."""
    first, rest = numbers[:MOST_NAMED], len(numbers) - MOST_NAMED
    return f"rank {', '.join(map(str, first))}" + (f" and {rest} more" if rest > 0 else "")


def _device(name: str, data_device: torch.device | None) -> torch.device:
    if name == "auto":
        return data_device or process_group.local_device()
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device={name!r} cannot be used ({reason}); try 'cpu' or 'auto'") from None
    return process_group.local_device() if name == "cuda" else device
