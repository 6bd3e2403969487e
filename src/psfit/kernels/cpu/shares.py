"""Shares of a limit: which items of a point have a whole place, which share one, and what that costs.

Let ``a_j = sqrt(r_j) |x_j|``. The largest items have whole places, and the others share the places that are left in
proportion to their sizes: ``s_j = a_j / tau``. Helpers of other kernels.
"""

from math import inf, sqrt

import numpy as np

from psfit.kernels.cpu.compiler import compile_inner_loops, compile_inner_sums, insert_loops
from psfit.kernels.cpu.perspective import find_theta, sum_largest

# The structure of a point: what each item is in it.
OUTSIDE, ZERO, SMALL, LARGE = -1, 0, 1, 2
# How many rows of a factor are made together; an even number.
TILE = 4


@compile_inner_sums
def pull_of(H: np.ndarray, q: np.ndarray, x: np.ndarray, h: np.ndarray) -> None:
    """``h = q - H x``."""
    for j in range(len(q)):
        h[j] = q[j]
    for j in range(len(q)):
        if x[j] != 0:
            for i in range(len(q)):
                h[i] -= x[j] * H[j, i]


@compile_inner_loops
def share_limit(
    x: np.ndarray,
    root: np.ndarray,
    held: np.ndarray,
    left: int,
    theta: float,
    sizes: np.ndarray,
    zero: np.ndarray,
    shares: np.ndarray,
) -> float:
    """Write the sizes and the best shares of a point; return ``theta = 1 / tau``."""
    any_free = False
    for j in range(len(x)):
        sizes[j] = root[j] * abs(x[j]) if held[j] == 0 else 0.0
        any_free = any_free or held[j] == 0
    theta = find_theta(sizes, zero, left, theta if theta < inf else 0.0) if any_free else inf
    for j in range(len(x)):
        if held[j] != 0:
            shares[j] = 1.0 if held[j] > 0 else 0.0
        else:
            shares[j] = min(1.0, theta * sizes[j]) if sizes[j] > 0 else 0.0
    return theta


@insert_loops
def divide_items(
    sizes: np.ndarray, held: np.ndarray, left: int, theta: float, group: np.ndarray
) -> tuple[float, float]:
    """Write which items are zero, small and large; return tau and how many places the small ones share."""
    tau, places = 1.0 / theta if theta > 0 else inf, float(left)
    if theta == inf:
        # All items that are not zero have a place. The least of them shares it with an item that enters.
        count, tau = 0, inf
        for j in range(len(sizes)):
            if held[j] == 0 and sizes[j] > 0:
                count, tau = count + 1, min(tau, sizes[j])
        tau = 0.0 if count < left else tau
    for j in range(len(sizes)):
        if held[j] != 0:
            group[j] = LARGE if held[j] > 0 else OUTSIDE
        elif sizes[j] == 0:
            group[j] = ZERO
        elif sizes[j] > tau * (1 + 1e-12):
            group[j], places = LARGE, places - 1
        else:
            group[j] = SMALL
    return tau, max(places, 1.0)


@compile_inner_loops
def duality_gap(
    x: np.ndarray,
    h: np.ndarray,
    ridge: np.ndarray,
    sign: np.ndarray,
    held: np.ndarray,
    shares: np.ndarray,
    left: int,
    scores: np.ndarray,
) -> float:
    """The duality gap of the model: ridge at the shares, its conjugate at the pull `h`, less ``h'x``."""
    total = 0.0
    for j in range(len(x)):
        scores[j] = 0.0
        if held[j] < 0:
            continue
        score = h[j] * h[j] / (2 * ridge[j]) if sign[j] * h[j] >= 0 else 0.0
        if shares[j] > 0:
            total += 0.5 * ridge[j] * x[j] * x[j] / shares[j] - h[j] * x[j]
        if held[j] > 0:
            total += score
        else:
            scores[j] = score
    return total + sum_largest(scores, left)


@compile_inner_loops
def value_of(x: np.ndarray, h: np.ndarray, q: np.ndarray, ridge: np.ndarray, shares: np.ndarray) -> float:
    """The model with the perspective at a point with the pull `h`."""
    total = 0.0
    for j in range(len(x)):
        if x[j] != 0:
            total += 0.5 * ridge[j] * x[j] * x[j] / max(shares[j], 1e-300) - 0.5 * x[j] * (q[j] + h[j])
    return total


@compile_inner_loops
def find_minimum(
    H: np.ndarray,
    q: np.ndarray,
    ridge: np.ndarray,
    root: np.ndarray,
    places: float,
    x: np.ndarray,
    group: np.ndarray,
    index: np.ndarray,
    shift: float,
    y: np.ndarray,
) -> bool:
    """Write the minimum for a structure to `y`, and tell if it is one; a `shift` keeps it near `x`."""
    size = len(y)
    M = np.empty((size, size))
    for s in range(size):
        i = index[s]
        edge = (root[i] if x[i] > 0 else -root[i]) / places if group[i] == SMALL else 0.0
        for t in range(s + 1):
            j = index[t]
            M[s, t] = H[i, j]
            if edge != 0 and group[j] == SMALL:
                M[s, t] += edge * (root[j] if x[j] > 0 else -root[j])
        M[s, s] += ridge[i] if group[i] == LARGE else 0.0
        y[s] = q[i] + shift * M[s, s] * x[i]
        M[s, s] *= 1 + shift
    return _solve(M, y)


@compile_inner_sums
def _solve(M: np.ndarray, y: np.ndarray) -> bool:
    """Solve ``M y = y``, where `M` has only its lower half; tell if it is positive definite."""
    n = len(y)
    for i in range(0, n, TILE):
        whole = i + TILE <= n
        if whole:
            _solve_rows(M, i)
        for s in range(i, min(i + TILE, n)):
            for j in range(i if whole else 0, s):
                total = M[s, j]
                for k in range(j):
                    total -= M[s, k] * M[j, k]
                M[s, j] = total / M[j, j]
            total = M[s, s]
            for k in range(s):
                total -= M[s, k] * M[s, k]
            if not total > 1e-14 * M[s, s]:
                return False
            M[s, s] = sqrt(total)
    for i in range(n):
        for k in range(i):
            y[i] -= M[i, k] * y[k]
        y[i] /= M[i, i]
    for i in range(n - 1, -1, -1):
        y[i] /= M[i, i]
        for k in range(i):
            y[k] -= M[i, k] * y[i]
    return True


@compile_inner_sums
def _solve_rows(M: np.ndarray, i: int) -> None:
    """Four rows of the factor, from row `i` on, in the columns before `i`: two columns at a time.

    A number that is loaded takes part in several sums. This makes the factor as fast as that of a library.
    """
    a, b, c, d = M[i], M[i + 1], M[i + 2], M[i + 3]
    for j in range(0, i, 2):
        left, right = M[j], M[j + 1]
        a0, b0, c0, d0 = a[j], b[j], c[j], d[j]
        a1, b1, c1, d1 = a[j + 1], b[j + 1], c[j + 1], d[j + 1]
        for k in range(j):
            x, y, ak, bk, ck, dk = left[k], right[k], a[k], b[k], c[k], d[k]
            a0, b0, c0, d0 = a0 - ak * x, b0 - bk * x, c0 - ck * x, d0 - dk * x
            a1, b1, c1, d1 = a1 - ak * y, b1 - bk * y, c1 - ck * y, d1 - dk * y
        share = 1 / left[j]
        a0, b0, c0, d0 = a0 * share, b0 * share, c0 * share, d0 * share
        share, edge = 1 / right[j + 1], right[j]
        a[j], b[j], c[j], d[j] = a0, b0, c0, d0
        a[j + 1], b[j + 1] = (a1 - a0 * edge) * share, (b1 - b0 * edge) * share
        c[j + 1], d[j + 1] = (c1 - c0 * edge) * share, (d1 - d0 * edge) * share
