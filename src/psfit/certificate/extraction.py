"""Diagonal extraction: curvature that the data give to single items, moved from the loss to the ridge.

If ``G - diag(d)`` is still positive semidefinite, the loss stays convex without ``d`` and every ridge ``r_j`` grows to
``r_j + d_j``, which is what the bound lives on. The uniform choice is the smallest eigenvalue. A better one maximises
the bound itself: it is concave in ``d``, with slope ``x_j^2 / s_j - x_j^2`` at the relaxation's solution, and steps
towards the best ``d`` for such a slope (a semidefinite program, by a barrier method) climb it.
"""

import torch
from torch import Tensor

from psfit.certificate.quadratic import EPS, Quadratic
from psfit.instance import Instance

BARRIER_STEPS = 60
SHARPNESS = 1e-3


def uniform(form: Quadratic) -> Tensor:
    """The smallest eigenvalue of ``G`` for every item, safely below the true one; zero where nothing can be had."""
    return torch.full_like(form.ridge, max(_least(form, torch.zeros_like(form.ridge)), 0.0))


def unpooled(inst: Instance) -> float:
    """A uniform extraction when no Gram matrix leaves its node: the sum of the nodes' own smallest eigenvalues."""
    weight, total = inst.source.weight.double(), 0.0
    features = slice(0, inst.layout.features)
    grams = inst.split.columns(features).per_node(lambda A, rows: 2 * A.gram(weight[rows], torch.float64))
    for G, height in zip(grams, inst.split.heights, strict=True):
        trace = float(G.diagonal().sum())
        slack = 2 * (height + 8 * len(G) + 16) * EPS * trace
        total += max(float(torch.linalg.eigvalsh(G)[0]) - slack, 0.0)
    return float(inst.grid.nodes.total(weight.new_tensor([total])))


def safe(form: Quadratic, d: Tensor) -> Tensor:
    """``d >= 0`` raised by what is left, or scaled back until ``G - diag(d)`` is certainly semidefinite."""
    rest = _least(form, d)
    if rest >= 0:
        return d + rest
    # Along the line from zero to d the smallest eigenvalue is at least the mean of the two ends.
    whole = max(_least(form, torch.zeros_like(d)), 0.0)
    return d * (whole / (whole - rest))


def _least(form: Quadratic, d: Tensor) -> float:
    """A number below the smallest eigenvalue of ``G - diag(d)`` whatever rounding did to the entries."""
    n = form.size
    if n == 0:
        return 0.0
    slack = n * form.gram_error + 8 * n * EPS * float(form.G.diagonal().sum() + d.sum())
    return float(torch.linalg.eigvalsh(form.G - torch.diag(d))[0]) - slack


def towards(form: Quadratic, slope: Tensor) -> Tensor:
    """Nearly the best ``d >= 0`` for the linear gain ``slope'd``, strictly inside ``G - diag(d) > 0``."""
    least = float(torch.linalg.eigvalsh(form.G)[0])
    d = torch.full_like(form.ridge, 0.5 * least)
    gain = slope / slope.mean()
    mu = least
    for _ in range(BARRIER_STEPS):
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(form.G - torch.diag(d)))
        gradient = gain + mu * (1 / d - inverse.diagonal())
        hessian = mu * (inverse.square() + torch.diag(1 / d.square()))
        step = torch.linalg.solve(hessian, gradient)
        decrement = max(float(gradient @ step) / mu, 0.0) ** 0.5
        # The damped Newton step of a self-concordant function never leaves its domain.
        d = d + step / (1 + decrement)
        if decrement < 0.7:
            if mu < SHARPNESS * least:
                break
            mu /= 5
    return d
