"""Fits on many supports of one problem at once, by quasi-Newton steps that begin with the Hessian of a known model.

All supports share every pass over the data. If some have fewer variables than others, they get further ones that are
always zero. The Hessian of the model belongs to
another fit. So on a CPU each trial point, also one that is not accepted, corrects the inverse Hessian of its support
(BFGS): with a step s and the change y of the gradient along it,

    K+ = (I - s y' / s'y) K (I - y s' / s'y) + s s' / s'y.

On a GPU, where corrections were not measured, the inverse stays, and a step that raises the objective is halved.
Only the fit that is the best in the end is finished. The others serve to compare supports.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from psfit.kernels.batch_box import BatchBounds
from psfit.kernels.linalg import cholesky
from psfit.problem.instance import Instance
from psfit.search.local_form import LocalForm

EVERY = slice(None)
MOST_STEPS = 8
# Supports are evaluated together as long as their predictors are at most so many numbers.
MOST_NUMBERS = 1 << 24
# Compiled loops, in one thread, evaluate supports whose columns together are at most so many numbers.
MOST_LOOPED = 1 << 18
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
    inst: Instance,
    problem: int,
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
    batch = _Batch(inst, problem, local, supports)
    points = _Points(batch, *_begin(batch, Z, target))
    for _ in range(MOST_STEPS):
        lowest = points.values.nan_to_num(nan=torch.inf).min().clamp(max=target)
        open_fits = points.are_open(close) & (points.values - HOPE * points.promised < lowest)
        if not points.step(open_fits.nonzero().flatten()):
            break
    finished = FINISHED if batch.matrix.dtype == torch.float64 else CLOSE
    best = points.values.nan_to_num(nan=torch.inf).argmin().reshape(1)
    if finished < close <= CLOSE and float(points.values[best]) < target:
        for _ in range(MOST_STEPS):
            if not points.step(best[points.are_open(finished)[best]]):
                break
    return BatchFit(batch.coefficients(points.x), points.values.nan_to_num(nan=torch.inf), points.promised, finished)


class _Points:
    """Where the fits of a batch stand: variables, objectives and gradients, inverse Hessians, and the next steps."""

    def __init__(self, batch: "_Batch", x: Tensor, values: Tensor, gradient: Tensor) -> None:
        self.batch, self.x, self.values, self.gradient = batch, x, values, gradient
        corrects = x.device.type in CORRECTED and batch.bounds is None
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
        else:
            move = torch.cholesky_solve(gradient, self.batch.factor[index]) if K is None else K[index] @ gradient
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
        small = self.c == 1 and self.place.numel() * len(self.target) <= MOST_LOOPED
        self.table: np.ndarray | None = None
        if device.type == "cpu" and small:
            whole = self.matrix.chunk(0, len(self.target), torch.float64)
            self.table = np.ascontiguousarray(whole.T.numpy())

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
        room = max(1, MOST_NUMBERS // max(1, self.target.numel()))
        parts = zip(x.split(room), place.split(room), strict=True)
        sums = torch.cat([self._sum_samples(*part) for part in parts]) if len(x) else x.new_zeros(0, x.shape[1] + 1)
        if self.inst.grid.nodes.comm.rank == 0:
            sums[:, 0] += 0.5 * (ridge * x.square()).sum(dim=1)
        summed = self.inst.grid.total_of_nodes(sums)
        return summed[:, 0], real * (summed[:, 1:] + ridge * x)

    def _sum_samples(self, x: Tensor, place: Tensor) -> Tensor:
        """Losses of this rank's samples and their derivatives, ``(k, 1 + d)``."""
        count, source, loss = len(x), self.inst.source, self.inst.problem.loss
        if self.table is not None:
            return self._sum_samples_by_loops(self.table, x, place)
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
