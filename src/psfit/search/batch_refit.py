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

MOST_STEPS = 8
# A support is done when its steps promise less than this share of its objective.
CLOSE = 1e-6
# A support is given up when this many times the promised decrease would not make it the best.
HOPE = 4.0


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
    target: float,
    close: float = CLOSE,
) -> BatchFit:
    """Fits on supports in the items of a local form, each until it is `close`, or cannot get below `target`."""
    batch = _Batch(inst, problem, local, supports)
    x = batch.start()
    best_x, values, gradient = x, *batch.evaluate(x)
    step, promised = batch.newton_step(gradient)
    for _ in range(MOST_STEPS):
        lowest = min(target, float(values.nan_to_num(nan=torch.inf).min()))
        open_ = (promised > close * values.abs()) & (values - HOPE * promised < lowest)
        if not bool(open_.any()):
            break
        trial = best_x - open_.unsqueeze(1) * step
        moved, slope = batch.evaluate(trial)
        fell = open_ & (moved < values)
        best_x = torch.where(fell.unsqueeze(1), trial, best_x)
        gradient = torch.where(fell.unsqueeze(1), slope, gradient)
        values = torch.where(fell, moved, values)
        whole, shorter = batch.newton_step(gradient), torch.where(open_, 0.5, 1.0)
        step = torch.where(fell.unsqueeze(1), whole[0], step * shorter.unsqueeze(1))
        promised = torch.where(fell, whole[1], promised * shorter)
    promised = batch.newton_step(gradient)[1]
    return BatchFit(batch.coefficients(best_x), values.nan_to_num(nan=torch.inf), promised)


class _Batch:
    """The variables of each support are a row ``(B, d)``."""

    def __init__(self, inst: Instance, problem: int, local: LocalForm, supports: list[np.ndarray]) -> None:
        self.inst, self.outputs = inst, inst.items.outputs_of(problem)
        self.c, n = len(self.outputs), len(inst.ridge)
        device, form = inst.ridge.device, local.form
        chosen = torch.stack([local.unpack(support) for support in supports])
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

    def newton_step(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Steps ``(B, d)``, which are subtracted, and the decrease ``(B,)`` that each promises."""
        step = torch.cholesky_solve(gradient.unsqueeze(2), self.factor).squeeze(2)
        step, promised = self.inst.grid.agree(step, 0.5 * (gradient * step).sum(dim=1))
        return step, promised

    def evaluate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Objectives ``(B,)`` and gradients ``(B, d)``, the same on all ranks where the variables are."""
        count, source, loss = len(x), self.inst.source, self.inst.problem.loss
        X = self._spread(x)
        eta = self.matrix.mv(X.permute(1, 2, 0).reshape(len(self.rows), -1).to(self.matrix.dtype)).double()
        eta = eta.view(-1, self.c, count)
        if loss.joint:
            each = [
                (loss.value(eta[:, :, k], self.target), loss.gradient(eta[:, :, k], self.target)) for k in range(count)
            ]
            value, slope = torch.cat([v for v, _ in each], dim=1), torch.stack([s for _, s in each], dim=2)
        else:
            each_eta, b = eta.flatten(1), self.target.repeat_interleave(count, dim=1)
            value = loss.value(each_eta, b).view_as(eta).sum(dim=1)
            slope = loss.gradient(each_eta, b).view_as(eta)
        local = (source.weight * value).sum(dim=0)
        slope = (source.weight.unsqueeze(2) * slope).flatten(1).to(self.matrix.dtype)
        sums = self.matrix.rmv(slope).double().view(len(self.rows), self.c, count)
        sums = sums.permute(2, 0, 1).reshape(count, -1).gather(1, self.place)
        if self.inst.grid.nodes.comm.rank == 0:
            local = local + 0.5 * (self.ridge * x.square()).sum(dim=1)
        summed = self.inst.grid.total_of_nodes(torch.cat([local.unsqueeze(1), sums], dim=1))
        return summed[:, 0], summed[:, 1:] + self.ridge * x

    def _spread(self, x: Tensor) -> Tensor:
        """Coefficients ``(B, rows, c')``."""
        whole = x.new_zeros(len(x), len(self.rows) * self.c)
        return whole.scatter(1, self.place, x).view(len(x), -1, self.c)

    def coefficients(self, x: Tensor) -> Tensor:
        """Coefficients ``(B, n, c')`` of all features."""
        whole = x.new_zeros(len(x), len(self.inst.ridge), self.c)
        whole[:, self.rows] = self._spread(x)
        return whole
