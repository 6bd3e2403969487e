"""Swap search in a quadratic form for items of several variables, as plain loops; see `swaps`.

Item I has the variables ``I width, ..., I width + width - 1``; those that belong to every support come last. The places
of a support hold these first, and then the variables of each item side by side. The state is that of single variables,
and so are its updates: a block joins or leaves one variable after the other. All that a block meets on its way is a part
of the support before or of the one after, so no step is worse conditioned than both. Only the scores are new. With the
Schur block ``S_I = H_II - H_IS K H_SI``, and ``K_JJ = L L'``, ``W = T_IJ L^-T``, ``y = L^-1 x_J``, a swap of J for I gains

    1/2 (d_I - W y)' (S_I + W W')^-1 (d_I - W y) - 1/2 y'y.

It is at most ``1/2 d_I' S_I^-1 d_I``, the gain if I joined and nothing left. The form has one output.
"""

from collections import namedtuple

import numpy as np

from psfit.kernels.cpu.swaps import (
    DEPENDENT,
    MOST_DRIFT,
    Rules,
    compiled,
    copy_state,
    exceeds_groups,
    join,
    leave,
    rebuild,
    value_of,
)
from psfit.kernels.cpu.swaps import build as build_single

# The rules of single variables, of which only the first of an item carries its group; the number of items and the
# number of their variables.
BlockRules = namedtuple("BlockRules", ["single", "items", "width"])
# Room for the numbers of one newcomer: its columns of `H` at all places, its Schur block, two more blocks, a
# vector, and the smallest pivots of a regular block.
Room = namedtuple("Room", ["h", "schur", "block", "factor", "v", "floor"])


def make_rules(fixed: np.ndarray, group: np.ndarray, most: np.ndarray, variables: int, width: int) -> BlockRules:
    """The rules of items with `width` variables each, and of intercepts behind them, which stay in."""
    items = len(fixed)
    groups = np.full(variables, -1)
    groups[: items * width : width] = group
    single = Rules(np.concatenate([np.repeat(fixed, width), np.ones(variables - items * width, bool)]), groups, most)
    return BlockRules(single, items, width)


@compiled
def build(H, Q, places, size, rules):  # type: ignore[no-untyped-def]
    """The state of a support with `size` variables, and room for as many as there are `places`."""
    return build_single(H, Q, places, size, rules.single)


@compiled
def _make_room(size, width):  # type: ignore[no-untyped-def]
    block = (width, width)
    return Room(
        np.empty((width, size)), np.empty(block), np.empty(block), np.empty(block), np.empty(width), np.empty(width)
    )


@compiled
def _factor(A, floor):  # type: ignore[no-untyped-def]
    """Replace the lower half of a block by its Cholesky factor, with inverse pivots; false if one is below its floor."""
    for o in range(len(A)):
        for q in range(o + 1):
            total = A[o, q]
            for b in range(q):
                total -= A[o, b] * A[q, b]
            if q < o:
                A[o, q] = total * A[q, q]
            elif total > floor[o]:
                A[o, o] = 1 / np.sqrt(total)
            else:
                return False
    return True


@compiled
def _solve(A, v):  # type: ignore[no-untyped-def]
    """Replace `v` by ``L^-1 v``, where `A` holds the factor L; return half its square."""
    square = 0.0
    for o in range(len(v)):
        total = v[o]
        for b in range(o):
            total -= A[o, b] * v[b]
        v[o] = total * A[o, o]
        square += v[o] * v[o]
    return 0.5 * square


@compiled
def _score_addition(H, state, size, item, room):  # type: ignore[no-untyped-def]
    """What an item gains if it joins, or -1 if it depends on the support; `room` gets its Schur block and the factor."""
    width = len(room.v)
    first = item * width
    for o in range(width):
        for a in range(size):
            room.h[o, a] = H[first + o, state.places[a]]
    for o in range(width):
        room.v[o] = state.d[first + o, 0]
        room.floor[o] = DEPENDENT * H[first + o, first + o]
        for q in range(o + 1):
            total = 0.0
            for a in range(size):
                total += state.T[first + o, a] * room.h[q, a]
            room.schur[o, q] = room.factor[o, q] = H[first + o, first + q] - total
    return _solve(room.factor, room.v) if _factor(room.factor, room.floor) else -1.0


@compiled
def _prepare(state, size, rules):  # type: ignore[no-untyped-def]
    """For each item inside: the factor L of ``K_JJ``, ``y = L^-1 x_J``, and what it costs to leave."""
    width, begin = rules.width, _begin(state, rules)
    count = (size - begin) // width
    L, y, cost, floor = np.empty((count, width, width)), np.empty((count, width)), np.empty(count), np.empty(width)
    for J in range(count):
        a = begin + J * width
        for o in range(width):
            y[J, o] = state.x[a + o, 0]
            floor[o] = DEPENDENT * state.K[a + o, a + o]
            for q in range(width):
                L[J, o, q] = state.K[a + o, a + q]
        regular = _factor(L[J], floor)
        cost[J] = np.inf if rules.single.fixed[state.places[a]] or not regular else _solve(L[J], y[J])
    return L, y, cost


@compiled
def _begin(state, rules):  # type: ignore[no-untyped-def]
    """The place of the first item."""
    return len(state.left) - rules.items * rules.width


@compiled
def _score_swap(state, item, place, L, y, room):  # type: ignore[no-untyped-def]
    """What the newcomer of `room` gains once the block at `place`, with the factor `L`, has left; -1 if it is singular."""
    width = len(room.v)
    first = item * width
    for o in range(width):
        force = state.d[first + o, 0]
        for b in range(width):
            total = state.T[first + o, place + b]
            for e in range(b):
                total -= L[b, e] * room.block[o, e]
            room.block[o, b] = total * L[b, b]
            force -= room.block[o, b] * y[b]
        room.v[o] = force
        for q in range(o + 1):
            total = room.schur[o, q]
            for b in range(width):
                total += room.block[o, b] * room.block[q, b]
            room.factor[o, q] = total
    return _solve(room.factor, room.v) if _factor(room.factor, room.floor) else -1.0


@compiled
def _best_partner(H, state, size, item, rules, known, room, least):  # type: ignore[no-untyped-def]
    """The place and the gain of the best swap that brings an item in and gains more than `least`; place -1 if none."""
    L, y, cost = known
    width, begin, group, taken = rules.width, _begin(state, rules), rules.single.group, state.taken
    found, best = -1, least
    first = item * width
    if state.inside[first] or rules.single.fixed[first]:
        return found, best
    bound = _score_addition(H, state, size, item, room)
    if 0 <= bound <= best:
        return found, best
    g = group[first]
    full = g >= 0 and taken[g] >= rules.single.most[g]
    for J in range(len(cost)):
        place = begin + J * width
        if cost[J] == np.inf or (full and group[_first(state, place, rules)] != g):
            continue
        gain = _score_swap(state, item, place, L[J], y[J], room)
        if gain >= 0 and gain - cost[J] > best:
            found, best = place, gain - cost[J]
    return found, best


@compiled
def _first(state, place, rules):  # type: ignore[no-untyped-def]
    """The first variable of the item at a place."""
    return state.places[place] // rules.width * rules.width


@compiled
def best_swap(H, state, size, rules, least):  # type: ignore[no-untyped-def]
    """The place, the item and the gain of the best swap that gains more than `least`; place -1 if there is none."""
    known, room = _prepare(state, size, rules), _make_room(size, rules.width)
    best, found, newcomer = least, -1, -1
    for item in range(rules.items):
        place, gain = _best_partner(H, state, size, item, rules, known, room, best)
        if place >= 0:
            best, found, newcomer = gain, place, item
    return found, newcomer, best


@compiled
def score_newcomers(H, state, size, rules, gains, partners):  # type: ignore[no-untyped-def]
    """For every item the gain of its best swap, and the place of its partner; -1 where there is none."""
    known, room = _prepare(state, size, rules), _make_room(size, rules.width)
    for item in range(rules.items):
        partners[item], gains[item] = _best_partner(H, state, size, item, rules, known, room, -np.inf)


@compiled
def _join(H, state, item, size, rules):  # type: ignore[no-untyped-def]
    """Put an item after the last one; the new size."""
    for o in range(rules.width):
        join(H, state, item * rules.width + o, size + o, rules.single)
    return size + rules.width


@compiled
def _leave(state, place, size, rules):  # type: ignore[no-untyped-def]
    """Take the item at a place out; the last one gets its place. The new size."""
    for o in range(rules.width):
        leave(state, place + rules.width - 1 - o, size - o, rules.single)
    return size - rules.width


@compiled
def descend(H, Q, state, size, rules, constant, rel_tol, most_swaps):  # type: ignore[no-untyped-def]
    """Make the best swap until none gains more than `rel_tol` of the objective; return the objective and the swaps."""
    value = value_of(Q, state, size)
    swaps = 0
    while swaps < most_swaps:
        place, newcomer, gain = best_swap(H, state, size, rules, rel_tol * abs(constant + value))
        if place < 0:
            break
        _join(H, state, newcomer, _leave(state, place, size, rules), rules)
        swaps += 1
        before, value = value, value_of(Q, state, size)
        if not abs(value - (before - gain)) <= MOST_DRIFT * abs(value):
            rebuild(H, Q, state, size, rules.single)
            value = value_of(Q, state, size)
            if not value < before:
                break
    return value, swaps


@compiled
def grow(H, state, size, limit, rules):  # type: ignore[no-untyped-def]
    """Add the best item again and again, up to `limit` variables; return the new size."""
    single = rules.single
    room = _make_room(limit, rules.width)
    while size < limit:
        best, found = -1.0, -1
        for item in range(rules.items):
            first = item * rules.width
            g = single.group[first]
            if state.inside[first] or single.fixed[first] or (g >= 0 and state.taken[g] >= single.most[g]):
                continue
            gain = _score_addition(H, state, size, item, room)
            if gain > best:
                best, found = gain, item
        if found < 0:
            break
        size = _join(H, state, found, size, rules)
    return size


@compiled
def shrink(state, size, limit, rules):  # type: ignore[no-untyped-def]
    """Take out the cheapest item again and again, down to `limit` variables; return the new size."""
    while size > limit:
        cost = _prepare(state, size, rules)[2]
        best, found = np.inf, -1
        for J in range(len(cost)):
            if cost[J] < best:
                best, found = cost[J], J
        if found < 0:
            break
        size = _leave(state, _begin(state, rules) + found * rules.width, size, rules)
    return size


@compiled
def search_rows(H, Q, base, work, size, starts, most_swaps, rules, constant, rel_tol, values, swaps):  # type: ignore[no-untyped-def]
    """Descend from each row of ``starts (B, size)``, which differ from `base` in some items.

    The ends replace the starts; their objectives and numbers of swaps are written to `values` and `swaps`.
    """
    for row in range(len(starts)):
        copy_state(base, work, size)
        _move(H, work, size, starts, row, rules)
        if exceeds_groups(work, rules.single):
            copy_state(base, work, size)
        value, count = descend(H, Q, work, size, rules, constant, rel_tol, most_swaps[row])
        values[row] = value
        swaps[row] = count
        for a in range(size):
            starts[row, a] = work.places[a]


@compiled
def _move(H, state, size, starts, row, rules):  # type: ignore[no-untyped-def]
    """Exchange items until the support is a row of ``starts (B, size)``; those that depend on the support stay out."""
    width, begin = rules.width, _begin(state, rules)
    wanted = np.zeros(rules.items, np.bool_)
    room = _make_room(size, width)
    for a in range(begin, size, width):
        wanted[starts[row, a] // width] = True
    place = begin
    for a in range(begin, size, width):
        item = starts[row, a] // width
        if state.inside[item * width]:
            continue
        while wanted[state.places[place] // width]:
            place += width
        gone = state.places[place] // width
        left = _leave(state, place, size, rules)
        if _score_addition(H, state, left, item, room) < 0:
            item = gone
        _join(H, state, item, left, rules)


def compile_kernels() -> None:
    """Compile what searches call."""
    H, Q = np.eye(4), np.zeros((4, 1))
    rules = make_rules(np.zeros(2, bool), np.full(2, -1), np.zeros(1, np.int64), 4, 2)
    state = build(H, Q, np.zeros(2, np.int64), 0, rules)
    size = grow(H, state, 0, 2, rules)
    score_newcomers(H, state, size, rules, np.empty(2), np.empty(2, np.int64))
    values, swaps, starts = np.empty(1), np.empty(1, np.int64), np.array([[0, 1]])
    search_rows(H, Q, state, state, size, starts, np.ones(1, np.int64), rules, 1.0, 0.0, values, swaps)
    value_of(Q, state, size)
    shrink(state, size, 0, rules)
