"""Ascent on the dual of the perspective relaxation of a quadratic form: one problem, all items free.

The alternating direction method of `QuadraticRelaxation`, as loops over a few items. On small problems the calls of a
library would take longer than its arithmetic. Items are columns or groups of them, and coefficients may have bounds.
"""

from math import inf, sqrt

import numpy as np

from psfit.kernels.cpu.compiler import compile_loops, insert_loops
from psfit.kernels.cpu.selection import move_largest_first

# The share of an item's place to which the shares are made to fill the limit, and the most steps towards that.
FILLED = 1e-10
MOST_STEPS = 100


@compile_loops
def ascend(
    inverse: np.ndarray,
    Q: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    item: np.ndarray,
    ridge: np.ndarray,
    left: int,
    rho: float,
    constant: float,
    z: np.ndarray,
    u: np.ndarray,
    enough: float,
    iterations: int,
    check_every: int,
    stalled: float,
    patience: int,
    point: np.ndarray,
) -> float:
    """Iterate from ``z, u (c, n)``, which are changed; return the best dual value and put its point into `point`.

    Parameters
    ----------
    inverse : array (n, n)
        The inverse of the form's matrix, less what is extracted, plus `rho` on its diagonal.
    Q : array (c, n)
        The linear term.
    low, high : array (c, n)
        The bounds of the coefficients, which may be infinite; zero is between them.
    item : array (n,) of integers
        The item of each column.
    ridge : array (items,)
        The ridge and what is extracted, the same for all columns of an item; positive.
    left : int
        How many items may be nonzero.
    enough : float
        A value that is good enough. The ascent also ends when a share `stalled` of the distance to it was not gained
        in `patience` checks in a row.
    """
    c, n = Q.shape
    x, scores = np.empty((c, n)), np.empty(len(ridge))
    best, idle, theta = -inf, 0, 0.0
    for k in range(1, iterations + 1):
        _multiply(Q, z, u, rho, inverse, x)
        if k % check_every == 0 or k == iterations:
            value = constant - _measure(x, z, u, Q, low, high, item, ridge, rho, scores) - sum_largest(scores, left)
            idle = 0 if best == -inf or value - best > stalled * (enough - best) else idle + 1
            if value > best:
                best = value
                for o in range(c):
                    for j in range(n):
                        point[o, j] = x[o, j]
            if idle >= patience or best >= enough:
                break
        theta = _shrink(x, z, u, low, high, item, ridge, left, rho, theta)
    return best


@insert_loops
def _multiply(Q: np.ndarray, z: np.ndarray, u: np.ndarray, rho: float, symmetric: np.ndarray, x: np.ndarray) -> None:
    """``x = (Q + rho (z - u)) symmetric``, four rows of the symmetric matrix at a time."""
    c, n = Q.shape
    right = np.empty(n)
    for o in range(c):
        for j in range(n):
            right[j] = Q[o, j] + rho * (z[o, j] - u[o, j])
            x[o, j] = 0.0
        for j in range(0, n - 3, 4):
            for i in range(n):
                near = right[j] * symmetric[j, i] + right[j + 1] * symmetric[j + 1, i]
                x[o, i] += near + (right[j + 2] * symmetric[j + 2, i] + right[j + 3] * symmetric[j + 3, i])
        for j in range(n - n % 4, n):
            for i in range(n):
                x[o, i] += right[j] * symmetric[j, i]


@insert_loops
def _measure(
    x: np.ndarray,
    z: np.ndarray,
    u: np.ndarray,
    Q: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    item: np.ndarray,
    ridge: np.ndarray,
    rho: float,
    scores: np.ndarray,
) -> float:
    """What the dual value is below the constant, but for the largest scores, which are written to `scores`."""
    total = 0.0
    for k in range(len(scores)):
        scores[k] = 0.0
    for o in range(x.shape[0]):
        for j in range(x.shape[1]):
            # The gradient of the loss at x, and where the ridge and it are least between the bounds.
            g, r = rho * (z[o, j] - u[o, j] - x[o, j]), ridge[item[j]]
            total += 0.5 * x[o, j] * (Q[o, j] + g)
            y = min(max(-g / r, low[o, j]), high[o, j])
            scores[item[j]] -= y * (g + 0.5 * r * y)
    return total


@insert_loops
def _shrink(
    x: np.ndarray,
    z: np.ndarray,
    u: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    item: np.ndarray,
    ridge: np.ndarray,
    left: int,
    rho: float,
    theta: float,
) -> float:
    """The proximal step of the perspective at ``x + u``, see `Domain.shrink`: sets `z` and `u`, returns theta.

    Signs that are not allowed count as zero. The result is moved between the bounds.
    """
    (c, n), count = x.shape, len(ridge)
    slope, offset, factor = np.zeros(count), np.empty(count), np.empty(count)
    for o in range(c):
        for j in range(n):
            w = x[o, j] + u[o, j]
            if (w > 0 and high[o, j] > 0) or (w < 0 and low[o, j] < 0):
                slope[item[j]] += w * w
    for k in range(count):
        slope[k] = sqrt(slope[k] * ridge[k])
        offset[k] = ridge[k] / rho
    theta = find_theta(slope, offset, left, theta)
    for k in range(count):
        share = min(max(slope[k] * theta - offset[k], 0.0), 1.0) if slope[k] > 0 else 0.0
        factor[k] = rho * share / (rho * share + ridge[k])
    for o in range(c):
        for j in range(n):
            w = x[o, j] + u[o, j]
            z[o, j] = min(max(factor[item[j]] * w, low[o, j]), high[o, j])
            u[o, j] = w - z[o, j]
    return theta


@insert_loops
def find_theta(slope: np.ndarray, offset: np.ndarray, left: int, start: float) -> float:
    """The number for which the sum of ``slope_j theta - offset_j``, clipped to [0, 1], is `left`.

    Infinite if all items with a slope fit. Else Newton's method on this piecewise linear function, in brackets: it is
    exact as soon as it reaches the right piece.
    """
    positive = 0
    for j in range(len(slope)):
        positive += slope[j] > 0
    if positive <= left:
        return inf
    low, high, theta = 0.0, inf, start
    for _ in range(MOST_STEPS):
        total, steep = 0.0, 0.0
        for j in range(len(slope)):
            share = slope[j] * theta - offset[j] if slope[j] > 0 else 0.0
            if share >= 1:
                total += 1.0
            elif share > 0:
                total += share
                steep += slope[j]
        if abs(total - left) <= FILLED * left:
            break
        low, high = (theta, high) if total < left else (low, theta)
        theta = theta + (left - total) / steep if steep > 0 else inf
        if not low < theta < high:
            theta = 0.5 * (low + high) if high < inf else _next_kink(slope, offset, low)
    return theta


@insert_loops
def _next_kink(slope: np.ndarray, offset: np.ndarray, low: float) -> float:
    """The least theta above `low` at which another share reaches one."""
    least = inf
    for j in range(len(slope)):
        kink = (1 + offset[j]) / slope[j] if slope[j] > 0 else inf
        least = kink if low < kink < least else least
    return least


@insert_loops
def sum_largest(scores: np.ndarray, count: int) -> float:
    """The sum of the `count` largest scores."""
    n, total = len(scores), 0.0
    values = np.empty(n)
    for j in range(n):
        values[j] = scores[j]
    if 0 < count < n:
        move_largest_first(values, count)
    for j in range(min(count, n)):
        total += values[j]
    return total


def compile_kernels() -> None:
    """Compile the functions, or load them from the disk."""
    one, row = np.ones((1, 1)), np.ones((1, 1))
    item, first = np.zeros(1, np.int64), (one, row, -row, row)
    ascend(*first, item, np.ones(1), 1, 1.0, 0.0, row.copy(), row.copy(), 0.0, 1, 5, 0.01, 2, row.copy())
