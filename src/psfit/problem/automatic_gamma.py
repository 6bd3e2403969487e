"""The automatic gamma: a ridge in units of the loss's curvature, for columns divided by their standard deviations.

In such a column a loss of mean second derivative h has the curvature ``W h``, W the total weight of the samples. The
ridge is a small share of it, so it has the same effect for any number of samples, any units and any loss. It costs
little: a share s raises the squared loss on a support by about ``s^2`` of what the features explain. But it is far
above rounding, so that nearly equal columns have moderate coefficients, and bounds can use it.
"""

import torch

from psfit.comm import Grid
from psfit.data import Source
from psfit.losses import Loss, plain_targets

# The ridge as a share of the curvature.
SHARE = 1e-3
# The same for other losses than the squared one. Their curvature is that of a model without features; it falls as the
# fit improves, often ten times.
OTHER_SHARE = 1e-4
# The curvature is at least this share of the loss's typical curvature, and at most all of it.
LEAST_CURVATURE = 1e-6
# The shares that cross-validation tries.
SHARES = (1e-3, 1e-2, 1e-1)
# Fewer digits than rounding can change, so that the number does not depend on how samples are divided.
DIGITS = 6


def automatic_gamma(loss: Loss, source: Source, fit_intercept: bool, grid: Grid) -> float:
    """The gamma for ``standardize=True``, from sums over the samples of all nodes; the same on all ranks."""
    target, weight = plain_targets(source.target), source.weight
    offset = source.target.imag if source.target.is_complex() else torch.zeros_like(target)
    sums = torch.cat([weight.sum(dim=0), (weight * target).sum(dim=0), (weight * offset).sum(dim=0)])
    total, *means = grid.nodes.total(sums).split([1, target.shape[1], target.shape[1]])
    eta = torch.zeros_like(means[0])
    if fit_intercept:
        eta = loss.constant_predictor(means[0] / total) - means[1] / total
    curvature = (weight * loss.broad_curvature(eta.expand_as(target), source.target)).sum(dim=0)
    mean = float((grid.nodes.total(curvature) / total).mean())
    typical = loss.typical_curvature(float((means[0] / total).mean()), target.shape[1])
    gamma = 1 / (_share_of(loss) * min(max(mean, LEAST_CURVATURE * typical), typical) * float(total))
    (agreed,) = grid.agree(torch.tensor([gamma], dtype=torch.float64))
    return _round(float(agreed))


def spread_gammas(loss: Loss, gamma: float) -> list[float]:
    """The gammas that cross-validation tries, from the automatic one."""
    return [_round(gamma * _share_of(loss) / share) for share in SHARES]


def _share_of(loss: Loss) -> float:
    return SHARE if loss.quadratic else OTHER_SHARE


def _round(gamma: float) -> float:
    return float(f"{gamma:.{DIGITS}g}")
