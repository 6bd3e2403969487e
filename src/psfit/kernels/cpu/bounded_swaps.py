"""Swap search in a quadratic form whose variables have bounds, as plain loops; see `states` for the state.

The objective is ``x'Hx / 2 - q'x`` with ``low <= x <= high``, zero included. At the minimum on a support some of its
variables are free, and the others are held at a bound. A state holds only the free ones. So a variable that meets a
bound leaves the state, and the gradient follows its value; one whose derivative points away from its bound joins.

Exchanges are scored as if no further variable met a bound. The most promising ones are made, and taken back unless the
minimum after them is lower.
"""

from typing import NamedTuple

import numpy as np

from psfit.kernels.cpu.compiler import compile_inner_sums, compile_sums
from psfit.kernels.cpu.states import Rules, change_state, copy_state, make_state

# Exchanges that are tried before a search ends.
TRIED = 8
# Changes of the state after an exchange, for each variable and in addition, before the exchange is given up.
CHANGES_PER_VARIABLE, MORE_CHANGES = 3, 20
# A bound is met beyond this share of the variable; a derivative counts above this share of what the form can gain.
ROUNDING = 1e-12


class Bounds(NamedTuple):
    """The bounds of all variables ``(n,)``; the group of each, or -1; and how many of each group are allowed."""

    low: np.ndarray
    high: np.ndarray
    group: np.ndarray
    most: np.ndarray


class Support(NamedTuple):
    """A support: which variables are members ``(n,)``, the values of members that are not free, and members of each
    group.
    """

    member: np.ndarray
    held: np.ndarray
    taken: np.ndarray


@compile_inner_sums
def _shift(H, state, size, k, v):  # type: ignore[no-untyped-def]
    """Add `v` to the value of variable `k`, which is not free; the free variables follow."""
    places, inside, _, inner, outer, left = state
    for b in range(size):
        inner[b, 0] -= v * outer[k, 1 + b]
    for m in range(len(left)):
        if not inside[m]:
            r = H[k, m]
            for b in range(size):
                r -= H[k, places[b]] * outer[m, 1 + b]
            outer[m, 0] += v * r


@compile_inner_sums
def _settle(H, q, state, support, size, rules, bounds, room):  # type: ignore[no-untyped-def]
    """Hold variables beyond their bounds, and free members that would lower the objective; the new size, or -1."""
    places, inside, _, inner, outer, left = state
    scale = 0.0
    for k in range(len(q)):
        scale = max(scale, 0.5 * q[k] * q[k] / H[k, k])
    for _step in range(CHANGES_PER_VARIABLE * len(places) + MORE_CHANGES):
        worst, place, value = 0.0, -1, 0.0
        for a in range(size):
            k, x = places[a], inner[a, 0]
            over = max(bounds.low[k] - x, x - bounds.high[k])
            if over > ROUNDING * abs(x) and over * over * H[k, k] > worst:
                worst, place = over * over * H[k, k], a
                value = bounds.low[k] if x < bounds.low[k] else bounds.high[k]
        if place >= 0:
            k = places[place]
            size = change_state(H, state, rules, room, place, -1, size)
            support.held[k] = value
            if value != 0.0:
                _shift(H, state, size, k, value)
            continue
        best, newcomer = ROUNDING * scale, -1
        for k in range(len(q)):
            if not support.member[k] or inside[k]:
                continue
            d = outer[k, 0]
            moves = support.held[k] < bounds.high[k] if d < 0 else support.held[k] > bounds.low[k]
            gain = 0.5 * d * d / max(left[k], rules.accuracy * H[k, k])
            if moves and gain > best:
                best, newcomer = gain, k
        if newcomer < 0:
            return size
        if support.held[newcomer] != 0.0:
            _shift(H, state, size, newcomer, -support.held[newcomer])
            support.held[newcomer] = 0.0
        size = change_state(H, state, rules, room, -1, newcomer, size)
    return -1


@compile_inner_sums
def _measure(q, state, support, size):  # type: ignore[no-untyped-def]
    """The objective at the minimum on the support."""
    total = 0.0
    for a in range(size):
        total -= 0.5 * q[state.places[a]] * state.inner[a, 0]
    for k in range(len(q)):
        if support.member[k] and not state.inside[k] and support.held[k] != 0.0:
            total += 0.5 * support.held[k] * (state.outer[k, 0] - q[k])
    return total


@compile_inner_sums
def _gain(d, own, low, high):  # type: ignore[no-untyped-def]
    """By how much a variable lowers the objective between its bounds."""
    step = min(max(-d / own, low), high)
    return -(d * step + 0.5 * own * step * step)


@compile_inner_sums
def _score(H, state, support, size, rules, bounds, fixed, least, swaps, gains, partners, room):  # type: ignore[no-untyped-def]
    """For every variable outside the gain of its best swap, or of joining alone; minus infinity where it cannot.

    The partner is the variable that leaves. The cheapest member is returned.
    """
    places, inside, _, inner, outer, left = state
    cheapest, lowest, idle, price = -1, np.inf, -1, np.inf
    for a in range(size):
        k = places[a]
        room[0, a] = 1 / inner[a, 1 + a]
        room[1, a] = np.inf if fixed[k] else 0.5 * inner[a, 0] * inner[a, 0] * room[0, a]
        if room[1, a] < lowest:
            lowest, cheapest = room[1, a], k
    for k in range(len(left)):
        if support.member[k] and not inside[k] and not fixed[k]:
            h = support.held[k]
            cost = max(0.5 * left[k] * h * h - outer[k, 0] * h, 0.0)
            if cost < price:
                price, idle = cost, k
    if price < lowest:
        cheapest = idle
    for k in range(len(left)):
        gains[k], partners[k] = -np.inf, -1
        if support.member[k] or fixed[k]:
            continue
        floor = rules.accuracy * H[k, k]
        own, d, g = max(left[k], floor), outer[k, 0], bounds.group[k]
        full = g >= 0 and support.taken[g] >= bounds.most[g]
        if not swaps:
            if not full:
                gains[k] = _gain(d, own, bounds.low[k], bounds.high[k])
            continue
        # No exchange gains more than the newcomer alone would without bounds.
        if 0.5 * d * d <= least * own:
            continue
        if idle >= 0 and (not full or bounds.group[idle] == g):
            gains[k], partners[k] = _gain(d, own, bounds.low[k], bounds.high[k]) - price, idle
        for a in range(size):
            if full and bounds.group[places[a]] != g:
                continue
            f = outer[k, 1 + a] * room[0, a]
            curvature = left[k] + outer[k, 1 + a] * f
            if curvature <= floor:
                continue
            gain = _gain(d - f * inner[a, 0], curvature, bounds.low[k], bounds.high[k]) - room[1, a]
            if gain > gains[k]:
                gains[k], partners[k] = gain, places[a]
    return cheapest


@compile_inner_sums
def _remove(H, state, support, size, rules, bounds, k, room):  # type: ignore[no-untyped-def]
    """Take variable `k` out of the support; the new size."""
    if state.inside[k]:
        for a in range(size):
            if state.places[a] == k:
                size = change_state(H, state, rules, room, a, -1, size)
                break
    elif support.held[k] != 0.0:
        _shift(H, state, size, k, -support.held[k])
    support.member[k], support.held[k] = False, 0.0
    if bounds.group[k] >= 0:
        support.taken[bounds.group[k]] -= 1
    return size


@compile_inner_sums
def _add(support, bounds, k):  # type: ignore[no-untyped-def]
    """Make variable `k` a member, at zero."""
    support.member[k], support.held[k] = True, 0.0
    if bounds.group[k] >= 0:
        support.taken[bounds.group[k]] += 1


@compile_inner_sums
def _copy_support(source, target):  # type: ignore[no-untyped-def]
    for k in range(len(source.member)):
        target.member[k] = source.member[k]
        target.held[k] = source.held[k]
    for g in range(len(source.taken)):
        target.taken[g] = source.taken[g]


@compile_sums
def _walk(H, q, state, support, spare, kept, limit, most_swaps, fixed, rules, bounds, tolerance, gains, partners, room):  # type: ignore[no-untyped-def]
    """Let variables join or leave up to the `limit`, then swap; the number of swaps, or -1 if no minimum was found.

    The `limit` counts all members. A swap must gain more than the share `tolerance[0]` of ``tolerance[1]`` and the
    objective. Arrays `spare` and `kept` have room for a copy of the state and the support.
    """
    count = 0
    for k in range(len(q)):
        count += support.member[k]
    size = _settle(H, q, state, support, 0, rules, bounds, room)
    while size >= 0 and count != limit:
        leaves = _score(H, state, support, size, rules, bounds, fixed, 0.0, False, gains, partners, room)
        newcomer = np.argmax(gains)
        if count < limit:
            if gains[newcomer] == -np.inf:
                break
            _add(support, bounds, newcomer)
            count += 1
        else:
            if leaves < 0:
                break
            size = _remove(H, state, support, size, rules, bounds, leaves, room)
            count -= 1
        size = _settle(H, q, state, support, size, rules, bounds, room)
    if size < 0:
        return -1
    swaps = 0
    while swaps < most_swaps:
        value = _measure(q, state, support, size)
        least = tolerance[0] * abs(tolerance[1] + value)
        _score(H, state, support, size, rules, bounds, fixed, least, True, gains, partners, room)
        found = False
        for _try in range(TRIED):
            newcomer = np.argmax(gains)
            if not gains[newcomer] > least:
                break
            copy_state(state, spare, size)
            _copy_support(support, kept)
            before, leaves = size, partners[newcomer]
            size = _remove(H, state, support, size, rules, bounds, leaves, room)
            _add(support, bounds, newcomer)
            size = _settle(H, q, state, support, size, rules, bounds, room)
            found = size >= 0 and _measure(q, state, support, size) < value - least
            if found:
                break
            size = before
            copy_state(spare, state, size)
            _copy_support(kept, support)
            gains[newcomer] = -np.inf
        if not found:
            break
        swaps += 1
    return swaps


def walk(
    H: np.ndarray,
    q: np.ndarray,
    bounds: Bounds,
    fixed: np.ndarray,
    accuracy: float,
    chosen: np.ndarray,
    limit: int,
    most_swaps: int,
    tolerance: tuple[float, float],
) -> tuple[np.ndarray, int]:
    """The members ``(n,)`` after a walk from those in ``chosen (n,)``, and the number of swaps; see `_walk`.

    Variables that are `fixed` stay in or out.
    """
    n, width = len(q), max(int(chosen.sum()), limit) + 1
    column, alone = q[:, None], np.full(n, -1)
    state, spare = (make_state(H, column, width, 1) for _ in range(2))
    taken = np.zeros(len(bounds.most), np.int64)
    np.add.at(taken, bounds.group[chosen & (bounds.group >= 0)], 1)
    support, kept = (Support(chosen.copy(), np.zeros(n), taken.copy()) for _ in range(2))
    rules = Rules(fixed, alone, np.zeros(1, np.int64), accuracy)
    gains, partners, room = np.empty(n), np.empty(n, np.int64), np.empty((3, width + 1))
    swaps: int = _walk(
        *(H, q, state, support, spare, kept, limit, most_swaps, fixed, rules, bounds),
        *(np.array(tolerance), gains, partners, room),
    )
    return support.member, swaps


def compile_kernels() -> None:
    """Compile the function that searches call."""
    nothing, none = np.full(2, np.inf), np.full(2, -1)
    bounds = Bounds(np.zeros(2), nothing, none, np.zeros(1, np.int64))
    walk(np.eye(2), np.ones(2), bounds, np.zeros(2, bool), 1e-11, np.zeros(2, bool), 1, 1, (0.0, 0.0))
