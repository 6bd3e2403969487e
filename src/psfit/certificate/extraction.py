"""Diagonal extraction: curvature that the data give to single items, moved from the loss to the ridge.

If ``G - diag(d)`` is still positive semidefinite, the loss stays convex without ``d`` and every ridge ``r_j`` grows to
``r_j + d_j``. A larger ridge gives a better bound. The uniform choice of ``d`` is the smallest eigenvalue. A better one
maximises the bound itself, which is concave in ``d`` with slope ``x_j^2 / s_j - x_j^2`` at the relaxation's solution.
The best ``d`` for a fixed slope is the solution of a semidefinite program. Steps towards it raise the bound.
"""

import torch
from torch import Tensor

from psfit.data.curvature import EPS, Curvature
from psfit.kernels.eigenvalues import least_eigenvalue
from psfit.kernels.linalg import solve_spd
from psfit.problem.instance import Instance

# The interior point method: the most steps, the relative gap at which it ends, the centring of the first step, and the
# factor by which a step that leaves the domain is shortened.
INTERIOR_STEPS = 25
SHARPNESS = 1e-2
START_CENTRING = 0.3
SHORTER = 0.8


def extract_by_nodes(inst: Instance) -> float:
    """A uniform extraction for which no Gram matrix leaves its node: the sum of the nodes' smallest eigenvalues."""
    weight, total = inst.source.weight, 0.0
    features = slice(0, inst.items.features)
    grams = inst.split.columns(features).per_node(lambda A, rows: 2 * A.gram(weight[rows], torch.float64))
    for G, height in zip(grams, inst.split.heights, strict=True):
        trace = float(G.diagonal().sum())
        slack = 2 * (height + 8 * len(G) + 16) * EPS * trace
        total += max(least_eigenvalue(G) - slack, 0.0)
    return float(inst.grid.nodes.total(weight.new_tensor([total])))


def make_safe(curvature: Curvature, d: Tensor) -> Tensor:
    """``d >= 0`` raised, or scaled down, so that ``G - diag(d)`` is certainly positive semidefinite."""
    rest = curvature.smallest_eigenvalue_without(d)
    if rest >= 0:
        return d + rest
    # The smallest eigenvalue is concave in d: between zero and d it is at least the interpolated value.
    whole = max(curvature.smallest_eigenvalue, 0.0)
    return d * (whole / (whole - rest))


def improve(curvature: Curvature, slope: Tensor) -> Tensor:
    """Nearly the best ``d >= 0`` for the linear gain ``slope'd``, strictly inside ``Z = G - diag(d) > 0``.

    A primal-dual interior point method. With the dual pair ``Y > 0``, ``y = diag(Y) - gain > 0`` both products
    ``Z Y`` and ``d y`` go to zero. Linearised, these equations reduce to one system in the step of ``d``.
    """
    n, gain = curvature.size, slope / slope.mean()
    d = torch.full_like(gain, 0.5 * float(torch.linalg.eigvalsh(curvature.G)[0]))
    Z, Y = curvature.G - torch.diag(d), torch.diag(gain + 1)
    centring = START_CENTRING
    for _ in range(INTERIOR_STEPS):
        y = Y.diagonal() - gain
        gap = float((Z * Y).sum() + d @ y)
        if gap <= SHARPNESS * float(gain @ d):
            break
        mu = centring * gap / (2 * n)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(Z))
        system = inverse * Y + torch.diag(y / d)
        step = solve_spd(system, (gain + mu / d - mu * inverse.diagonal()).unsqueeze(1)).squeeze(1)
        product = (inverse * step) @ Y
        dual_step = mu * inverse - Y + (product + product.T) / 2
        length_d = _step_length(Z, -torch.diag(step), d, step)
        length_Y = _step_length(Y, dual_step, y, dual_step.diagonal())
        d, Y = d + length_d * step, Y + length_Y * dual_step
        Z = curvature.G - torch.diag(d)
        centring = 1 - 0.9 * min(length_d, length_Y)
    return d


def _step_length(M: Tensor, step: Tensor, v: Tensor, v_step: Tensor) -> float:
    """A length at most one, nearly the longest, that keeps ``M`` positive definite and ``v`` positive."""
    reach = torch.where(v_step < 0, -v / v_step, torch.inf).min()
    length = min(1.0, 0.95 * float(reach))
    while int(torch.linalg.cholesky_ex(M + length * step).info):
        length *= SHORTER
    # A point just inside the boundary would make the next system singular.
    return length if length == 1.0 else SHORTER * length
