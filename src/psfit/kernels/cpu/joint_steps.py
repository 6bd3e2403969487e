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


def joint_steps(
    inverse: Tensor,
    which: Tensor,
    pull: Tensor,
    penalty: Tensor,
    start: Tensor,
    u: Tensor,
    ridge: Tensor,
    kind: Tensor,
    left: Tensor,
    width: int,
    overshoot: float,
    steps: int,
    unchanged: float,
) -> Tensor:
    """Points ``z (B, N)`` after at most so many steps from `start`, which leave out those of the intercepts.

    A row is done when a step changes its largest coefficient by less than a share `unchanged`.

    Parameters
    ----------
    inverse : Tensor (k, N, N)
        The inverses of the models' matrices with the penalties on their diagonals; row b has number ``which[b]``.
    pull, start, u : Tensor (B, N)
        The linear terms of the models, the points, near whose intercepts the next ones stay, and the multipliers.
    penalty : Tensor (k, N)
    ridge : Tensor (items,)
    kind : Tensor (B, items) of integers
        1 for items inside, -1 for items outside, else 0.
    left : Tensor (B,) of integers
        How many of the others may be nonzero.
    width : int
        The coefficients of an item.
    """
    z = start.clone(memory_format=torch.contiguous_format)
    given = [part.contiguous().numpy() for part in (inverse, which, pull, penalty, start, ridge, kind, left)]
    points = u.clone(memory_format=torch.contiguous_format).numpy(), z.numpy()
    _advance_rows(*given, width, overshoot, steps, unchanged, *points)
    return z


@compile_loops
def _advance_rows(
    inverse: np.ndarray,
    which: np.ndarray,
    pull: np.ndarray,
    penalty: np.ndarray,
    start: np.ndarray,
    ridge: np.ndarray,
    kind: np.ndarray,
    left: np.ndarray,
    width: int,
    overshoot: float,
    steps: int,
    unchanged: float,
    U: np.ndarray,
    Z: np.ndarray,
) -> None:
    for b in range(len(Z)):
        model = inverse[which[b]], pull[b], penalty[which[b]], start[b]
        _advance(*model, ridge, kind[b], left[b], width, overshoot, steps, unchanged, U[b], Z[b])


@compile_inner_loops
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
    unchanged: float,
    u: np.ndarray,
    z: np.ndarray,
) -> None:
    """One row; the last point of the intercepts is that of the model, which has no limit on them."""
    size, items = len(z), len(ridge)
    counted, theta, rho = items * width, 0.0, penalty[0]
    right, x, w = np.empty(size), np.empty(size), np.empty(size)
    slope, offset, factor = np.empty(items), np.empty(items), np.empty(items)
    for item in range(items):
        offset[item] = ridge[item] / rho
    for _ in range(steps):
        for k in range(size):
            anchor = z[k] - u[k] if k < counted else start[k]
            right[k] = pull[k] + penalty[k] * anchor
        _multiply(inverse, right, x)
        for k in range(size):
            w[k] = overshoot * x[k] + (1 - overshoot) * z[k] + u[k]
        theta = _find_factors(w, ridge, kind, left, width, rho, theta, slope, offset, factor)
        largest = moved = 0.0
        for k in range(size):
            new = factor[k // width] * w[k] if k < counted else w[k]
            largest, moved = max(largest, abs(new)), max(moved, abs(new - z[k]))
            z[k], u[k] = new, w[k] - new
        if moved <= unchanged * largest:
            break
    for k in range(counted, size):
        z[k] = x[k]


@compile_inner_sums
def _multiply(symmetric: np.ndarray, right: np.ndarray, x: np.ndarray) -> None:
    """``x = symmetric right``."""
    size = len(right)
    for k in range(size):
        total = 0.0
        for i in range(size):
            total += symmetric[k, i] * right[i]
        x[k] = total


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
    one, whole, kind = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.int64), torch.zeros(1, 1)
    kind, model = kind.to(torch.int8), (one.unsqueeze(0), whole, one, one)
    joint_steps(*model, one, one, one[0], kind, whole + 1, 1, 1.0, 1, 0.0)
