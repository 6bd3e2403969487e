"""Fits on many supports of one problem at once, by quasi-Newton steps that begin with the Hessian of a known model.

All supports share every pass over the data. If some have fewer variables than others, they get further ones that are
always zero. The Hessian of the model belongs to another fit. So on a CPU each trial point, also one that is not
accepted, corrects the inverse Hessian of its support (BFGS): with a step s and the change y of the gradient along it,

    K+ = (I - s y' / s'y) K (I - y s' / s'y) + s s' / s'y.

Where there are few samples, or few different ones, steps are Newton's. On a GPU, where neither was measured, the
inverse stays. There and with Newton's steps, one that raises the objective is halved.
Only the fit that is the best in the end is finished. The others serve to compare supports.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from psfit.kernels.linalg import solve_spd
from psfit.search.local_form import LocalForm
from psfit.search.objective import Objective
from psfit.search.support_batch import SupportBatch

MOST_STEPS = 8
# Shares of the way to the minimum of the form that are tried where the whole way is too far.
SHORTER = (0.5, 0.25)
# A support is done when its steps promise less than this share of its objective, and finished with this one.
CLOSE = 1e-6
FINISHED = 1e-14
# The kinds of devices on which inverse Hessians are corrected.
CORRECTED = ["cpu"]
# A support is given up when this many times the promised decrease would not make it the best.
HOPE = 2.0


@dataclass(frozen=True)
class BatchFit:
    """Coefficients ``Z (B, n, c')``, objectives, and what further steps promise ``(B,)``.

    A fit is finished if its steps promise less than the share `finished` of its objective.
    """

    Z: Tensor
    values: Tensor
    promised: Tensor
    finished: float = FINISHED

    def is_finished(self, number: int) -> bool:
        """Whether a fit is as good as its minimum, as far as comparisons of supports can see."""
        return float(self.promised[number]) <= self.finished * abs(float(self.values[number]))


def fit_batch(
    objective: Objective,
    local: LocalForm,
    supports: list[np.ndarray],
    Z: Tensor,
    target: float,
    close: float = CLOSE,
) -> BatchFit:
    """Fits on supports in the items of a local form at the coefficients ``Z (n, c)``.

    Each goes on until it is `close`, or cannot get below `target`. The best one is finished if it is below the target,
    unless fits that are not very close are enough, or products have too few digits.
    """
    batch = SupportBatch(objective, local, supports)
    points = _Points(batch, *_begin(batch, Z, target))
    for _ in range(MOST_STEPS):
        lowest = points.values.nan_to_num(nan=torch.inf).min().clamp(max=target)
        open_fits = points.are_open(close) & (points.values - HOPE * points.promised < lowest)
        if not points.step(open_fits.nonzero().flatten()):
            break
    finished = FINISHED if batch.inst.source.matrix.dtype == torch.float64 else CLOSE
    best = points.values.nan_to_num(nan=torch.inf).argmin().reshape(1)
    if finished < close <= CLOSE and float(points.values[best]) < target:
        for _ in range(MOST_STEPS):
            if not points.step(best[points.are_open(finished)[best]]):
                break
    return BatchFit(batch.coefficients(points.x), points.values.nan_to_num(nan=torch.inf), points.promised, finished)


class _Points:
    """Where the fits of a batch stand: variables, objectives and gradients, inverse Hessians, and the next steps."""

    def __init__(self, batch: SupportBatch, x: Tensor, values: Tensor, gradient: Tensor) -> None:
        self.batch, self.x, self.values, self.gradient = batch, x, values, gradient
        corrects = x.device.type in CORRECTED and batch.bounds is None and not batch.makes_hessians
        self.K = torch.cholesky_inverse(batch.factor) if corrects else None
        self.moves, self.promised = torch.zeros_like(x), torch.zeros_like(values)
        self._choose_moves(torch.arange(len(x), device=x.device))

    def are_open(self, close: float) -> Tensor:
        """Fits whose next steps promise more than a share of their objectives."""
        return self.promised > close * self.values.abs()

    def step(self, index: Tensor) -> bool:
        """Try the next steps of the fits in `index`, and make those that lower the objective; tell if there are any."""
        if not len(index):
            return False
        move = self.moves[index]
        trial = self.x[index] - move
        if self.batch.bounds is not None:
            trial = self.batch.bounds.clip(trial, index)
        values, gradient = self.batch.evaluate(trial, index)
        if self.K is not None:
            self.K[index] = _correct(self.K[index], -move, gradient - self.gradient[index])
        fell = (values < self.values[index]).unsqueeze(1)
        self.x[index] = torch.where(fell, trial, self.x[index])
        self.gradient[index] = torch.where(fell, gradient, self.gradient[index])
        self.values[index] = torch.where(fell.squeeze(1), values, self.values[index])
        self._choose_moves(index)
        if self.K is None:
            self.moves[index] = torch.where(fell, self.moves[index], 0.5 * move)
        return True

    def _choose_moves(self, index: Tensor) -> None:
        """The steps that are subtracted next, and what they promise."""
        gradient, K = self.gradient[index].unsqueeze(2), self.K
        if self.batch.bounds is not None:
            gradient, move = self.batch.bounds.choose_moves(self.x[index], gradient, index)
        elif K is not None:
            move = K[index] @ gradient
        elif self.batch.makes_hessians:
            move = solve_spd(self.batch.make_hessians(self.x[index], index), gradient)
        else:
            move = torch.cholesky_solve(gradient, self.batch.factor[index])
        promised = 0.5 * (gradient * move).sum(dim=(1, 2))
        self.moves[index], self.promised[index] = self.batch.inst.grid.agree(move.squeeze(2), promised)


def _correct(K: Tensor, move: Tensor, change: Tensor) -> Tensor:
    """The inverse Hessians ``K (k, d, d)``, corrected by changes of the gradient along moves, ``(k, d)`` each."""
    bend = (move * change).sum(dim=1)
    sound = (bend > 0) & bend.isfinite() & change.isfinite().all(dim=1)
    bend = torch.where(sound, bend, 1.0)[:, None, None]
    s, y = move.unsqueeze(2), torch.where(sound.unsqueeze(1), change, 0.0).unsqueeze(2)
    Ky = K @ y
    along = (1 + (y.mT @ Ky) / bend) / bend
    corrected = K + along * (s @ s.mT) - (Ky @ s.mT + s @ Ky.mT) / bend
    # Where a trial point is too far for finite numbers, only a much shorter step can help.
    return torch.where(sound[:, None, None], corrected, 0.1 * K)


def _begin(batch: SupportBatch, Z: Tensor, target: float) -> tuple[Tensor, Tensor, Tensor]:
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
