"""Many supports of one problem with their columns: objectives, gradients and Hessians, by shared passes over the data.

If some supports have fewer variables than others, they get further ones that are always zero.
"""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from psfit.data import DesignMatrix
from psfit.kernels.batch_box import BatchBounds
from psfit.kernels.linalg import cholesky
from psfit.search.local_form import LocalForm
from psfit.search.objective import Objective
from psfit.search.support_samples import copy_samples

EVERY = slice(None)
# Supports are evaluated together as long as their predictors are at most so many numbers.
MOST_NUMBERS = 1 << 24
# Compiled loops, in one thread, evaluate supports whose columns together are at most so many numbers.
MOST_LOOPED = 1 << 18
# Every step has Hessians of its own if the products of pairs of columns of the samples are at most so many.
MOST_PRODUCTS = 1 << 23


class SupportBatch:
    """The variables of each support are a row ``(B, d)``."""

    def __init__(self, objective: Objective, local: LocalForm, supports: list[np.ndarray]) -> None:
        self.inst = inst = objective.inst
        self.outputs = objective.outputs
        self.c, n = len(self.outputs), len(inst.ridge)
        device, form = inst.ridge.device, local.form
        chosen = local.unpack(np.stack(supports))
        masks = torch.stack([inst.items.mask_one(one) for one in chosen])
        free = torch.ones(len(chosen), inst.items.free, self.c, dtype=torch.bool, device=device)
        masks = torch.cat([masks, free], dim=1)
        self.rows = masks.any(dim=2).any(dim=0).nonzero().flatten()
        # The number of every variable among all of the problem, among those of the rows, and in the form.
        flat = masks[:, self.rows].flatten(1)
        self.place, self.real = _find_places(flat)
        in_form = self._numbers_in_form(local, n, device)[self.rows].flatten()[self.place]
        self.ridge = inst.ridge[self.rows].expand(-1, self.c).reshape(-1)[self.place]
        H, both = form.H[in_form.unsqueeze(2), in_form.unsqueeze(1)], self.real.unsqueeze(2) * self.real.unsqueeze(1)
        self.H = both * H + torch.diag_embed(1 - self.real)
        self.q = self.real * form.Q[:, 0][in_form]
        self.factor = cholesky(self.H)
        self.bounds: BatchBounds | None = None
        if inst.box is not None:
            tables = (part[self.rows][:, self.outputs] for part in inst.box.with_free(inst.items.free))
            self.bounds = BatchBounds(self.H, *(table.flatten()[self.place] for table in tables))
        self.target = inst.source.target[:, self.outputs]
        equal = objective.equal_samples
        self.own = None if equal is None else equal.merge(self.rows[self.place])
        self.table: np.ndarray | None = None
        numbers = self.place.numel() * len(self.target)
        small = device.type == "cpu" and self.c == 1 and numbers <= MOST_LOOPED
        if small and self.own is None and self._can_make_hessians(numbers):
            self.own = copy_samples(self.matrix, self.place, inst.source, int(self.outputs[0]))
        elif small and self.own is None:
            self.table = np.ascontiguousarray(self.matrix.chunk(0, len(self.target), torch.float64).T.numpy())

    @cached_property
    def matrix(self) -> DesignMatrix:
        """The columns of all supports."""
        return self.inst.source.matrix.columns(self.rows)

    def _numbers_in_form(self, local: LocalForm, n: int, device: torch.device) -> Tensor:
        """The number of each coefficient ``(n, c')`` in the form; -1 where it has none."""
        inst, numbers = self.inst, torch.full((n, self.c), -1, device=device)
        free = inst.items.free * self.c
        size = len(local.form.H)
        if inst.items.in_blocks or local.index is None:
            features = torch.arange(inst.items.features, device=device)
            features = features if local.index is None else inst.items.features_of(local.index)
            numbers[features] = torch.arange(len(features) * self.c, device=device).view(-1, self.c)
        else:
            counted = numbers[: inst.items.features].flatten()
            counted[local.index] = torch.arange(len(local.index), device=device)
            numbers[: inst.items.features] = counted.view(-1, self.c)
        numbers[inst.items.features :] = torch.arange(size - free, size, device=device).view(-1, self.c)
        return numbers

    def start(self) -> Tensor:
        """The minimisers of the form; with bounds, points close to them."""
        x = torch.cholesky_solve(self.q.unsqueeze(2), self.factor).squeeze(2)
        if self.bounds is not None:
            x = self.bounds.approach(x, self.q)
        return self.inst.grid.agree(x)[0]

    def gather(self, Z: Tensor) -> Tensor:
        """The variables ``(B, d)`` of coefficients ``Z (n, c)``."""
        x = self.real * Z[self.rows][:, self.outputs].double().flatten()[self.place]
        return x if self.bounds is None else self.bounds.clip(x)

    def evaluate(self, x: Tensor, index: Tensor | slice = EVERY) -> tuple[Tensor, Tensor]:
        """Objectives ``(k,)`` and gradients ``(k, d)`` of the supports in `index`; the same on all ranks."""
        place, ridge, real = self.place[index], self.ridge[index], self.real[index]
        if self.own is not None:
            sums = self.own.sum_losses(self.inst.problem.loss, x, index)
        else:
            room = max(1, MOST_NUMBERS // max(1, self.target.numel()))
            parts = [self._sum_samples(*part) for part in zip(x.split(room), place.split(room), strict=True)]
            sums = torch.cat(parts) if len(x) else x.new_zeros(0, x.shape[1] + 1)
        if self.inst.grid.nodes.comm.rank == 0:
            sums[:, 0] += 0.5 * (ridge * x.square()).sum(dim=1)
        summed = self.inst.grid.total_of_nodes(sums)
        return summed[:, 0], real * (summed[:, 1:] + ridge * x)

    @property
    def makes_hessians(self) -> bool:
        """Whether every step has Hessians of its own: there are few samples, or few different ones."""
        return self.own is not None and self._can_make_hessians(self.own.columns.numel())

    def _can_make_hessians(self, numbers: int) -> bool:
        """Whether Hessians from so many numbers cost little, and no other rank has any."""
        alone = self.bounds is None and self.inst.grid.world.size == 1
        return alone and numbers * self.place.shape[1] <= MOST_PRODUCTS

    def make_hessians(self, x: Tensor, index: Tensor) -> Tensor:
        """The Hessians ``(k, d, d)`` of the supports in `index`."""
        assert self.own is not None
        real = self.real[index]
        H = self.own.sum_curvatures(self.inst.problem.loss, x, index) * real.unsqueeze(2) * real.unsqueeze(1)
        return H + torch.diag_embed(torch.where(real > 0, self.ridge[index], 1.0))

    def _sum_samples(self, x: Tensor, place: Tensor) -> Tensor:
        """Losses of this rank's samples and their derivatives, ``(k, 1 + d)``."""
        if self.table is not None:
            return self._sum_samples_by_loops(self.table, x, place)
        count, source, loss = len(x), self.inst.source, self.inst.problem.loss
        X = self._spread(x, place).permute(1, 0, 2).reshape(len(self.rows), count * self.c)
        # Predictors (samples, supports, outputs): to a joint loss a sample of each support is a sample of its own.
        eta = self.matrix.mv(X.to(self.matrix.dtype)).double().view(-1, count, self.c)
        target = self.target.unsqueeze(1).expand_as(eta)
        if loss.joint:
            value = loss.value(eta.flatten(0, 1), target.flatten(0, 1)).view(-1, count)
            slope = loss.gradient(eta.flatten(0, 1), target.flatten(0, 1)).view_as(eta)
        else:
            value = loss.value(eta.flatten(1), target.flatten(1)).view_as(eta).sum(dim=2)
            slope = loss.gradient(eta.flatten(1), target.flatten(1)).view_as(eta)
        slope = (source.weight.unsqueeze(2) * slope).flatten(1).to(self.matrix.dtype)
        sums = self.matrix.rmv(slope).double().view(len(self.rows), count, self.c)
        sums = sums.permute(1, 0, 2).reshape(count, -1).gather(1, place)
        return torch.cat([(source.weight * value).sum(dim=0).unsqueeze(1), sums], dim=1)

    def _sum_samples_by_loops(self, table: np.ndarray, x: Tensor, place: Tensor) -> Tensor:
        """The same for one output, by compiled loops over the columns of each support."""
        from psfit.kernels.cpu.support_sums import predict, sum_columns

        loss, weight = self.inst.problem.loss, self.inst.source.weight
        places = place.numpy()
        eta = torch.from_numpy(predict(table, places, x.numpy())).T
        target = self.target.expand_as(eta)
        values = (weight * loss.value(eta, target)).sum(dim=0)
        slopes = (weight * loss.gradient(eta, target)).T.contiguous()
        sums = sum_columns(table, places, slopes.numpy())
        return torch.cat([values.unsqueeze(1), torch.from_numpy(sums)], dim=1)

    def _spread(self, x: Tensor, place: Tensor) -> Tensor:
        """Coefficients ``(k, rows, c')``."""
        whole = x.new_zeros(len(x), len(self.rows) * self.c)
        return whole.scatter_add(1, place, x).view(len(x), -1, self.c)

    def coefficients(self, x: Tensor) -> Tensor:
        """Coefficients ``(B, n, c')`` of all features."""
        whole = x.new_zeros(len(x), len(self.inst.ridge), self.c)
        whole[:, self.rows] = self._spread(x, self.place)
        return whole


def _find_places(flat: Tensor) -> tuple[Tensor, Tensor]:
    """Where the rows of a mask ``(B, N)`` are true, ``(B, d)``, and ones; with fewer than d places also zeros."""
    counts = flat.sum(dim=1, keepdim=True)
    most = int(counts.max())
    if bool((counts == most).all()):
        place = flat.nonzero()[:, 1].view(len(flat), -1)
        return place, torch.ones_like(place, dtype=torch.float64)
    place = flat.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
    real = torch.arange(most, device=flat.device) < counts
    return torch.where(real, place, 0), real.double()
