"""Minima of second-order models with the perspective of a limit on groups of features, by shares and ridges in turn.

    minimise  1/2 x'Hx - q'x + 1/2 min { sum_I r_I |x_I|^2 / s_I :  0 <= s <= 1,  sum_I s_I <= left }

For given shares this is a ridge regression, whose ridges are ``r_I / s_I``; for given coefficients the best shares are
known. The objective is convex in both together, and falls with each. With ``D^2 = s / r`` and ``x = D y`` the system is
``(D H D + 1) y = D q``, which stays regular where shares become zero.
"""

import torch
from torch import Tensor

from psfit.certificate.relaxation import fill_places, sum_ridges
from psfit.kernels.linalg import cholesky
from psfit.problem import Domain
from psfit.problem.items import Items

# How often shares and ridges follow each other in one model.
ROUNDS = 6


def minimise_by_shares(
    items: Items, ridge: Tensor, H: Tensor, q: Tensor, domain: Domain, x: Tensor, tolerance: float
) -> Tensor:
    """The coefficients ``(p,)`` near the minimum of one model, from the coefficients `x`.

    The `domain` is a batch of one, ``H (p, p)`` the model's matrix, ``ridge (p,)`` that of each feature. The rounds end
    at a duality gap of `tolerance`.
    """
    sizes = measure_items(items, ridge, x.unsqueeze(0))
    even = torch.full_like(sizes, float(domain.left.clamp(min=0)) / max(1, int(domain.free.sum())))
    # Groups without coefficients have no share at the best ones, and would never get any.
    shares = torch.where(domain.free & (sizes == 0), even.clamp(max=1), fill_places(domain, sizes))
    for _ in range(ROUNDS):
        root = (items.spread_rows(shares[0]) / ridge).sqrt()
        scaled = root.unsqueeze(1) * H * root
        scaled.diagonal().add_(1.0)
        x = root * torch.cholesky_solve((root * q).unsqueeze(1), cholesky(scaled)).squeeze(1)
        sizes, product = measure_items(items, ridge, x.unsqueeze(0)), H @ x
        shares = fill_places(domain, sizes)
        scores = items.sum_rows((q - product).square() / (2 * ridge)).unsqueeze(0)
        gap = x @ (product - q) + sum_ridges(sizes, shares) + domain.conjugate(scores)
        if float(gap) <= tolerance:
            break
    return x


def measure_items(items: Items, ridge: Tensor, x: Tensor) -> Tensor:
    """The sizes ``(B, size)`` of the items in the perspective, for coefficients ``x (B, p)``."""
    if items.in_groups:
        return items.sum_rows(ridge * x.square()).sqrt()
    return ridge.sqrt() * x.abs()
