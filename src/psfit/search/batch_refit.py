"""Fits on many supports of one problem at once, by Newton's steps with the Hessian of a known model.

All supports have the same number of items and share every pass over the data. The Hessian of the model belongs to
another fit, so steps converge linearly; a step that raises the objective is halved. The fits serve to compare supports.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from psfit.kernels.linalg import cholesky
from psfit.problem.instance import Instance
from psfit.search.local_form import LocalForm

EVERY = slice(None)
MOST_STEPS = 8
# Supports are evaluated together as long as their predictors are at most so many numbers.
MOST_NUMBERS = 1 << 24
# Shares of the way to the minimum of the form that are tried where the whole way is too far.
SHORTER = (0.5, 0.25)
# A support is done when its steps promise less than this share of its objective.
CLOSE = 1e-6
# A support is given up when this many times the promised decrease would not make it the best.
HOPE = 2.0


@dataclass(frozen=True)
class BatchFit:
    """Coefficients ``Z (B, n, c')``, objectives, and what further steps promise ``(B,)``."""

    Z: Tensor
    values: Tensor
    promised: Tensor


def fit_batch(
    inst: Instance,
    problem: int,
    local: LocalForm,
    supports: list[np.ndarray],
    Z: Tensor,
    target: float,
    close: float = CLOSE,
) -> BatchFit:
    """Fits on supports in the items of a local form at the coefficients ``Z (n, c)``.

    Each goes on until it is `close`, or cannot get below `target`.
    """
    batch = _Batch(inst, problem, local, supports)
    x, values, gradient = _begin(batch, Z, target)
    step, promised = batch.newton_step(gradient)
    for _ in range(MOST_STEPS):
        lowest = values.nan_to_num(nan=torch.inf).min().clamp(max=target)
        going = ((promised > close * values.abs()) & (values - HOPE * promised < lowest)).nonzero().flatten()
        if not len(going):
            break
        trial, known = x[going] - step[going], gradient[going]
        moved, slope = batch.evaluate(trial, going)
        fell = moved < values[going]
        x[going] = torch.where(fell.unsqueeze(1), trial, x[going])
        values[going] = torch.where(fell, moved, values[going])
        gradient[going] = slope = torch.where(fell.unsqueeze(1), slope, known)
        following, hoped = batch.newton_step(slope, going)
        step[going] = torch.where(fell.unsqueeze(1), following, 0.5 * step[going])
        promised[going] = torch.where(fell, hoped, 0.5 * promised[going])
    promised = batch.newton_step(gradient)[1]
    return BatchFit(batch.coefficients(x), values.nan_to_num(nan=torch.inf), promised)


def _begin(batch: "_Batch", Z: Tensor, target: float) -> tuple[Tensor, Tensor, Tensor]:
    """Variables, objectives and gradients at the minimisers of the form, or at a part of the way there."""
    x = batch.start()
    values, gradient = batch.evaluate(x)
    origin, whole = batch.gather(Z), x.clone()
    for share in SHORTER:
        far = (~(values < target)).nonzero().flatten()
        if not len(far):
            break
        trial = origin[far] + share * (whole[far] - origin[far])
        moved, slope = batch.evaluate(trial, far)
        fell = ~(moved >= values[far])
        x[far] = torch.where(fell.unsqueeze(1), trial, x[far])
        values[far] = torch.where(fell, moved, values[far])
        gradient[far] = torch.where(fell.unsqueeze(1), slope, gradient[far])
    return x, values, gradient


class _Batch:
    """The variables of each support are a row ``(B, d)``."""

    def __init__(self, inst: Instance, problem: int, local: LocalForm, supports: list[np.ndarray]) -> None:
        self.inst, self.outputs = inst, inst.items.outputs_of(problem)
        self.c, n = len(self.outputs), len(inst.ridge)
        device, form = inst.ridge.device, local.form
        chosen = local.unpack(np.stack(supports))
        masks = torch.stack([inst.items.mask_one(one) for one in chosen])
        free = torch.ones(len(chosen), inst.items.free, self.c, dtype=torch.bool, device=device)
        masks = torch.cat([masks, free], dim=1)
        self.rows = masks.any(dim=2).any(dim=0).nonzero().flatten()
        self.matrix = inst.source.matrix.columns(self.rows)
        # The number of every variable among all of the problem, among those of the rows, and in the form.
        flat = masks[:, self.rows].flatten(1)
        self.place = flat.nonzero()[:, 1].view(len(chosen), -1)
        in_form = self._numbers_in_form(local, n, device)[self.rows].flatten()[self.place]
        self.ridge = inst.ridge[self.rows].expand(-1, self.c).reshape(-1)[self.place]
        self.H = form.H[in_form.unsqueeze(2), in_form.unsqueeze(1)]
        self.q = form.Q[:, 0][in_form]
        self.factor = cholesky(self.H)
        self.target = inst.source.target[:, self.outputs]

    def _numbers_in_form(self, local: LocalForm, n: int, device: torch.device) -> Tensor:
        """The number of each coefficient ``(n, c')`` in the form; -1 where it has none."""
        inst, numbers = self.inst, torch.full((n, self.c), -1, device=device)
        free = inst.items.free * self.c
        size = len(local.form.H)
        if inst.items.width > 1 or local.index is None:
            features = torch.arange(inst.items.features, device=device) if local.index is None else local.index
            numbers[features] = torch.arange(len(features) * self.c, device=device).view(-1, self.c)
        else:
            counted = numbers[: inst.items.features].flatten()
            counted[local.index] = torch.arange(len(local.index), device=device)
            numbers[: inst.items.features] = counted.view(-1, self.c)
        numbers[inst.items.features :] = torch.arange(size - free, size, device=device).view(-1, self.c)
        return numbers

    def start(self) -> Tensor:
        """The minimisers of the form."""
        return self.inst.grid.agree(torch.cholesky_solve(self.q.unsqueeze(2), self.factor).squeeze(2))[0]

    def gather(self, Z: Tensor) -> Tensor:
        """The variables ``(B, d)`` of coefficients ``Z (n, c)``."""
        return Z[self.rows][:, self.outputs].double().flatten()[self.place]

    def newton_step(self, gradient: Tensor, index: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Steps ``(k, d)`` of the supports in `index`, which are subtracted, and what they promise ``(k,)``."""
        factor = self.factor if index is None or len(index) == len(self.factor) else self.factor[index]
        step = torch.cholesky_solve(gradient.unsqueeze(2), factor).squeeze(2)
        step, promised = self.inst.grid.agree(step, 0.5 * (gradient * step).sum(dim=1))
        return step, promised

    def evaluate(self, x: Tensor, index: Tensor | slice = EVERY) -> tuple[Tensor, Tensor]:
        """Objectives ``(k,)`` and gradients ``(k, d)`` of the supports in `index`; the same on all ranks."""
        place, ridge = self.place[index], self.ridge[index]
        room = max(1, MOST_NUMBERS // max(1, self.target.numel()))
        parts = zip(x.split(room), place.split(room), strict=True)
        sums = torch.cat([self._sum_samples(*part) for part in parts]) if len(x) else x.new_zeros(0, x.shape[1] + 1)
        if self.inst.grid.nodes.comm.rank == 0:
            sums[:, 0] += 0.5 * (ridge * x.square()).sum(dim=1)
        summed = self.inst.grid.total_of_nodes(sums)
        return summed[:, 0], summed[:, 1:] + ridge * x

    def _sum_samples(self, x: Tensor, place: Tensor) -> Tensor:
        """Losses of this rank's samples and their derivatives, ``(k, 1 + d)``."""
        count, source, loss = len(x), self.inst.source, self.inst.problem.loss
        X = self._spread(x, place).permute(1, 0, 2).reshape(len(self.rows), -1)
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

    def _spread(self, x: Tensor, place: Tensor) -> Tensor:
        """Coefficients ``(k, rows, c')``."""
        whole = x.new_zeros(len(x), len(self.rows) * self.c)
        return whole.scatter(1, place, x).view(len(x), -1, self.c)

    def coefficients(self, x: Tensor) -> Tensor:
        """Coefficients ``(B, n, c')`` of all features."""
        whole = x.new_zeros(len(x), len(self.inst.ridge), self.c)
        whole[:, self.rows] = self._spread(x, self.place)
        return whole
