"""Supports in a quadratic form, with what a search needs to know of all variables; as plain loops.

The objective is ``sum_o x_o'H x_o / 2 - q_o'x_o`` over the outputs o, on a support S of places. With ``K = H_SS^-1`` a
state holds ``T = H[:, S] K``, the gradient ``d``, and the Schur complement ``left_l = H_ll - H_lS K H_Sl`` of every
variable. All of them follow when a variable joins or leaves by updates of rank one, so an exchange reads and writes `T`
once and calls no library.

Rows of `T` of variables inside the support are unit vectors and are not kept. They are set when a variable leaves.
"""

from collections import namedtuple

import numpy as np

from psfit.kernels.cpu.compiler import compile_inner_sums, compile_sums

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


@compile_inner_sums
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


@compile_inner_sums
def clear(H, Q, state):  # type: ignore[no-untyped-def]
    """Empty the support."""
    for i in range(len(state.left)):
        state.inside[i] = False
        state.left[i] = H[i, i]
        for o in range(Q.shape[1]):
            state.d[i, o] = -Q[i, o]
    for g in range(len(state.taken)):
        state.taken[g] = 0


@compile_sums
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


@compile_sums
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


@compile_sums
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


@compile_inner_sums
def _free(state, j, size):  # type: ignore[no-untyped-def]
    """Set what is known of the variable in place `j`, which was inside and will be outside."""
    gone = state.places[j]
    for a in range(size):
        state.T[gone, a] = 0.0
    state.T[gone, j] = 1.0
    state.left[gone] = 0.0
    for o in range(state.d.shape[1]):
        state.d[gone, o] = 0.0


@compile_inner_sums
def _move_groups(taken, rules, gone, joined):  # type: ignore[no-untyped-def]
    """Count an exchange in the groups of both variables."""
    if rules.group[gone] >= 0:
        taken[rules.group[gone]] -= 1
    if rules.group[joined] >= 0:
        taken[rules.group[joined]] += 1


@compile_sums
def exchange(H, state, j, i, size, rules):  # type: ignore[no-untyped-def]
    """Replace the variable in place `j` by variable `i`, in one pass over `T`.

    `f` are the shares of the variable that leaves, `u` is the row of `T` of the newcomer after that.
    """
    places, inside, K, T, x, d, left, taken = state
    n, c = d.shape
    gone = places[j]
    own = K[j, j]
    t = T[i, j]
    s = left[i] + t * t / own
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
    inside[gone], inside[i] = False, True
    _move_groups(taken, rules, gone, i)
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


@compile_sums
def value_of(Q, state, size):  # type: ignore[no-untyped-def]
    """The objective at the minimiser on the support."""
    total = 0.0
    for a in range(size):
        for o in range(Q.shape[1]):
            total -= 0.5 * Q[state.places[a], o] * state.x[a, o]
    return total


@compile_sums
def rebuild(H, Q, state, size, rules):  # type: ignore[no-untyped-def]
    """Make the state of a support again from the form."""
    clear(H, Q, state)
    for a in range(size):
        join(H, state, state.places[a], a, rules)


@compile_sums
def build(H, Q, places, size, rules):  # type: ignore[no-untyped-def]
    """The state of a support with `size` variables, and room for as many as there are `places`."""
    state = make_state(H, Q, len(places), len(rules.most))
    for a in range(size):
        state.places[a] = places[a]
    rebuild(H, Q, state, size, rules)
    return state
