"""The grid: nodes (positions on the sample axis) by blocks (positions on the feature axis).

A rank hosts a contiguous range of positions on each axis; a single process hosts all of them. The code that uses the
grid is the same in both cases: a reduction always means "over what this rank hosts, then over the ranks".
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
from psfit.comm.fork_threads import is_forked, note_threads
from psfit.comm.serial import Serial
from psfit.comm.transfers import Transfers
from psfit.common.arguments import NONE, Rule, check, instance, integer, number, one_of

T = TypeVar("T")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
# The longest timeout in seconds, about 30 years.
LONGEST = 1e9
DEVICE = instance("a device", str, torch.device)
# The rule for each argument of GridSpec.
RULES: dict[str, Rule] = {
    "nodes": integer(1) | NONE,
    "blocks": integer(1),
    "device": Rule("'auto' or a device such as 'cpu' or 'cuda:0'", lambda value: str(DEVICE.read(value))),
    "dtype": one_of(*DTYPES) | NONE,
    "backend": one_of("auto", "serial", "torch", "mpi"),
    "timeout": number("a positive number of seconds, at most 1e9", lambda value: 0 < value <= LONGEST),
}
# The most ranks that a message names.
MOST_NAMED = 8


class RemoteError(RuntimeError):
    """Another rank has failed; the message is the other rank's."""


@dataclass(frozen=True)
class GridSpec:
    """The grid that a user asks for: how many nodes and blocks, and on which devices.

    Parameters
    ----------
    nodes : int or None, default=None
        Number N of parts of the samples; the rows of a node stay there, only sums leave it. None means one for each
        rank (or group of ranks that share a node's blocks), and one in a single process.
    blocks : int, default=1
        Number M of parts of the features inside each node (the paper's devices).
    device : str, default="auto"
        A torch device such as ``"cpu"`` or ``"cuda:0"``; ``"cuda"`` is the GPU that belongs to this rank.
        ``"auto"`` is the device of the data if they are a tensor, else a GPU if there is one.
    dtype : {None, "float32", "float64"}, default=None
        Precision of the iterations; None means that of the data. The final refit is always float64.
    backend : {"auto", "serial", "torch", "mpi"}, default="auto"
        What connects the ranks. ``"serial"`` hosts the whole grid in this process, ``"torch"`` uses
        torch.distributed (torchrun), ``"mpi"`` uses mpi4py; ``"auto"`` is the one that started this process.
    timeout : float, default=1800
        Seconds to wait for another rank before this one fails. If the program has set up torch.distributed itself, the
        timeout of that group applies.
    """

    nodes: int | None = None
    blocks: int = 1
    device: str = "auto"
    dtype: str | None = None
    backend: str = "auto"
    timeout: float = 1800.0

    def build(self, data_device: torch.device | None = None) -> "Grid":
        """Check the arguments and make the grid; `data_device` is the device of the data, if they are a tensor.

        With several ranks, all of them must call this.
        """
        asked = GridSpec(**check(self, RULES))
        note_threads()
        device = _device(asked.device, data_device)
        dtype = None if asked.dtype is None else DTYPES[asked.dtype]
        world = asked._connect(device)
        # The ranks form a table: a row of ranks hosts the blocks of its nodes.
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
            backend = "torch" if process_group.is_launched() else "mpi" if mpi.is_launched() else "serial"
        if backend != "serial" and is_forked() and (process_group.is_connected() or mpi.is_connected()):
            raise RuntimeError(
                "this process was forked from a rank and cannot take its place; start processes with "
                "multiprocessing's 'spawn' method, or fit without other ranks (grid=None)"
            )
        if backend == "torch":
            return process_group.connect(device, self.timeout)
        return mpi.connect(self.timeout) if backend == "mpi" else Serial()


# The grid when none is asked for: one node in this process, also under a launcher.
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

    def hosted_part(self, count: int) -> slice:
        """The part of ``range(count)`` that belongs to the positions hosted here, if it is divided evenly."""
        bounds = even_bounds(count, self.size)
        return slice(bounds[self.hosted.start], bounds[self.hosted.stop])

    def total(self, local: Tensor) -> Tensor:
        """The sum over the ranks; each rank has already summed over its own positions."""
        return self.comm.all_reduce(local)

    def maximum(self, local: Tensor) -> Tensor:
        """The largest over the ranks."""
        return self.comm.all_reduce(local, "max")


@dataclass(frozen=True)
class Grid:
    """Two axes, the communicator of all ranks, this rank's device and precision, and the counter of its transfers.

    `spec` is the request that it was built from. A grid holds open connections: a copy of it is the grid itself, and it
    cannot be pickled.
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
            "(for an estimator: set_params(grid=model.grid.spec))"
        )

    def total(self, local: Tensor) -> Tensor:
        """The sum over all ranks, for numbers that belong to one node and one block each."""
        return self.world.all_reduce(local)

    def total_latest(self, local: Tensor) -> Tensor:
        """The sum over all ranks, for iterates: the last numbers of a rank may represent those that do not arrive."""
        return self.world.reduce_latest(local)

    def count_once(self, known: Tensor) -> Tensor:
        """Scale a node's number that all ranks of its blocks have, so that `total` counts it once."""
        return known if self.blocks.comm.size == 1 else known / self.blocks.comm.size

    def follow_first_rank(self, decision: bool) -> bool:
        """The decision of the first rank, on all ranks: for decisions that depend on a clock."""
        return bool(self.world.broadcast(torch.tensor([float(decision)])))

    def agree(self, *numbers: Tensor) -> tuple[Tensor, ...]:
        """The numbers of the first rank, on all ranks: for those that each rank has computed and that decide something.

        Processors of different kinds round differently, even if all of them begin with the same numbers.
        """
        if self.world.size == 1:
            return numbers
        joined = self.world.broadcast(torch.cat([part.flatten().double() for part in numbers]))
        parts = joined.split([part.numel() for part in numbers])
        return tuple(part.view(like.shape).to(like.dtype) for part, like in zip(parts, numbers, strict=True))

    def total_of_nodes(self, local: Tensor) -> Tensor:
        """The sum over the nodes of what each rank of a node's blocks has computed for it; the same on all ranks."""
        return self.blocks.comm.broadcast(self.nodes.total(local))

    def rows(self, count: int) -> slice:
        """The range of `count` rows, divided evenly, that belongs to the nodes hosted here."""
        return self.nodes.hosted_part(count)

    def columns(self, count: int) -> slice:
        """The range of `count` columns that belongs to the blocks hosted here."""
        return self.blocks.hosted_part(count)

    def phase(self, name: str) -> None:
        """Note which phase begins, for the message of a rank that loses contact."""
        self.world.traffic.phase = name

    def run_together(self, action: Callable[[], T]) -> T:
        """Do work on this rank's own data and return its result; if it fails on one rank, it fails on all.

        Where several ranks have the same error, the first of them is the cause of the others' errors.
        """
        if self.world.size == 1:
            return action()
        failure, result = None, None
        try:
            result = action()
        except Exception as error:
            failure = error
        message = b"" if failure is None else f"{type(failure).__name__}: {failure}".encode()
        messages = self.world.gather_failures(message)
        if failure is not None:
            first = messages.index(message)
            if first < self.world.rank:
                raise failure from RemoteError(f"rank {first} failed in the same way")
            raise failure
        for rank, other in enumerate(messages):
            if other:
                raise RemoteError(f"rank {rank} failed: {other.decode()}")
        return result  # type: ignore[return-value]

    def require_same(self, **facts: object) -> None:
        """Raise an error on every rank unless all have the same facts; it lists the ranks with each value."""
        if self.have_same_settings(facts):
            return
        ranks = [json.loads(one) for one in self.world.all_gather(json.dumps([*map(repr, facts.values())]).encode())]
        differences = []
        for name, values in zip(facts, zip(*ranks, strict=True), strict=True):
            if len(set(values)) > 1:
                shares = [(value, [r for r, v in enumerate(values) if v == value]) for value in dict.fromkeys(values)]
                differences.append(
                    f"{name} is " + " but ".join(f"{value} on {_rank_text(where)}" for value, where in shares)
                )
        error = ValueError(
            f"the ranks do not agree on what to solve: {'; '.join(differences)}. Give all of them the same arguments"
        )
        raise error from (RemoteError("rank 0 failed in the same way") if self.world.rank else None)

    def have_same_settings(self, *settings: object) -> bool:
        """Whether all ranks have settings with the same printed form."""
        digest = hashlib.sha256(repr(settings).encode()).digest()
        return self.have_same_values(torch.tensor([int.from_bytes(digest[:6])], dtype=torch.float64))

    def have_same_values(self, values: Tensor) -> bool:
        """Whether all ranks hold the same numbers."""
        return self.world.have_same_values(values.nan_to_num())


def build_grid(asked: Grid | GridSpec | None, data_device: torch.device | None = None) -> Grid:
    """The grid that is asked for: one that is built already, or a new one; None means one node in this process."""
    return asked if isinstance(asked, Grid) else (asked or ALONE).build(data_device)


def even_bounds(total: int, parts: int) -> list[int]:
    """Boundaries of `parts` contiguous ranges of ``range(total)`` whose lengths differ by at most one."""
    return [total * k // parts for k in range(parts + 1)]


def _rank_text(numbers: list[int]) -> str:
    """Ranks as a message names them."""
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
