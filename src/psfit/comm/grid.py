"""The grid: nodes (positions on the sample axis) by blocks (positions on the feature axis).

A rank hosts a contiguous range of positions on each axis. With one process it hosts them all; the code that uses the
grid is the same either way, because a reduction always means "over what this rank hosts, then over the ranks".
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from psfit.comm.base import Communicator
from psfit.comm.serial import Serial


@dataclass(frozen=True)
class GridSpec:
    """What a user asks for: how many nodes and blocks, and what they run on.

    Parameters
    ----------
    nodes : int, default=1
        Parts N of the samples; each keeps its rows to itself and only sums leave it.
    blocks : int, default=1
        Parts M of the features inside each node (the paper's devices).
    device : str, default="auto"
        A torch device such as ``"cpu"`` or ``"cuda:0"``. ``"auto"``: where a tensor already lies, else a GPU
        if there is one.
    dtype : {None, "float32", "float64"}, default=None
        Precision of the iterations; None keeps that of the data. The final refit is always float64.
    backend : {"auto", "serial"}, default="auto"
        The engine that connects ranks. ``"serial"`` hosts the whole grid in this process.
    """

    nodes: int = 1
    blocks: int = 1
    device: str = "auto"
    dtype: str | None = None
    backend: str = "auto"

    def build(self, data_device: torch.device | None = None) -> "Grid":
        """Check the request and make the grid; `data_device` is where the data already lies, if anywhere."""
        for name in ("nodes", "blocks"):
            count = getattr(self, name)
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise ValueError(f"{name}={count!r} must be an integer of at least 1")
        if self.backend not in ("auto", "serial"):
            raise ValueError(f"backend={self.backend!r} is unknown; use 'auto' or 'serial'")
        return Grid(
            nodes=Axis(self.nodes, Serial()),
            blocks=Axis(self.blocks, Serial()),
            device=_device(self.device, data_device),
            dtype=_dtype(self.dtype),
        )


@dataclass(frozen=True)
class Axis:
    """One axis of the grid: `size` positions in all, of which this rank hosts the range `hosted`."""

    size: int
    comm: Communicator
    hosted: range = field(init=False)

    def __post_init__(self) -> None:
        bounds = even_bounds(self.size, self.comm.size)
        object.__setattr__(self, "hosted", range(bounds[self.comm.rank], bounds[self.comm.rank + 1]))

    def total(self, local: Tensor) -> Tensor:
        """The sum over the ranks of what each of them has already summed over its own positions."""
        return self.comm.all_reduce(local)


@dataclass(frozen=True)
class Grid:
    """Two named axes and the device and precision that this rank computes in."""

    nodes: Axis
    blocks: Axis
    device: torch.device
    dtype: torch.dtype | None


def even_bounds(total: int, parts: int) -> list[int]:
    """Boundaries of `parts` contiguous ranges of ``range(total)`` whose lengths differ by at most one."""
    return [total * k // parts for k in range(parts + 1)]


def _device(name: str, data_device: torch.device | None) -> torch.device:
    if name == "auto":
        return data_device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device={name!r} cannot be used ({reason}); try 'cpu' or 'auto'") from None
    return device


def _dtype(name: str | None) -> torch.dtype | None:
    known = {None: None, "float32": torch.float32, "float64": torch.float64}
    if name not in known:
        raise ValueError(f"dtype={name!r} is unknown; use 'float32', 'float64' or None")
    return known[name]
