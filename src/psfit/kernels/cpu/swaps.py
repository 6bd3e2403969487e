"""Swap search in a quadratic form, as plain loops; see `states` for the form and the state of a support.

A variable l that joins would lower the objective by ``add_l = |d_l|^2 / (2 left_l)``. A swap that brings it in cannot
gain more than that, so most variables need no further look.
"""

import numpy as np

from psfit.kernels.cpu.compiler import compile_inner_sums, compile_sums
from psfit.kernels.cpu.states import build, copy_state, exchange, join, leave, make_rules, rebuild, value_of

# A state is made again if the value that was carried along is off by this share of what the form can gain.
MOST_DRIFT = 1e-7


@compile_inner_sums
def best_addition(H, state, rules):  # type: ignore[no-untyped-def]
    """The variable that would lower the objective most; -1 if none may join."""
    best, found = -1.0, -1
    for k in range(len(state.left)):
        g = rules.group[k]
        if state.inside[k] or rules.fixed[k] or (g >= 0 and state.taken[g] >= rules.most[g]):
            continue
        if state.left[k] > rules.accuracy * H[k, k]:
            gain = _square(state.d, k) / state.left[k]
            if gain > best:
                best, found = gain, k
    return found


@compile_inner_sums
def cheapest_place(state, size, rules):  # type: ignore[no-untyped-def]
    """The place whose variable costs least to leave; -1 if all must stay."""
    best, found = np.inf, -1
    for a in range(size):
        if not rules.fixed[state.places[a]]:
            cost = _square(state.x, a) / state.K[a, a]
            if cost < best:
                best, found = cost, a
    return found


@compile_inner_sums
def _square(x, k):  # type: ignore[no-untyped-def]
    total = 0.0
    for o in range(x.shape[1]):
        total += x[k, o] * x[k, o]
    return total


@compile_sums
def best_swap(H, state, size, rules, least):  # type: ignore[no-untyped-def]
    """The place, the newcomer and the gain of the best swap that gains more than `least`; place -1 if there is none."""
    places, inside, K, T, x, d, left, taken = state
    n, c = d.shape
    best, place, newcomer = least, -1, -1
    inverse = np.empty(size)
    cost = np.empty(size)
    for a in range(size):
        inverse[a] = 1 / K[a, a]
        cost[a] = np.inf if rules.fixed[places[a]] else 0.5 * _square(x, a) * inverse[a]
    for k in range(n):
        if inside[k] or rules.fixed[k]:
            continue
        own = max(left[k], 0.0)
        floor = rules.accuracy * H[k, k]
        if own > floor and _square(d, k) <= 2 * best * own:
            continue
        g = rules.group[k]
        full = g >= 0 and taken[g] >= rules.most[g]
        for a in range(size):
            if full and rules.group[places[a]] != g:
                continue
            f = T[k, a] * inverse[a]
            curvature = own + T[k, a] * f
            if curvature <= floor:
                continue
            force = 0.0
            for o in range(c):
                v = d[k, o] - f * x[a, o]
                force += v * v
            gain = 0.5 * force / curvature - cost[a]
            if gain > best:
                best, place, newcomer = gain, a, k
    return place, newcomer, best


@compile_inner_sums
def descend(H, Q, state, size, rules, constant, rel_tol, most_swaps):  # type: ignore[no-untyped-def]
    """Make the best swap until none gains more than `rel_tol` of the objective; return the objective and the swaps."""
    value = value_of(Q, state, size)
    swaps = 0
    while swaps < most_swaps:
        place, newcomer, gain = best_swap(H, state, size, rules, rel_tol * abs(constant + value))
        if place < 0:
            break
        exchange(H, state, place, newcomer, size, rules)
        swaps += 1
        before, value = value, value_of(Q, state, size)
        if not abs(value - (before - gain)) <= MOST_DRIFT * abs(value):
            rebuild(H, Q, state, size, rules)
            value = value_of(Q, state, size)
            if not value < before:
                break
    return value, swaps


@compile_sums
def grow(H, state, size, limit, rules):  # type: ignore[no-untyped-def]
    """Add the best variable again and again, up to `limit`; return the new size."""
    while size < limit:
        i = best_addition(H, state, rules)
        if i < 0:
            break
        join(H, state, i, size, rules)
        size += 1
    return size


@compile_sums
def shrink(state, size, limit, rules):  # type: ignore[no-untyped-def]
    """Take out the cheapest variable again and again, down to `limit`; return the new size."""
    while size > limit:
        j = cheapest_place(state, size, rules)
        if j < 0:
            break
        leave(state, j, size, rules)
        size -= 1
    return size


@compile_sums
def search_rows(H, Q, base, work, size, starts, most_swaps, rules, constant, rel_tol, values, swaps):  # type: ignore[no-untyped-def]
    """Descend from each row of ``starts (B, size)``, which differ from `base` in some places.

    The ends replace the starts; their objectives and numbers of swaps are written to `values` and `swaps`.
    """
    for row in range(len(starts)):
        copy_state(base, work, size)
        for a in range(size):
            i = starts[row, a]
            if i != work.places[a] and not work.inside[i]:
                t = work.T[i, a]
                if work.left[i] + t * t / work.K[a, a] > rules.accuracy * H[i, i]:
                    exchange(H, work, a, i, size, rules)
        if exceeds_groups(work, rules):
            copy_state(base, work, size)
        value, count = descend(H, Q, work, size, rules, constant, rel_tol, most_swaps[row])
        values[row] = value
        swaps[row] = count
        for a in range(size):
            starts[row, a] = work.places[a]


@compile_inner_sums
def exceeds_groups(state, rules):  # type: ignore[no-untyped-def]
    """Whether a group has too many variables inside, because some exchanges to a start were left out."""
    excess = 0
    for g in range(len(state.taken)):
        excess = max(excess, state.taken[g] - rules.most[g])
    return excess > 0


@compile_sums
def score_newcomers(H, state, size, rules, gains, partners):  # type: ignore[no-untyped-def]
    """For every variable the gain of its best swap, and the place of its partner; -1 where there is none."""
    places, inside, K, T, x, d, left, taken = state
    for k in range(len(left)):
        gains[k], partners[k] = -np.inf, -1
        if inside[k] or rules.fixed[k]:
            continue
        g = rules.group[k]
        full = g >= 0 and taken[g] >= rules.most[g]
        own, floor = max(left[k], 0.0), rules.accuracy * H[k, k]
        for a in range(size):
            if rules.fixed[places[a]] or (full and rules.group[places[a]] != g):
                continue
            f = T[k, a] / K[a, a]
            curvature = own + T[k, a] * f
            if curvature <= floor:
                continue
            force = 0.0
            for o in range(d.shape[1]):
                v = d[k, o] - f * x[a, o]
                force += v * v
            gain = 0.5 * force / curvature - 0.5 * _square(x, a) / K[a, a]
            if gain > gains[k]:
                gains[k], partners[k] = gain, a


def compile_kernels() -> None:
    """Compile the functions that searches call."""
    H, Q, places = np.eye(4), np.ones((4, 1)), np.arange(2)
    rules = make_rules(np.zeros(4, bool), np.full(4, -1), np.zeros(1, np.int64), 4, 1, 1e-11)
    state, work = build(H, Q, places, 1, rules), build(H, Q, places, 0, rules)
    size = grow(H, state, 1, 2, rules)
    rows, values, swaps = places[np.newaxis].copy(), np.empty(1), np.empty(1, np.int64)
    search_rows(H, Q, state, work, size, rows, np.ones(1, np.int64), rules, 0.0, 1e-9, values, swaps)
    score_newcomers(H, state, size, rules, np.empty(4), np.empty(4, np.int64))
    value_of(Q, state, shrink(state, size, 1, rules))
