"""Iterations of the alternating direction method for the model of a joint loss with all its second derivatives.

Items are entries of the coefficients ``(n, c)``, or whole rows of them. The rows after those of the items belong to the
intercepts, which have no limit.
"""

from math import inf, sqrt

import numpy as np
import torch
from torch import Tensor

from psfit.kernels.cpu.compiler import compile_inner_loops, compile_inner_sums, compile_loops
from psfit.kernels.cpu.perspective import find_theta

# What stands in for a largest coefficient of zero.
TINY = 1e-300


def joint_steps(
    inverse: Tensor,
    pull: Tensor,
    penalty: Tensor,
    start: Tensor,
    z: Tensor,
    u: Tensor,
    ridge: Tensor,
    kind: Tensor,
    left: int,
    width: int,
    overshoot: float,
    steps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The points ``z, u, x (n, c)`` after some steps, and the share of z that the last one has changed.

    Parameters
    ----------
    inverse : Tensor (n c, n c)
        The inverse of the model's matrix with the penalties of the rows on its diagonal.
    pull, start, z, u : Tensor (n, c)
        The linear term of the model, the intercepts near which they stay, and the points.
    penalty : Tensor (n, 1)
    ridge : Tensor (items,)
    kind : Tensor (items,) of integers
        1 for items inside, -1 for items outside, else 0.
    left : int
        How many of the others may be nonzero.
    width : int
        The coefficients of an item.
    """
    points = [part.clone(memory_format=torch.contiguous_format) for part in (z, u, z)]
    given = [part.contiguous().numpy() for part in (inverse, pull, penalty.flatten(), start, ridge, kind)]
    change = _advance(*given, left, width, overshoot, steps, *(part.numpy() for part in points))
    return points[0], points[1], points[2], z.new_tensor(change)


@compile_loops
def _advance(
    inverse: np.ndarray,
    pull: np.ndarray,
    penalty: np.ndarray,
    start: np.ndarray,
    ridge: np.ndarray,
    kind: np.ndarray,
    left: int,
    width: int,
    overshoot: float,
    steps: int,
    z: np.ndarray,
    u: np.ndarray,
    x: np.ndarray,
) -> float:
    (n, c), items = z.shape, len(ridge)
    counted, change, theta, rho = items * width, 0.0, 0.0, penalty[0]
    right, w = np.empty(n * c), np.empty(n * c)
    slope, offset, factor = np.empty(items), np.empty(items), np.empty(items)
    for item in range(items):
        offset[item] = ridge[item] / rho
    for _ in range(steps):
        for k in range(n * c):
            i, j = k // c, k % c
            anchor = z[i, j] - u[i, j] if k < counted else start[i, j]
            right[k] = pull[i, j] + penalty[i] * anchor
        _multiply(inverse, right, x)
        for k in range(n * c):
            i, j = k // c, k % c
            w[k] = overshoot * x[i, j] + (1 - overshoot) * z[i, j] + u[i, j]
        theta = _find_factors(w, ridge, kind, left, width, rho, theta, slope, offset, factor)
        largest = moved = 0.0
        for k in range(n * c):
            i, j = k // c, k % c
            new = factor[k // width] * w[k] if k < counted else w[k]
            largest, moved = max(largest, abs(new)), max(moved, abs(new - z[i, j]))
            z[i, j], u[i, j] = new, w[k] - new
        change = moved / max(largest, TINY)
    return change


@compile_inner_sums
def _multiply(symmetric: np.ndarray, right: np.ndarray, x: np.ndarray) -> None:
    """``x = symmetric right``, with x as rows of a table."""
    size, c = len(right), x.shape[1]
    for k in range(size):
        total = 0.0
        for i in range(size):
            total += symmetric[k, i] * right[i]
        x[k // c, k % c] = total


@compile_inner_loops
def _find_factors(
    w: np.ndarray,
    ridge: np.ndarray,
    kind: np.ndarray,
    left: int,
    width: int,
    rho: float,
    theta: float,
    slope: np.ndarray,
    offset: np.ndarray,
    factor: np.ndarray,
) -> float:
    """The factors of the items in the proximal step of the perspective, see `problem.perspective.shrink`."""
    for item in range(len(ridge)):
        square = 0.0
        for k in range(item * width, (item + 1) * width):
            square += w[k] * w[k]
        slope[item] = sqrt(square * ridge[item]) if kind[item] == 0 and left > 0 else 0.0
    theta = find_theta(slope, offset, left, theta if theta < inf else 0.0) if left > 0 else 0.0
    for item in range(len(ridge)):
        share = 1.0 if kind[item] > 0 else 0.0
        if slope[item] > 0:
            share = 1.0 if theta == inf else min(max(slope[item] * theta - offset[item], 0.0), 1.0)
        factor[item] = rho * share / (rho * share + ridge[item])
    return theta


def compile_kernels() -> None:
    """Compile the functions, or load them from the disk."""
    one, kind = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.int8)
    joint_steps(one, one, one, one, one, one, one[0], kind, 1, 1, 1.0, 1)
