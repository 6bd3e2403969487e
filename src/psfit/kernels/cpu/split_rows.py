"""An iteration of the alternating direction method for perspectives, for many rows: all but the matrix product."""

from math import sqrt

import numpy as np
import torch
from torch import Tensor

from psfit.kernels.cpu.compiler import compile_loops
from psfit.kernels.cpu.perspective import find_theta


def split_rows(
    x: Tensor, u: Tensor, z: Tensor, Q: Tensor, ridge: Tensor, rho: Tensor, kind: Tensor, left: Tensor, theta: Tensor
) -> Tensor:
    """From the points ``x (B, n)`` to the next right-hand sides ``Q + rho (z - u)``; changes `u`, `z` and `theta`.

    The parameters are those of the kernel for GPUs (`kernels/cuda/split_rows.py`), float64 and contiguous.
    """
    right = torch.empty_like(x)
    places = left.flatten().long()
    parts = (x, u, z, Q, ridge, rho.flatten(), kind, places, theta, right)
    _split_rows(*(part.numpy() for part in parts))
    return right


@compile_loops
def _split_rows(
    x: np.ndarray,
    u: np.ndarray,
    z: np.ndarray,
    Q: np.ndarray,
    ridge: np.ndarray,
    rho: np.ndarray,
    kind: np.ndarray,
    left: np.ndarray,
    theta: np.ndarray,
    right: np.ndarray,
) -> None:
    count, n = x.shape
    slope, offset, root = np.empty(n), np.empty(n), np.empty(n)
    for j in range(n):
        root[j] = sqrt(ridge[j])
    for b in range(count):
        penalty, places = rho[b], left[b]
        for j in range(n):
            u[b, j] += x[b, j]
            slope[j] = abs(u[b, j]) * root[j] if kind[b, j] == 0 else 0.0
            offset[j] = ridge[j] / penalty
        level = find_theta(slope, offset, places, theta[b]) if places > 0 else 0.0
        # Without a finite level all free items have whole places.
        whole = not level < np.inf
        theta[b] = 0.0 if whole else level
        for j in range(n):
            share = 1.0 if kind[b, j] > 0 else 0.0
            if slope[j] > 0 and places > 0:
                share = 1.0 if whole else min(max(slope[j] * level - offset[j], 0.0), 1.0)
            moved = penalty * share / (penalty * share + ridge[j]) * u[b, j]
            z[b, j], u[b, j] = moved, u[b, j] - moved
            right[b, j] = Q[b, j] + penalty * (2 * moved - (u[b, j] + moved))


def compile_kernels() -> None:
    """Compile the kernel."""
    row, kind = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.int8)
    split_rows(row, row.clone(), row.clone(), row, row[0], row, kind, row, row[0].clone())
