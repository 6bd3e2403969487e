"""The bound that a dual point proves, for any loss, from one float64 pass over the data.

With slopes ``a (m, c)`` in the domain of the conjugate and ``g = A'(w a)``, every coefficient matrix Z within the limit
has

    objective(Z) >= - sum_i w_i loss*(a_i) + <g, Z> + 1/2 sum_j r_j ||z_j||^2
                 >= - sum_i w_i loss*(a_i) - (sum of the kappa largest scores |g_j|^2 / (2 r_j)),

provided g vanishes on the intercept, which has no ridge. `loss_sums.py` changes the slopes so that it does. If the
coefficients have bounds, a score is the largest value of ``-g_j z - r_j z^2 / 2`` between them, which is smaller.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.certificate.loss_sums import drop_equal, sum_conjugates, sum_joint_conjugates, weigh
from psfit.data import Affine, Dense, DesignMatrix
from psfit.data.curvature import EPS
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

    An instance of one problem takes the slopes of several points ``(m, B c)``, one after the other: each proves a bound
    of it. `dense` is the matrix of the instance in float64, if it is at hand.
    """
    source, items, loss = inst.source, inst.items, inst.problem.loss
    weight = drop_equal(source.weight)
    sum_up = sum_joint_conjugates if loss.joint else sum_conjugates
    slopes, sums = sum_up(loss, slopes, source.target, weight, bool(items.free), inst.grid)
    n, c = source.matrix.shape[1], slopes.shape[1]
    local = slopes.new_zeros(n + 3, c)
    own, mine = source.matrix.own if dense is None else dense.own
    raw = _raw_rounding(inst) if dense is None else None
    local[own] = _sum_columns(mine, weigh(weight, slopes), raw is not None)
    local[n:] = inst.grid.count_once(sums)
    summed = inst.grid.total(local)
    # A sum of m products is off by at most m roundings of the sum of their sizes, which Cauchy and Schwarz bound.
    rounding = 2 * (inst.samples + 32) * EPS
    p = items.features
    norm = inst.coordinates.rounding_norm[:p] if raw is None else raw
    g_error = rounding * norm * summed[n + 2].sqrt()
    single = score(summed[:p], g_error, inst.ridge[:p], *bounds_of(inst.box))
    # Points of a joint loss have several outputs each, all others one.
    width = len(inst.items.outputs_of(0)) if loss.joint else c
    scores = torch.cat([inst.items.pack_scores(part) for part in single.split(width, dim=1)])
    conjugate, size = (
        torch.cat([inst.items.sum_outputs(part) for part in row.split(width)]) for row in summed[n : n + 2]
    )
    ridge_conjugate = domain.conjugate(scores)
    error = rounding * (size + ridge_conjugate)
    return DualPoint(-conjugate - ridge_conjugate - error, scores, summed[:p])


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
