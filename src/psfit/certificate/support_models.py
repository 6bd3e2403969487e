"""Second-order models on decided supports: steps to their minima are Newton's steps, one small system for each row.

The models hold the second derivatives of the chosen columns alone. So each row has its own, whatever the number of
columns, and a few steps are exact.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.certificate.node_points import Points, Samples
from psfit.kernels.batch_box import BatchBounds
from psfit.kernels.linalg import solve_spd
from psfit.problem import Domain

# The most numbers in the chosen columns of the rows that are served at once.
MOST_NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 28}


@dataclass(frozen=True)
class SupportModels:
    """Second derivatives ``H (B, k, k)``, ridge included, of the columns ``index (B, k)``, of which some are `used`.

    The last ones are those of the intercepts, of which `free` exist.
    """

    H: Tensor
    index: Tensor
    used: Tensor
    free: int

    @property
    def corners(self) -> Tensor | None:
        """The second derivatives of the intercepts, ``(B, free)``."""
        if not self.free:
            return None
        return self.H.diagonal(dim1=1, dim2=2)[:, -self.free :].clamp(min=torch.finfo(self.H.dtype).tiny)

    def select(self, rows: Tensor) -> "SupportModels":
        """The models of some rows."""
        return replace(self, H=self.H[rows], index=self.index[rows], used=self.used[rows])

    def put(self, rows: Tensor, other: "SupportModels") -> "SupportModels":
        """The same with other models of some rows."""
        return replace(self, H=self.H.index_copy(0, rows, other.H))

    def minimise(self, samples: Samples, points: Points, domain: Domain, tolerance: Tensor) -> Tensor:
        """The minimisers ``(B, n)`` of the models at the points, which are zero outside the supports.

        Where signs are given, they are points close to the minimisers.
        """
        ridge = torch.nn.functional.pad(samples.ridge, (0, samples.n - samples.p))
        slope = torch.where(self.used, (points.g + ridge * points.x).gather(1, self.index), 0.0)
        if samples.box is None:
            step = -solve_spd(self.H, slope.unsqueeze(2)).squeeze(2)
        else:
            x = torch.where(self.used, points.x.gather(1, self.index), 0.0)
            low, high = (part.T[:, self.index].squeeze(0) for part in samples.box.with_free(samples.n - samples.p))
            q = (self.H @ x.unsqueeze(2)).squeeze(2) - slope
            step = BatchBounds(self.H, low, high).approach(x, q) - x
        return points.x.scatter_add(1, self.index, torch.where(self.used, step, 0.0))


class SupportModelMaker:
    """Makes models on the supports ``chosen (B, p)`` from dense samples."""

    def __init__(self, samples: Samples, chosen: Tensor) -> None:
        self.samples = samples
        free = samples.n - samples.p
        chosen = torch.nn.functional.pad(chosen, (0, free), value=True)
        # The intercepts' columns are the last ones of each row; places that are not used repeat other columns.
        keys = torch.where(chosen, torch.arange(samples.n, device=chosen.device), -1)
        keys = keys.topk(max(1, int(chosen.sum(dim=1).max())), dim=1, sorted=True).values.flip(1)
        self.index, self.used = keys.clamp(min=0), keys >= 0

    def make(self, bend: Tensor, rows: int, at: Tensor | None = None, rough: bool = False) -> SupportModels:
        """Models of all rows, or of those numbered `at`, from their bends ``(rows, m)``; they are never `rough`."""
        samples = self.samples
        assert samples.dense is not None
        index, used = (self.index, self.used) if at is None else (self.index[at], self.used[at])
        H = bend.new_empty(rows, index.shape[1], index.shape[1])
        columns, most = samples.dense.values.T, MOST_NUMBERS[bend.device.type]
        for part in torch.arange(rows, device=bend.device).split(max(1, most // (index.shape[1] * samples.m))):
            H[part] = self.multiply(columns, index[part], bend[part])
        H = samples.inst.grid.nodes.total(H)
        H = torch.where(used.unsqueeze(2) & used.unsqueeze(1), H, 0.0)
        ridge = torch.nn.functional.pad(samples.ridge, (0, samples.n - samples.p))[index]
        return SupportModels(
            H + torch.diag_embed(torch.where(used, ridge, 1.0)), index, used, free=samples.n - samples.p
        )

    def multiply(self, columns: Tensor, index: Tensor, bend: Tensor) -> Tensor:
        """The second derivatives ``(B, k, k)`` of the `columns` ``(n, m)`` with numbers ``index (B, k)``."""
        some = columns[index]
        return (some * bend.unsqueeze(1)) @ some.mT
