"""Diagonal extraction: curvature that the data give to single items, moved from the loss to the ridge.

If ``G - diag(d)`` is still positive semidefinite, the loss stays convex without ``d`` and every ridge ``r_j`` grows to
``r_j + d_j``, which is what the bound lives on. The uniform choice is the smallest eigenvalue. A better one maximises
the bound itself: it is concave in ``d``, with slope ``x_j^2 / s_j - x_j^2`` at the relaxation's solution, and steps
towards the best ``d`` for such a slope (a semidefinite program, by a barrier method) climb it.
"""

import torch
from torch import Tensor

from psfit.certificate.quadratic import EPS, Quadratic
from psfit.kernels.linalg import solve_spd
from psfit.problem.instance import Instance

# The interior point method: steps at most, the relative gap at which it ends, how far from the centre it starts to aim,
# and the factor by which a step that leaves the domain shrinks.
INTERIOR_STEPS = 25
SHARPNESS = 1e-2
START_CENTRING = 0.3
SHORTER = 0.8
# Up to this size a smallest eigenvalue is cheap. Above it a Krylov space of the inverse guesses it, and a Cholesky
# factor of the matrix without one of these shares of the guess proves it.
EIGENVALUES_UP_TO = 512
KRYLOV_WIDTH = 8
KRYLOV_STEPS = 5
SHARES = (0.99, 0.95, 0.8, 0.5)


def uniform(form: Quadratic) -> Tensor:
    """The smallest eigenvalue of ``G`` for every item, safely below the true one; zero where nothing can be had."""
    nothing = torch.zeros_like(form.ridge)
    return nothing if form.size > form.rank else nothing + max(_least(form, nothing), 0.0)


def unpooled(inst: Instance) -> float:
    """A uniform extraction when no Gram matrix leaves its node: the sum of the nodes' own smallest eigenvalues."""
    weight, total = inst.source.weight, 0.0
    features = slice(0, inst.items.features)
    grams = inst.split.columns(features).per_node(lambda A, rows: 2 * A.gram(weight[rows], torch.float64))
    for G, height in zip(grams, inst.split.heights, strict=True):
        trace = float(G.diagonal().sum())
        slack = 2 * (height + 8 * len(G) + 16) * EPS * trace
        total += max(least_eigenvalue(G) - slack, 0.0)
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
    slack = n * form.gram_error + form.spectral_error + 8 * n * EPS * float(form.G.diagonal().sum() + d.sum())
    return least_eigenvalue(form.G - torch.diag(d)) - slack


def least_eigenvalue(M: Tensor) -> float:
    """The smallest eigenvalue of a symmetric matrix, or a little less, up to the rounding of a Cholesky factor."""
    if len(M) <= EIGENVALUES_UP_TO:
        return float(torch.linalg.eigvalsh(M)[0])
    factor, info = torch.linalg.cholesky_ex(M)
    if int(info):
        return float(torch.linalg.eigvalsh(M)[0])
    guess = _krylov_guess(M, factor)
    for share in SHARES:
        shifted = M.clone()
        shifted.diagonal().sub_(share * guess)
        if not int(torch.linalg.cholesky_ex(shifted).info):
            return share * guess
    return 0.0


def _krylov_guess(M: Tensor, factor: Tensor) -> float:
    """At least the smallest eigenvalue of a positive definite matrix, and close to it."""
    generator = torch.Generator().manual_seed(0)
    block = torch.randn(len(M), KRYLOV_WIDTH, generator=generator, dtype=M.dtype).to(M.device)
    blocks = []
    for _ in range(KRYLOV_STEPS):
        block = torch.cholesky_solve(block, factor)
        block = block / block.norm(dim=0)
        blocks.append(block)
    basis = torch.linalg.qr(torch.cat(blocks, dim=1)).Q
    return float(torch.linalg.eigvalsh((basis.T @ (M @ basis)).cpu())[0])


def towards(form: Quadratic, slope: Tensor) -> Tensor:
    """Nearly the best ``d >= 0`` for the linear gain ``slope'd``, strictly inside ``Z = G - diag(d) > 0``.

    A primal-dual interior point method. The dual pair ``Y > 0``, ``y = diag(Y) - gain > 0`` has ``Z Y`` and ``d y`` go
    to zero; linearised, both equations leave one system in the step of ``d``.
    """
    n, gain = form.size, slope / slope.mean()
    d = torch.full_like(gain, 0.5 * float(torch.linalg.eigvalsh(form.G)[0]))
    Z, Y = form.G - torch.diag(d), torch.diag(gain + 1)
    centring = START_CENTRING
    for _ in range(INTERIOR_STEPS):
        y = Y.diagonal() - gain
        apart = float((Z * Y).sum() + d @ y)
        if apart <= SHARPNESS * float(gain @ d):
            break
        mu = centring * apart / (2 * n)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(Z))
        system = inverse * Y + torch.diag(y / d)
        step = solve_spd(system, (gain + mu / d - mu * inverse.diagonal()).unsqueeze(1)).squeeze(1)
        turned = (inverse * step) @ Y
        dual_step = mu * inverse - Y + (turned + turned.T) / 2
        along = _longest(Z, -torch.diag(step), d, step)
        dual_along = _longest(Y, dual_step, y, dual_step.diagonal())
        d, Y = d + along * step, Y + dual_along * dual_step
        Z = form.G - torch.diag(d)
        centring = 1 - 0.9 * min(along, dual_along)
    return d


def _longest(M: Tensor, step: Tensor, v: Tensor, v_step: Tensor) -> float:
    """A length at most one, nearly the longest, that keeps ``M`` positive definite and ``v`` positive."""
    reach = torch.where(v_step < 0, -v / v_step, torch.inf).min()
    length = min(1.0, 0.95 * float(reach))
    while int(torch.linalg.cholesky_ex(M + length * step).info):
        length *= SHORTER
    # The boundary may be near: a point just inside it would make the next system singular.
    return length if length == 1.0 else SHORTER * length
