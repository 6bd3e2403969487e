"""Swap search in a quadratic form, as plain loops; see `states` for the form and the state of a support.

A variable l that joins would lower the objective by ``add_l = |d_l|^2 / (2 left_l)``. A swap that brings it in cannot
gain more than that, so most variables need no further look.

All searches are one compiled function. To compile several, which share their parts, would take several times as long.
"""

import numpy as np

from psfit.kernels.cpu.compiler import compile_inner_sums, compile_sums, insert_loops
from psfit.kernels.cpu.states import (
    Rules,
    State,
    change_state,
    clear_state,
    copy_state,
    make_rules,
    make_state,
    value_of,
)

__all__ = ["build", "change", "grow", "make_rules", "score_newcomers", "search_rows", "shrink", "value_of"]

# A state is made again if the value that was carried along is off by this share of what the form can gain.
MOST_DRIFT = 1e-7
NO_CHANGES = np.empty((0, 2), np.int64)
# Numbers of swaps of a walk that is no search.
NO_SEARCH = np.full(1, -1)


@insert_loops
def _exceeds(outer, k, room, size, own, floor, best):  # type: ignore[no-untyped-def]
    """Whether a swap that brings in variable `k` gains more than `best`, for one output.

    This loop has no division and no jump, so it uses vector instructions. Most newcomers need nothing else.
    """
    hits, d = 0.0, outer[k, 0]
    for a in range(size):
        t = outer[k, 1 + a]
        f = t * room[0, a]
        curvature = own + t * f
        v = d - f * room[2, a]
        ahead = 0.5 * v * v - (best + room[1, a]) * curvature
        hits += 1.0 if ahead > 0 and curvature > floor else 0.0
    return hits > 0


@compile_inner_sums
def _choose(H, state, size, limit, rules, least, room):  # type: ignore[no-untyped-def]
    """The best change: the place that becomes free, the newcomer, and the gain; -1 stands for none.

    Below the `limit` the variable that gains most joins, above it the one that costs least leaves. At the limit it is
    the best swap that gains more than `least`.
    """
    places, inside, taken, inner, outer, left = state
    c, grows, shrinks = inner.shape[1] - inner.shape[0], size < limit, size > limit
    best, place, newcomer = -1.0 if grows else least, -1, -1
    lowest = np.inf
    for a in range(size):
        square = 0.0
        for o in range(c):
            square += inner[a, o] * inner[a, o]
        room[0, a] = 1 / inner[a, c + a]
        room[1, a] = np.inf if rules.fixed[places[a]] else 0.5 * square * room[0, a]
        room[2, a] = inner[a, 0]
        if shrinks and room[1, a] < lowest:
            lowest, place = room[1, a], a
    for k in range(0 if shrinks else len(left)):
        if inside[k] or rules.fixed[k]:
            continue
        own, floor, square = max(left[k], 0.0), rules.accuracy * H[k, k], 0.0
        for o in range(c):
            square += outer[k, o] * outer[k, o]
        if own > floor and square <= 2 * best * own:
            continue
        g = rules.group[k]
        full = g >= 0 and taken[g] >= rules.most[g]
        if grows:
            if own > floor and not full:
                best, newcomer = 0.5 * square / own, k
            continue
        if c == 1 and not _exceeds(outer, k, room, size, own, floor, best):
            continue
        for a in range(size):
            if full and rules.group[places[a]] != g:
                continue
            f = outer[k, c + a] * room[0, a]
            curvature = own + outer[k, c + a] * f
            if curvature <= floor:
                continue
            force = 0.0
            for o in range(c):
                v = outer[k, o] - f * inner[a, o]
                force += v * v
            gain = 0.5 * force / curvature - room[1, a]
            if gain > best:
                best, place, newcomer = gain, a, k
    return place, newcomer, best


@insert_loops
def _may_exchange(H, state, j, i, rules):  # type: ignore[no-untyped-def]
    """Whether variable `i` is outside and, once that in place `j` has left, does not depend on the support."""
    place = state.inner.shape[1] - state.inner.shape[0] + j
    t = state.outer[i, place]
    return not state.inside[i] and state.left[i] + t * t / state.inner[j, place] > rules.accuracy * H[i, i]


@insert_loops
def _exceeds_groups(state, rules):  # type: ignore[no-untyped-def]
    """Whether a group has too many variables inside."""
    exceeds = False
    for g in range(len(state.taken)):
        exceeds |= state.taken[g] > rules.most[g]
    return exceeds


@insert_loops
def _measure(Q, state, size):  # type: ignore[no-untyped-def]
    """The same as `value_of`."""
    total = 0.0
    for a in range(size):
        for o in range(Q.shape[1]):
            total -= 0.5 * Q[state.places[a], o] * state.inner[a, o]
    return total


@compile_sums
def _walk(H, Q, base, state, size, limit, changes, known, most_swaps, rules, constant, rel_tol, results, room):  # type: ignore[no-untyped-def]
    """For each row of ``changes (B, W, 2)``: make its first `known` changes, then go on to the `limit` and to swaps.

    A change is a place that becomes free and a newcomer; -1 stands for none. Exchanges that are not possible are left
    out. Then variables join or leave up to the `limit`, and the best swaps are made, at most ``most_swaps[row]``, until
    none gains more than `rel_tol` of the objective. If that number is negative, there are none, and the row goes on
    from `state`; else it begins at `base`. The places at the end replace the newcomers. The objective and the number of
    swaps are written to ``results (B, 2)``. Returns the size in the end.
    """
    for row in range(len(changes)):
        step, steps, swaps, value, before, expected = 0, known, 0, 0.0, 0.0, 0.0
        begins, copies, rebuilt = most_swaps[row] >= 0, most_swaps[row] >= 0, False
        while True:
            if copies:
                copy_state(base, state, size)
                copies = False
            if step < steps:
                j, i = changes[row, step, 0], changes[row, step, 1]
                step += 1
                if j >= 0 and i >= 0 and not _may_exchange(H, state, j, i, rules):
                    continue
            else:
                if begins:
                    # Exchanges that were left out can spoil the groups.
                    begins, copies = False, _exceeds_groups(state, rules)
                    if copies:
                        continue
                if size == limit:
                    value = _measure(Q, state, size)
                    drifts = swaps > 0 and not abs(value - expected) <= MOST_DRIFT * abs(value)
                    if drifts and not rebuilt:
                        for a in range(size):
                            changes[row, a, 0], changes[row, a, 1] = -1, state.places[a]
                        clear_state(H, Q, state)
                        step, steps, size, rebuilt = 0, size, 0, True
                        continue
                    if swaps >= most_swaps[row] or (rebuilt and not value < before):
                        break
                    rebuilt = False
                j, i, gain = _choose(H, state, size, limit, rules, rel_tol * abs(constant + value), room)
                if j < 0 and i < 0:
                    break
                if size == limit:
                    before, expected, swaps = value, value - gain, swaps + 1
            size = change_state(H, state, rules, room, j, i, size)
        results[row, 0], results[row, 1] = value, swaps
        for a in range(size):
            changes[row, a, 1] = state.places[a]
    return size


def change(
    H: np.ndarray, Q: np.ndarray, state: State, size: int, rules: Rules, changes: np.ndarray, limit: int | None = None
) -> int:
    """Make ``changes (count, 2)`` of a support, and let variables join or leave up to the `limit`; the new size.

    A change is a place that becomes free and a newcomer; -1 stands for none.
    """
    rows = np.full((1, max(len(changes), len(state.places)), 2), -1)
    rows[0, : len(changes)] = changes
    if limit is None:
        limit = size + int((changes[:, 1] >= 0).sum() - (changes[:, 0] >= 0).sum())
    results, room = np.empty((1, 2)), np.empty((3, state.inner.shape[1]))
    after: int = _walk(H, Q, state, state, size, limit, rows, len(changes), NO_SEARCH, rules, 0.0, 0.0, results, room)
    return after


def build(H: np.ndarray, Q: np.ndarray, places: np.ndarray, size: int, rules: Rules) -> State:
    """The state of a support with `size` variables, and room for as many as there are `places`."""
    state = make_state(H, Q, len(places), len(rules.most))
    if size > 0:
        change(H, Q, state, 0, rules, np.stack([np.full(size, -1), places[:size]], axis=1))
    return state


def grow(H: np.ndarray, Q: np.ndarray, state: State, size: int, limit: int, rules: Rules) -> int:
    """Add the best variable again and again, up to `limit`; return the new size."""
    return change(H, Q, state, size, rules, NO_CHANGES, max(size, limit))


def shrink(H: np.ndarray, Q: np.ndarray, state: State, size: int, limit: int, rules: Rules) -> int:
    """Take out the cheapest variable again and again, down to `limit`; return the new size."""
    return change(H, Q, state, size, rules, NO_CHANGES, min(size, limit))


def search_rows(
    H: np.ndarray,
    Q: np.ndarray,
    base: State,
    work: State,
    size: int,
    starts: np.ndarray,
    most_swaps: np.ndarray,
    rules: Rules,
    constant: float,
    rel_tol: float,
    values: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Descend from each row of ``starts (B, size)``, which differ from `base` in some places.

    The ends replace the starts; their objectives and numbers of swaps are written to `values` and `counts`.
    """
    changes = np.empty((len(starts), size, 2), np.int64)
    changes[:, :, 0], changes[:, :, 1] = np.arange(size), starts
    results, room = np.empty((len(starts), 2)), np.empty((3, base.inner.shape[1]))
    _walk(H, Q, base, work, size, size, changes, size, most_swaps, rules, constant, rel_tol, results, room)
    starts[:], values[:], counts[:] = changes[:, :, 1], results[:, 0], results[:, 1]


def score_newcomers(
    H: np.ndarray, state: State, size: int, rules: Rules, gains: np.ndarray, partners: np.ndarray
) -> None:
    """For every variable the gain of its best swap, and the place of its partner; -1 where there is none."""
    places, own = state.places[:size], np.maximum(state.left, 0.0)[:, None]
    x, T, diagonal = state.x[:size], state.T[:, :size], state.K.diagonal()[:size]
    f = T / diagonal
    curvature = own + T * f
    force = sum((state.d[:, o, None] - f * x[:, o]) ** 2 for o in range(x.shape[1]))
    full = (rules.group >= 0) & (np.append(state.taken >= rules.most, False))[rules.group]
    allowed = curvature > rules.accuracy * H.diagonal()[:, None]
    allowed &= ~(state.inside | rules.fixed)[:, None] & ~rules.fixed[places]
    allowed &= ~full[:, None] | (rules.group[:, None] == rules.group[places])
    scores = np.full(f.shape, -np.inf)
    np.divide(0.5 * force, curvature, out=scores, where=allowed)
    scores -= 0.5 * (x**2).sum(axis=1) / diagonal
    partners[:] = scores.argmax(axis=1)
    gains[:] = scores[np.arange(len(scores)), partners]
    partners[gains == -np.inf] = -1


def compile_kernels() -> None:
    """Compile the function that searches call."""
    H, Q, places = np.eye(2), np.ones((2, 1)), np.zeros(1, np.int64)
    rules = make_rules(np.zeros(2, bool), np.full(2, -1), np.zeros(1, np.int64), 2, 1, 1e-11)
    build(H, Q, places, 1, rules)
