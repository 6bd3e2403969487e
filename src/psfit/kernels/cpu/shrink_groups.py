"""The primal step of `DataRelaxation` for groups of features, in one pass; see `perspective.shrink` for the formula."""

from math import inf, sqrt

import numpy as np
import torch
from torch import Tensor

from psfit.kernels.cpu.compiler import compile_loops
from psfit.kernels.cpu.perspective import find_theta


def shrink_groups(
    z: Tensor, g: Tensor, tau: float, ridge: Tensor, group: Tensor, inside: Tensor, undecided: Tensor, left: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The proximal step of the perspective with step length `tau` from ``z (n, 1)`` along the gradient ``g (n, 1)``.

    Feature j belongs to the item ``group[j]``, with the ridge ``ridge[group[j]]``; rows after those of ``group (p,)``
    pay nothing. Items `inside` have the share one, those that are `undecided` share the places `left`. Returns the new
    coefficients, twice these less the old ones, and the shares ``(1, size)``.
    """
    moved, ahead, shares = torch.empty_like(z), torch.empty_like(z), torch.empty(1, len(ridge), dtype=z.dtype)
    arrays = [part.flatten().numpy() for part in (z, g, ridge, group, inside, undecided)]
    _shrink_groups(*arrays, tau, left, moved[:, 0].numpy(), ahead[:, 0].numpy(), shares[0].numpy())
    return moved, ahead, shares


@compile_loops
def _shrink_groups(
    z: np.ndarray,
    g: np.ndarray,
    ridge: np.ndarray,
    group: np.ndarray,
    inside: np.ndarray,
    undecided: np.ndarray,
    tau: float,
    left: int,
    moved: np.ndarray,
    ahead: np.ndarray,
    shares: np.ndarray,
) -> None:
    size = len(ridge)
    slope, offset = np.zeros(size), np.empty(size)
    for j in range(len(z)):
        moved[j] = z[j] - tau * g[j]
    for j in range(len(group)):
        slope[group[j]] += moved[j] * moved[j]
    for i in range(size):
        offset[i] = tau * ridge[i]
        slope[i] = sqrt(slope[i] * ridge[i]) if undecided[i] else 0.0
    theta = find_theta(slope, offset, left, 0.0) if left > 0 else 0.0
    for i in range(size):
        share = 0.0
        if inside[i]:
            share = 1.0
        elif slope[i] > 0:
            share = 1.0 if theta == inf else min(max(slope[i] * theta - offset[i], 0.0), 1.0)
        shares[i] = share
    for j in range(len(group)):
        share = shares[group[j]]
        moved[j] *= share / (share + offset[group[j]])
    for j in range(len(z)):
        ahead[j] = 2 * moved[j] - z[j]


def compile_kernels() -> None:
    """Compile the kernel."""
    one, yes = torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    shrink_groups(one, one, 1.0, one[0], torch.zeros(1, dtype=torch.int64), ~yes, yes, 1)
