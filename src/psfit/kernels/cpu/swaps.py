"""Swap search in a quadratic form, as plain loops.

The objective is ``sum_o x_o'H x_o / 2 - q_o'x_o`` over the outputs o, on a support S of places. With ``K = H_SS^-1`` a
state holds ``T = H[:, S] K``, the gradient ``d``, and the Schur complement ``left_l = H_ll - H_lS K H_Sl`` of every
variable. All of them follow an exchange by updates of rank one, so a swap reads and writes `T` once and calls no
library. A variable l that joins would lower the objective by ``add_l = |d_l|^2 / (2 left_l)``. A swap that brings it in
cannot gain more than that, so most variables need no further look.

Rows of `T` of variables inside the support are unit vectors and are not kept. They are set when a variable leaves.
"""

from collections import namedtuple

import numpy as np

from psfit.kernels.cpu.compiler import compiled_sums

# A state is made again if the value that was carried along is off by this share of what the form can gain.
MOST_DRIFT = 1e-7

# The limits of a search, which do not change with its state: `fixed (n,)` variables stay in or out; a variable l of
# the group ``group[l] >= 0`` may join only while fewer than ``most[group]`` of that group are inside; a variable with a
# Schur complement below the share `accuracy` of its own curvature depends on the support, up to rounding.
Rules = namedtuple("Rules", ["fixed", "group", "most", "accuracy"])
# The places of a support, and what the module's text describes: ``places (W,)``, ``inside (n,)``, ``K (W, W)``,
# ``T (n, W)``, ``x (W, c)``, ``d (n, c)``, ``left (n,)``, ``taken (groups,)``.
State = namedtuple("State", ["places", "inside", "K", "T", "x", "d", "left", "taken"])


def make_rules(
    fixed: np.ndarray, group: np.ndarray, most: np.ndarray, variables: int, width: int, accuracy: float
) -> Rules:
    """The rules of items with one variable each, and of intercepts behind them, which stay in."""
    others = variables - len(fixed)
    stay, alone = np.ones(others, bool), np.full(others, -1)
    return Rules(np.concatenate([fixed, stay]), np.concatenate([group, alone]), most, accuracy)


@compiled_sums
def make_state(H, Q, width, groups):  # type: ignore[no-untyped-def]
    """The state of an empty support with room for `width` variables."""
    n, c = Q.shape
    state = State(
        np.empty(width, np.int64),
        np.empty(n, np.bool_),
        np.zeros((width, width)),
        np.zeros((n, width)),
        np.zeros((width, c)),
        np.empty((n, c)),
        np.empty(n),
        np.empty(groups, np.int64),
    )
    clear(H, Q, state)
    return state


@compiled_sums
def clear(H, Q, state):  # type: ignore[no-untyped-def]
    """Empty the support."""
    for i in range(len(state.left)):
        state.inside[i] = False
        state.left[i] = H[i, i]
        for o in range(Q.shape[1]):
            state.d[i, o] = -Q[i, o]
    for g in range(len(state.taken)):
        state.taken[g] = 0


@compiled_sums
def copy_state(source, target, size):  # type: ignore[no-untyped-def]
    """Copy a state with `size` variables into the arrays of another one."""
    n, c = source.d.shape
    for a in range(size):
        target.places[a] = source.places[a]
        for b in range(size):
            target.K[a, b] = source.K[a, b]
        for o in range(c):
            target.x[a, o] = source.x[a, o]
    for i in range(n):
        target.inside[i] = source.inside[i]
        target.left[i] = source.left[i]
        for a in range(size):
            target.T[i, a] = source.T[i, a]
        for o in range(c):
            target.d[i, o] = source.d[i, o]
    for g in range(len(source.taken)):
        target.taken[g] = source.taken[g]


@compiled_sums
def join(H, state, i, size, rules):  # type: ignore[no-untyped-def]
    """Put variable `i` in the place `size`, after the last one.

    One that depends on those inside gets as much curvature as rounding may have, so that all numbers stay finite.
    """
    places, inside, K, T, x, d, left, taken = state
    n, c = d.shape
    s = max(left[i], rules.accuracy * H[i, i])
    u, h, step = np.empty(size), np.empty(size), np.empty(c)
    for o in range(c):
        step[o] = -d[i, o] / s
    for a in range(size):
        u[a] = T[i, a]
        h[a] = H[i, places[a]]
    for a in range(size):
        for b in range(size):
            K[a, b] += u[a] * u[b] / s
        K[a, size] = K[size, a] = -u[a] / s
        for o in range(c):
            x[a, o] -= u[a] * step[o]
    K[size, size] = 1 / s
    for o in range(c):
        x[size, o] = step[o]
    places[size] = i
    inside[i] = True
    if rules.group[i] >= 0:
        taken[rules.group[i]] += 1
    for k in range(n):
        if inside[k]:
            continue
        r = 0.0
        for a in range(size):
            r += h[a] * T[k, a]
        r = H[i, k] - r
        f = r / s
        for a in range(size):
            T[k, a] -= u[a] * f
        T[k, size] = f
        left[k] -= r * f
        for o in range(c):
            d[k, o] += r * step[o]


@compiled_sums
def leave(state, j, size, rules):  # type: ignore[no-untyped-def]
    """Take the variable in place `j` out; the last variable gets its place."""
    places, inside, K, T, x, d, left, taken = state
    n, c = d.shape
    last = size - 1
    gone = places[j]
    _free(state, j, size)
    inside[gone] = False
    if rules.group[gone] >= 0:
        taken[rules.group[gone]] -= 1
    own = K[j, j]
    f, pull = np.empty(size), np.empty(c)
    for a in range(size):
        f[a] = K[a, j] / own
    for o in range(c):
        pull[o] = x[j, o] / own
    for k in range(n):
        if inside[k]:
            continue
        t = T[k, j]
        for a in range(size):
            T[k, a] -= f[a] * t
        T[k, j] = T[k, last]
        left[k] += t * t / own
        for o in range(c):
            d[k, o] -= t * pull[o]
    for a in range(size):
        if a == j:
            continue
        for b in range(size):
            if b != j:
                K[a, b] -= f[a] * f[b] * own
        for o in range(c):
            x[a, o] -= f[a] * x[j, o]
    places[j] = places[last]
    for o in range(c):
        x[j, o] = x[last, o]
    for a in range(size):
        K[a, j] = K[a, last]
    for a in range(size):
        K[j, a] = K[last, a]


@compiled_sums
def _free(state, j, size):  # type: ignore[no-untyped-def]
    """Set what is known of the variable in place `j`, which was inside and will be outside."""
    gone = state.places[j]
    for a in range(size):
        state.T[gone, a] = 0.0
    state.T[gone, j] = 1.0
    state.left[gone] = 0.0
    for o in range(state.d.shape[1]):
        state.d[gone, o] = 0.0


@compiled_sums
def exchange(H, state, j, i, size, rules):  # type: ignore[no-untyped-def]
    """Replace the variable in place `j` by variable `i`, in one pass over `T`."""
    places, inside, K, T, x, d, left, taken = state
    n, c = d.shape
    gone = places[j]
    own = K[j, j]
    t = T[i, j]
    s = left[i] + t * t / own
    # `f` are the shares of the variable that leaves, `u` the row of `T` of the newcomer after that.
    f, u, h, pull, step = np.empty(size), np.empty(size), np.empty(size), np.empty(c), np.empty(c)
    for a in range(size):
        f[a] = K[a, j] / own
        u[a] = T[i, a] - f[a] * t
        h[a] = H[i, places[a]]
    u[j] = 0.0
    for o in range(c):
        pull[o] = x[j, o] / own
        step[o] = -(d[i, o] - t * pull[o]) / s
    for a in range(size):
        if a == j:
            continue
        for b in range(size):
            if b != j:
                K[a, b] += u[a] * u[b] / s - f[a] * f[b] * own
        for o in range(c):
            x[a, o] -= f[a] * x[j, o] + u[a] * step[o]
    for a in range(size):
        K[a, j] = K[j, a] = -u[a] / s
    K[j, j] = 1 / s
    for o in range(c):
        x[j, o] = step[o]
    _free(state, j, size)
    places[j] = i
    inside[gone] = False
    inside[i] = True
    if rules.group[gone] >= 0:
        taken[rules.group[gone]] -= 1
    if rules.group[i] >= 0:
        taken[rules.group[i]] += 1
    for k in range(n):
        if inside[k]:
            continue
        v = T[k, j]
        r = 0.0
        for a in range(size):
            r += h[a] * T[k, a]
        r = H[i, k] - r + t * v / own
        g = r / s
        for a in range(size):
            T[k, a] -= f[a] * v + u[a] * g
        T[k, j] = g
        left[k] += v * v / own - r * g
        for o in range(c):
            d[k, o] += r * step[o] - v * pull[o]


@compiled_sums
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


@compiled_sums
def cheapest_place(state, size, rules):  # type: ignore[no-untyped-def]
    """The place whose variable costs least to leave; -1 if all must stay."""
    best, found = np.inf, -1
    for a in range(size):
        if not rules.fixed[state.places[a]]:
            cost = _square(state.x, a) / state.K[a, a]
            if cost < best:
                best, found = cost, a
    return found


@compiled_sums
def _square(x, k):  # type: ignore[no-untyped-def]
    total = 0.0
    for o in range(x.shape[1]):
        total += x[k, o] * x[k, o]
    return total


@compiled_sums
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


@compiled_sums
def value_of(Q, state, size):  # type: ignore[no-untyped-def]
    """The objective at the minimiser on the support."""
    total = 0.0
    for a in range(size):
        for o in range(Q.shape[1]):
            total -= 0.5 * Q[state.places[a], o] * state.x[a, o]
    return total


@compiled_sums
def rebuild(H, Q, state, size, rules):  # type: ignore[no-untyped-def]
    """Make the state of a support again from the form."""
    clear(H, Q, state)
    for a in range(size):
        join(H, state, state.places[a], a, rules)


@compiled_sums
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


@compiled_sums
def grow(H, state, size, limit, rules):  # type: ignore[no-untyped-def]
    """Add the best variable again and again, up to `limit`; return the new size."""
    while size < limit:
        i = best_addition(H, state, rules)
        if i < 0:
            break
        join(H, state, i, size, rules)
        size += 1
    return size


@compiled_sums
def shrink(state, size, limit, rules):  # type: ignore[no-untyped-def]
    """Take out the cheapest variable again and again, down to `limit`; return the new size."""
    while size > limit:
        j = cheapest_place(state, size, rules)
        if j < 0:
            break
        leave(state, j, size, rules)
        size -= 1
    return size


@compiled_sums
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


@compiled_sums
def exceeds_groups(state, rules):  # type: ignore[no-untyped-def]
    """Whether a group has too many variables inside, because some exchanges to a start were left out."""
    excess = 0
    for g in range(len(state.taken)):
        excess = max(excess, state.taken[g] - rules.most[g])
    return excess > 0


@compiled_sums
def build(H, Q, places, size, rules):  # type: ignore[no-untyped-def]
    """The state of a support with `size` variables, and room for as many as there are `places`."""
    state = make_state(H, Q, len(places), len(rules.most))
    for a in range(size):
        state.places[a] = places[a]
    rebuild(H, Q, state, size, rules)
    return state


@compiled_sums
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
