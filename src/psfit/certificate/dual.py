"""The bound that a dual point proves, for any loss, from one float64 pass over the data.

With slopes ``a (m, c)`` in the domain of the conjugate and ``g = A'(w a)``, every coefficient matrix Z within the limit
has

    objective(Z) >= - sum_i w_i loss*(a_i) + <g, Z> + 1/2 sum_j r_j ||z_j||^2
                 >= - sum_i w_i loss*(a_i) - (sum of the kappa largest scores |g_j|^2 / (2 r_j)),

provided g vanishes on the intercept, which has no ridge. `balance_slopes` changes the slopes so that it does. If the
coefficients have bounds, a score is the largest value of ``-g_j z - r_j z^2 / 2`` between them, which is smaller.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.comm import Grid
from psfit.data import Affine, Dense, DesignMatrix
from psfit.data.curvature import EPS
from psfit.losses import Loss, plain_targets
from psfit.problem import Domain
from psfit.problem.box import bounds_of, score
from psfit.problem.instance import Instance

# Products with raw entries round more than those with centred ones. Up to this factor it does not matter.
MOST_RAW_ROUNDING = 32.0


@dataclass(frozen=True)
class DualPoint:
    """What slopes prove: bounds ``lower (problems,)``, the scores of the items behind them, and ``g (p, c)``."""

    lower: Tensor
    scores: Tensor
    g: Tensor


def dual_bound(inst: Instance, slopes: Tensor, domain: Domain) -> tuple[Tensor, Tensor]:
    """Lower bounds ``(problems,)`` at ``slopes (m, c)``, less all rounding errors; and the scores behind them."""
    point = prove_slopes(inst, slopes, domain)
    return point.lower, point.scores


def prove_slopes(inst: Instance, slopes: Tensor, domain: Domain, dense: Dense | None = None) -> DualPoint:
    """What ``slopes (m, c)`` prove, less all rounding errors.

    Where every output is a problem of its own, an instance of one problem takes any number of slopes: each column
    proves a bound of it. `dense` is the matrix of the instance in float64, if it is at hand.
    """
    source, items, loss = inst.source, inst.items, inst.problem.loss
    target = source.target
    # Products with weights of one would take as long as sums over the samples.
    weight = None if bool((source.weight == 1).all()) else source.weight
    slopes = loss.nearest_slope(slopes.double(), target)
    if items.free:
        slopes = balance_slopes(loss, slopes, target, source.weight, inst.grid)
    n, c = source.matrix.shape[1], slopes.shape[1]
    local = slopes.new_zeros(n + 3, c)
    own, mine = source.matrix.own if dense is None else dense.own
    raw = _raw_rounding(inst) if dense is None else None
    local[own] = _sum_columns(mine, _weigh(weight, slopes), raw is not None)
    conjugate = loss.conjugate(slopes, target)
    sizes = conjugate.abs() + loss.conjugate_sizes(slopes, target)
    local[n] = _weigh(weight, conjugate).sum(dim=0) / (c if loss.joint else 1)
    local[n + 1] = _weigh(weight, sizes).sum(dim=0)
    local[n + 2] = _weigh(weight, slopes.square()).sum(dim=0)
    local[n:] = inst.grid.count_once(local[n:])
    summed = inst.grid.total(local)
    # A sum of m products is off by at most m roundings of the sum of their sizes, which Cauchy and Schwarz bound.
    rounding = 2 * (inst.samples + 32) * EPS
    p = items.features
    norm = inst.coordinates.rounding_norm[:p] if raw is None else raw
    g_error = rounding * norm * summed[n + 2].sqrt()
    scores = inst.items.pack_scores(score(summed[:p], g_error, inst.ridge[:p], *bounds_of(inst.box)))
    ridge_conjugate = domain.conjugate(scores)
    error = rounding * (inst.items.sum_outputs(summed[n + 1]) + ridge_conjugate)
    return DualPoint(-inst.items.sum_outputs(summed[n]) - ridge_conjugate - error, scores, summed[:p])


def _weigh(weight: Tensor | None, values: Tensor) -> Tensor:
    return values if weight is None else weight * values


def _raw_rounding(inst: Instance) -> Tensor | None:
    """The norms ``(p, 1)`` that bound the rounding of sums of raw entries, from which means are subtracted afterwards.

    None if the columns must be centred first: their means are too large, or strips are centred at no cost.
    """
    matrix, common = inst.source.matrix, inst.coordinates.column_norm
    if not isinstance(matrix, Affine) or matrix.device.type != "cpu" or not matrix.centres_entries:
        return None
    if matrix.kept is not None:
        return None
    # The raw column has at most the norm of the centred one and `common |shift| / scale`, which is what is subtracted.
    known = inst.coordinates.rounding_norm[: inst.items.features]
    norm = known + 2 * common * (matrix.shift.abs() / matrix.scale).unsqueeze(1)
    return norm if bool((norm <= MOST_RAW_ROUNDING * common).all()) else None


def _sum_columns(matrix: DesignMatrix, R: Tensor, raw: bool) -> Tensor:
    """``A' R (n, c)`` in float64, by `raw` entries if that is asked for."""
    if not raw:
        total = R.new_zeros(matrix.shape[1], R.shape[1])
        for at, strip in matrix.strips(torch.float64):
            total += strip.rmv(R[at])
        return total
    assert isinstance(matrix, Affine)
    base, rest = _sum_columns(matrix.base, R, False), R.sum(dim=0, keepdim=True)
    centred = (base - matrix.shift.unsqueeze(1) * rest) / matrix.scale.unsqueeze(1)
    return torch.cat([centred, matrix.constant * rest]) if matrix.constant else centred


def gradient_bound(inst: Instance, X: Tensor, extracted: Tensor, domain: Domain) -> tuple[Tensor, Tensor]:
    """The bound that one gradient at coefficients ``X (p, c)`` proves for the squared loss, and the scores behind it.

    ``extracted (p, 1)`` is curvature ``d`` that the data certainly give to the features. It moves from the loss to the
    ridge: ``p* >= F(X) - <g, X> - conjugate(scores)`` with ``F = loss - 1/2 sum_j d_j ||x_j||^2``, ``g`` its gradient.
    """
    source, n, c = inst.source, X.shape[0], X.shape[1]
    weight, target = source.weight, source.target
    matrix = source.matrix.columns(slice(0, n))
    own, mine = matrix.own
    residual, sizes = torch.empty_like(target), torch.empty_like(target)
    # The columns are centred, so the best intercept is the mean of the targets up to rounding.
    middle = _weighted_mean(inst, target) if inst.items.free else torch.zeros_like(target[:1])
    spread = None if mine is matrix else _predictors(inst, mine, X[own])
    local = X.new_zeros(n + 3, c + 1)
    for at, strip in mine.strips(torch.float64):
        eta, size = strip.mv_with_sizes(X[own]) if spread is None else spread[:, at]
        residual[at], sizes[at] = eta - (target[at] - middle), size + target[at].abs() + middle.abs()
        local[own] += strip.rmv(weight[at] * torch.cat([2 * residual[at], torch.ones_like(weight[at])], dim=1))
    local[n, :c] = (weight * residual.square()).sum(dim=0)
    offset = torch.zeros_like(middle)
    if inst.items.free:
        # With the best intercept the residuals add up to zero, so the gradient vanishes on it.
        offset = _weighted_mean(inst, residual)
        residual, sizes = residual - offset, sizes + offset.abs()
    local[n + 1, :c], local[n + 2, :c] = (weight * torch.stack([residual, sizes]).square()).sum(dim=1)
    local[n:] = inst.grid.count_once(local[n:])
    summed = inst.grid.total(local)
    summed, balance = summed[:, :c], summed[:n, c:]
    before, fit, power = summed[n], summed[n + 1], summed[n + 2]
    # A residual is off by n roundings of the sizes in it, a sum over samples by m roundings of its own.
    row, column = (n + 16) * EPS, (inst.samples + 16) * EPS
    g = summed[:n] - 2 * offset * balance - extracted * X
    g_error = 2 * inst.coordinates.rounding_norm[:n] * (row * power.sqrt() + column * (before.sqrt() + fit.sqrt()))
    g_error = g_error + 4 * EPS * (extracted * X).abs()
    scores = inst.items.pack_scores(score(g, g_error, inst.ridge[:n] + extracted, *bounds_of(inst.box)))
    ridge_conjugate = domain.conjugate(scores)
    value = fit - (0.5 * extracted * X.square() + g * X).sum(dim=0)
    error = column * fit + 2 * row * (fit * power).sqrt() + row**2 * power
    error = error + (g_error * X.abs() + row * (extracted.abs() * X.square() + (g * X).abs())).sum(dim=0)
    return inst.items.sum_outputs(value - error) - (1 + row) * ridge_conjugate, scores


def _weighted_mean(inst: Instance, values: Tensor) -> Tensor:
    """Means ``(1, c)`` over the samples of all nodes."""
    weight = inst.source.weight
    sums = inst.grid.nodes.total(torch.cat([weight * values, weight], dim=1).sum(dim=0, keepdim=True))
    return sums[:, :-1] / sums[:, -1:]


def _predictors(inst: Instance, mine: DesignMatrix, X: Tensor) -> Tensor:
    """Predictors and the sizes in them, ``(2, m, c)``, where a node's columns lie on several ranks."""
    parts = [torch.stack(strip.mv_with_sizes(X)) for _, strip in mine.strips(torch.float64)]
    return inst.grid.blocks.total(torch.cat(parts, dim=1))


def trivial_bound(inst: Instance) -> float:
    """A bound that needs no columns: the loss of a sample is at least its least value."""
    target, weight = inst.source.target, inst.source.weight
    least = -weight * inst.problem.loss.conjugate(weight.new_zeros(target.shape), target)
    summed = float(inst.grid.nodes.total(least.sum().reshape(1)))
    return summed - 2 * (inst.samples + 32) * EPS * abs(summed)


def balance_slopes(loss: Loss, slopes: Tensor, target: Tensor, weight: Tensor, grid: Grid) -> Tensor:
    """Slopes changed so that their weighted sum is zero in every output; they stay in the conjugate's domain.

    Scalar losses: zero lies in the domain, so the slopes of one sign, the one with the larger sum, are scaled down.
    Softmax: the probabilities behind the slopes are mixed with a little of a distribution that restores the totals of
    the labels.
    """
    if not loss.joint:
        halves = torch.stack([(weight * slopes.clamp(min=0)).sum(dim=0), (weight * slopes.clamp(max=0)).sum(dim=0)])
        up, down = grid.nodes.total(halves)
        down = -down
        tiny = torch.finfo(torch.float64).tiny
        shrink_up = (down / up.clamp(min=tiny)).clamp(max=1)
        shrink_down = (up / down.clamp(min=tiny)).clamp(max=1)
        return torch.where(slopes > 0, shrink_up * slopes, shrink_down * slopes)
    labels = plain_targets(target)
    probability = slopes + labels
    have, want, total = _sum_classes(probability, labels, weight, grid)
    if not bool((want > 0).all()):
        # A class that no sample has gets no probability: else all of it would have to be mixed away.
        probability = torch.where(want > 0, probability.clamp(min=torch.finfo(torch.float64).tiny), 0.0)
        probability = probability / probability.sum(dim=1, keepdim=True)
        slopes = probability - labels
        have, want, total = _sum_classes(probability, labels, weight, grid)
    # (1 - t) p + t q has the totals `want` if q = (want + (1/t - 1)(want - have)) / total; t must keep q positive.
    lacking = ((have - want) / want.clamp(min=torch.finfo(torch.float64).tiny)).clamp(min=0).max()
    t = (lacking / (1 + lacking)).clamp(min=EPS) if bool(lacking > 0) else lacking
    if not bool(t > 0):
        return slopes
    q = ((want + (1 / t - 1) * (want - have)) / total).clamp(min=0)
    mixed = (1 - t) * probability + t * q / q.sum()
    return mixed / mixed.sum(dim=1, keepdim=True) - labels


def _sum_classes(probability: Tensor, labels: Tensor, weight: Tensor, grid: Grid) -> Tensor:
    """Weighted sums over all samples of probabilities, labels and ones, ``(3, c)``."""
    sums = torch.stack([(weight * probability).sum(dim=0), (weight * labels).sum(dim=0)])
    return grid.nodes.total(torch.cat([sums, weight.sum().expand(1, sums.shape[1])]))
