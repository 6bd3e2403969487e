"""Minima of quadratic models with the perspective of a limit: a batch of tree nodes, one after the other.

    minimise  1/2 x'Hx - q'x + 1/2 min { sum_j r_j x_j^2 / s_j :  0 <= s <= 1,  sum_j s_j <= left }

Items inside have the share one, items outside are zero, and some items may have one sign only. Let
``a_j = sqrt(r_j) |x_j|``. At given sizes the largest items have whole places, and the others share the places that are
left in proportion to their sizes: ``s_j = a_j / tau``. So a small item pays ``tau a_j``, a large one ``a_j^2 / 2`` and
more. Sweeps over the coordinates find which items are zero, small and large. For such a structure the minimum is the
solution of one linear system.
"""

from math import sqrt

import numpy as np

from psfit.kernels.cpu.compiler import compile_inner_loops, compile_inner_sums, compile_loops
from psfit.kernels.cpu.shares import (
    LARGE,
    SMALL,
    ZERO,
    divide_items,
    duality_gap,
    find_minimum,
    pull_of,
    share_limit,
    value_of,
)

# The fewest sweeps before linear systems, and the most systems after them: fewer in the first rounds, in which many
# items become zero. How often the way to the solution of a system is shortened.
SWEEPS = 3
SYSTEMS = 30
# After how many sweeps the gap is looked at.
CHECKED = 8
MOST_LENGTHS = 6
# What share of its diagonal is added to a system that is singular, at first, at least and at most. It becomes ten times
# as large after a way that was shortened, because the solution was too far away, and a tenth after another one.
SHIFT, LEAST_SHIFT, MOST_SHIFT = 1e-2, 1e-8, 1.0
SHIFT_FACTOR = 10.0


@compile_loops
def minimise_models(
    H: np.ndarray,
    which: np.ndarray,
    Q: np.ndarray,
    ridge: np.ndarray,
    sign: np.ndarray,
    kind: np.ndarray,
    left: np.ndarray,
    tolerance: np.ndarray,
    rounds: int,
    X: np.ndarray,
    shares: np.ndarray,
) -> None:
    """Improve the points ``X (B, n)`` in place, and write the ``shares (B, n)`` that belong to them.

    Parameters
    ----------
    H : array (k, n, n)
        Symmetric matrices; row b has the matrix number ``which[b]``.
    Q : array (B, n)
        The linear terms.
    ridge : array (n,)
        Positive.
    sign : array (n,) of integers
        1 or -1 for items that must not be negative or positive, else 0.
    kind : array (B, n) of integers
        1 for items inside, -1 for items outside, else 0.
    left : array (B,) of integers
        How many of the free items may be nonzero.
    tolerance : array (B,)
        A row is done when its duality gap is at most this, or after so many `rounds`.
    """
    n = Q.shape[1]
    root, held = np.empty(n), np.empty(n, np.int8)
    for j in range(n):
        root[j] = sqrt(ridge[j])
    for b in range(len(Q)):
        places, free = left[b], 0
        for j in range(n):
            free += kind[b, j] == 0
        for j in range(n):
            held[j] = kind[b, j]
            if held[j] == 0 and (places <= 0 or free <= places):
                # There is no choice: all free items are outside, or all are inside.
                held[j] = -1 if places <= 0 else 1
            X[b, j] = 0.0 if held[j] < 0 or sign[j] * X[b, j] < 0 else X[b, j]
        _minimise(H[which[b]], Q[b], ridge, root, sign, held, places, tolerance[b], rounds, X[b], shares[b])


@compile_inner_loops
def _minimise(
    H: np.ndarray,
    q: np.ndarray,
    ridge: np.ndarray,
    root: np.ndarray,
    sign: np.ndarray,
    held: np.ndarray,
    left: int,
    tolerance: float,
    rounds: int,
    x: np.ndarray,
    shares: np.ndarray,
) -> None:
    """One row; `held` is 1 for items inside, -1 for items outside, and else 0."""
    n = len(q)
    h, group, scores, sizes, zero = np.empty(n), np.zeros(n, np.int8), np.empty(n), np.empty(n), np.zeros(n)
    theta, damping = 0.0, np.empty(2)
    damping[0], damping[1] = SHIFT, n + 1
    for k in range(rounds + 1):
        if k % 8 == 0:
            pull_of(H, q, x, h)
        theta = share_limit(x, root, held, left, theta, sizes, zero, shares)
        tau, places = divide_items(sizes, held, left, theta, group)
        if k == rounds or duality_gap(x, h, ridge, sign, held, shares, left, scores) <= tolerance:
            break
        size = 0
        for j in range(n):
            size += x[j] != 0
        # As many sweeps as take the time of a system: each of them may save some, because items become zero.
        for sweep in range(max(SWEEPS, size * size // (3 * n))):
            if sweep and sweep % CHECKED == 0:
                theta = share_limit(x, root, held, left, theta, sizes, zero, shares)
                if duality_gap(x, h, ridge, sign, held, shares, left, scores) <= tolerance:
                    break
            tau, places = _sweep(H, ridge, root, sign, held, tau, places, x, h, group)
        for _ in range(min(3 * k, SYSTEMS)):
            theta = share_limit(x, root, held, left, theta, sizes, zero, shares)
            tau, places = divide_items(sizes, held, left, theta, group)
            if not _solve_structure(H, q, ridge, root, sign, held, places, left, x, h, group, shares, damping):
                break


@compile_inner_sums
def _sweep(
    H: np.ndarray,
    ridge: np.ndarray,
    root: np.ndarray,
    sign: np.ndarray,
    held: np.ndarray,
    tau: float,
    places: float,
    x: np.ndarray,
    h: np.ndarray,
    group: np.ndarray,
) -> tuple[float, float]:
    """Minimise over one coordinate after the other; the structure of the others stays the same meanwhile."""
    n, total = len(x), tau * places
    for j in range(n):
        if held[j] < 0:
            continue
        c, old = h[j] + H[j, j] * x[j], x[j]
        c = 0.0 if sign[j] * c < 0 else c
        if held[j] > 0:
            new = c / (H[j, j] + ridge[j])
        else:
            if group[j] == ZERO and abs(c) <= root[j] * total / places:
                continue
            # What the small items have without this one, and the places that they then share.
            others = max(total - root[j] * abs(old), 0.0) if group[j] == SMALL else total
            room = places + 1 if group[j] == LARGE else places
            size = (abs(c) - root[j] * others / room) / (H[j, j] + ridge[j] / room)
            if size <= 0:
                new, total, places, group[j] = 0.0, others, room, ZERO
            elif root[j] * size * (room - 1) > others:
                size = abs(c) / (H[j, j] + ridge[j])
                total, places, group[j] = others, room - 1, LARGE
                new = size if c > 0 else -size
            else:
                total, places, group[j] = others + root[j] * size, room, SMALL
                new = size if c > 0 else -size
        if new != old:
            x[j] = new
            for i in range(n):
                h[i] -= (new - old) * H[j, i]
    return total / places, places


@compile_inner_loops
def _solve_structure(
    H: np.ndarray,
    q: np.ndarray,
    ridge: np.ndarray,
    root: np.ndarray,
    sign: np.ndarray,
    held: np.ndarray,
    places: float,
    left: int,
    x: np.ndarray,
    h: np.ndarray,
    group: np.ndarray,
    shares: np.ndarray,
    damping: np.ndarray,
) -> bool:
    """Go towards the minimum for the present structure, if that is better; items that change their sign become zero.

    Tell if there are such items: then the structure has changed. `damping` holds the share that is added to singular
    systems, and the fewest items of which a system was singular.
    """
    n, size = len(x), 0
    index = np.empty(n, np.int64)
    for j in range(n):
        if x[j] != 0:
            index[size], size = j, size + 1
    y = np.empty(size)
    singular = size >= damping[1]
    if not singular and not find_minimum(H, q, ridge, root, places, x, group, index, 0.0, y):
        singular, damping[1] = True, size
    if singular:
        find_minimum(H, q, ridge, root, places, x, group, index, damping[0], y)
    new, pull, sizes, zero, fresh = np.empty(n), np.empty(n), np.empty(n), np.zeros(n), np.empty(n)
    length, step, before = 1.0, 1.0, value_of(x, h, q, ridge, shares)
    for s in range(size):
        j = index[s]
        if (held[j] == 0 or sign[j] != 0) and x[j] * y[s] <= 0:
            step = min(step, x[j] / (x[j] - y[s]))
    better = False
    # Ever shorter ways, at last as far as no sign changes.
    for attempt in range(MOST_LENGTHS):
        for j in range(n):
            new[j] = 0.0
        for s in range(size):
            j = index[s]
            value = x[j] + length * (y[s] - x[j])
            new[j] = 0.0 if (held[j] == 0 or sign[j] != 0) and value * x[j] <= 0 else value
        pull_of(H, q, new, pull)
        share_limit(new, root, held, left, 0.0, sizes, zero, fresh)
        if value_of(new, pull, q, ridge, fresh) < before:
            for j in range(n):
                x[j], h[j], shares[j] = new[j], pull[j], fresh[j]
            better = True
            break
        if length <= step:
            break
        length = step if attempt == MOST_LENGTHS - 2 else max(step, 0.3 * length)
    if singular:
        factor = 1 / SHIFT_FACTOR if better and length == 1 else SHIFT_FACTOR
        damping[0] = min(max(factor * damping[0], LEAST_SHIFT), MOST_SHIFT)
    return better and step < 1


def compile_kernels() -> None:
    """Compile the functions, or load them from the disk."""
    row, whole = np.ones((1, 1)), np.zeros(1, np.int64)
    kind, first = np.zeros((1, 1), np.int8), (np.ones((1, 1, 1)), whole, row, np.ones(1))
    minimise_models(*first, kind[0], kind, whole + 1, np.zeros(1), 1, row.copy(), row.copy())
