"""Scores of exchanges of items with several variables in a quadratic form, as plain loops; see `block_swaps`.

With the Schur block ``S_I = H_II - H_IS K H_SI`` of an item I outside, and ``K_JJ = L L'``, ``W = T_IJ L^-T`` and
``y = L^-1 x_J`` for an item J inside, a swap of J for I gains, summed over the outputs,

    1/2 (d_I - W y)' (S_I + W W')^-1 (d_I - W y) - 1/2 y'y.

It is at most ``1/2 d_I' S_I^-1 d_I``, the gain if I joined and nothing left, so most items need no further look. A
block that is singular up to rounding gains nothing. Items may have different numbers of variables.
"""

from collections import namedtuple

import numpy as np

from psfit.kernels.cpu.compiler import compile_inner_sums, compile_sums
from psfit.kernels.cpu.states import Rules, State, make_rules, make_state

# An item stays inside if a pivot of its block of the inverse is below this share of the diagonal.
LEAST_PIVOT = 1e-13

# What is known of the items inside: their numbers, the first of their variables in the list of places `where`, the
# first of their entries in the factors `L`, ``y (variables, outputs)``, and what it costs to leave.
Removals = namedtuple("Removals", ["items", "first", "where", "start", "L", "y", "cost"])
# Room for the numbers of one newcomer: its columns of `H` at all places, its Schur block, two more blocks, a vector for
# each output, and the smallest pivots of a regular block.
Room = namedtuple("Room", ["h", "schur", "block", "factor", "v", "floor"])


@compile_inner_sums
def _make_room(size, widest, outputs):  # type: ignore[no-untyped-def]
    block = (widest, widest)
    return Room(
        np.empty((widest, size)),
        np.empty(block),
        np.empty((widest, size)),
        np.empty(block),
        np.empty((widest, outputs)),
        np.empty(widest),
    )


@compile_inner_sums
def _factor(A, floor, width):  # type: ignore[no-untyped-def]
    """Replace the lower half of a block by its Cholesky factor, with inverse pivots; false if one is too small."""
    for o in range(width):
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


@compile_inner_sums
def _solve(A, v, width):  # type: ignore[no-untyped-def]
    """Replace `v` by ``L^-1 v``, where `A` holds the factor L; return half its square."""
    square = 0.0
    for k in range(v.shape[1]):
        for o in range(width):
            total = v[o, k]
            for b in range(o):
                total -= A[o, b] * v[b, k]
            v[o, k] = total * A[o, o]
            square += v[o, k] * v[o, k]
    return 0.5 * square


@compile_inner_sums
def _score_addition(H, state, size, first, width, accuracy, room):  # type: ignore[no-untyped-def]
    """What an item gains if it joins, or -1 if it depends on the support; `room` gets its Schur block."""
    c = room.v.shape[1]
    for o in range(width):
        for a in range(size):
            room.h[o, a] = H[first + o, state.places[a]]
    for o in range(width):
        for k in range(c):
            room.v[o, k] = state.outer[first + o, k]
        room.floor[o] = accuracy * H[first + o, first + o]
        for q in range(o + 1):
            total = 0.0
            for a in range(size):
                total += state.outer[first + o, c + a] * room.h[q, a]
            room.schur[o, q] = room.factor[o, q] = H[first + o, first + q] - total
    return _solve(room.factor, room.v, width) if _factor(room.factor, room.floor, width) else -1.0


@compile_sums
def score_removals(state, rules, known):  # type: ignore[no-untyped-def]
    """Write the factors L of ``K_JJ``, ``y = L^-1 x_J`` and the costs of all items inside to `known`.

    The cost is infinite if an item must stay.
    """
    c = known.y.shape[1]
    floor = np.empty(len(known.where))
    for J in range(len(known.items)):
        begin, width = known.first[J], known.first[J + 1] - known.first[J]
        L = known.L[known.start[J] : known.start[J + 1]].reshape((width, width))
        y = known.y[begin : begin + width]
        for o in range(width):
            a = known.where[begin + o]
            for k in range(c):
                y[o, k] = state.inner[a, k]
            floor[o] = LEAST_PIVOT * state.inner[a, c + a]
            for q in range(width):
                L[o, q] = state.inner[a, c + known.where[begin + q]]
        fixed = rules.fixed[state.places[known.where[begin]]]
        known.cost[J] = np.inf if fixed or not _factor(L, floor, width) else _solve(L, y, width)


@compile_inner_sums
def _score_swap(state, first, width, known, J, room):  # type: ignore[no-untyped-def]
    """What the newcomer of `room` gains once the item number `J` inside has left; -1 if its block is singular."""
    c, begin, other = room.v.shape[1], known.first[J], known.first[J + 1] - known.first[J]
    L = known.L[known.start[J] : known.start[J + 1]].reshape((other, other))
    for o in range(width):
        for b in range(other):
            total = state.outer[first + o, c + known.where[begin + b]]
            for e in range(b):
                total -= L[b, e] * room.block[o, e]
            room.block[o, b] = total * L[b, b]
        for k in range(c):
            force = state.outer[first + o, k]
            for b in range(other):
                force -= room.block[o, b] * known.y[begin + b, k]
            room.v[o, k] = force
        for q in range(o + 1):
            total = room.schur[o, q]
            for b in range(other):
                total += room.block[o, b] * room.block[q, b]
            room.factor[o, q] = total
    return _solve(room.factor, room.v, width) if _factor(room.factor, room.floor, width) else -1.0


@compile_sums
def score(H, state, size, rules, items, known, spare, alone, least, rising, gains, partners):  # type: ignore[no-untyped-def]
    """For every item what its best swap gains, and the place of its partner; -1 where none gains more than `least`.

    With `alone` it is what the item gains if it joins; negative where it may not, or depends on the support. Of
    ``items = (starts, weights, widest)`` item I has the variables from ``starts[I]`` on, and `spare` of the limit on
    weights is not used. If it is `rising`, a swap must gain more than all those before.
    """
    starts, weights, widest = items
    c = state.inner.shape[1] - state.inner.shape[0]
    room = _make_room(size, widest, c)
    for item in range(len(gains)):
        gains[item], partners[item] = -np.inf, -1
        first, width = starts[item], starts[item + 1] - starts[item]
        g = rules.group[first]
        full = g >= 0 and state.taken[g] >= rules.most[g]
        if state.inside[first] or rules.fixed[first] or (alone and (full or weights[item] > spare)):
            continue
        bound = _score_addition(H, state, size, first, width, rules.accuracy, room)
        if alone:
            gains[item] = bound
        if alone or 0 <= bound <= least:
            continue
        best = least
        for J in range(len(known.items)):
            other = known.items[J]
            if 0 <= bound <= best:
                break
            if known.cost[J] == np.inf:
                continue
            if weights[item] > spare + weights[other] or (full and rules.group[starts[other]] != g):
                continue
            gain = _score_swap(state, first, width, known, J, room)
            if gain >= 0 and gain - known.cost[J] > best:
                best = gain - known.cost[J]
                gains[item], partners[item] = best, known.where[known.first[J]]
        if rising:
            least = best


def find_inside(state: State, size: int, starts: np.ndarray) -> Removals:
    """Room for what is known of the items inside."""
    items = np.flatnonzero(state.inside[starts[:-1]])
    variables = np.flatnonzero(state.inside[: starts[-1]])
    place = np.empty(len(state.inside), np.int64)
    place[state.places[:size]] = np.arange(size)
    widths = np.diff(starts)[items]
    first, start = (np.concatenate([[0], np.cumsum(part)]) for part in (widths, widths**2))
    outputs = state.inner.shape[1] - state.inner.shape[0]
    numbers = np.empty(start[-1]), np.empty((len(variables), outputs)), np.empty(len(items))
    return Removals(items, first, place[variables], start, *numbers)


def compile_kernels() -> None:
    """Compile what searches call."""
    H, starts, gains = np.eye(4), np.array([0, 2, 4]), np.empty(2)
    rules: Rules = make_rules(np.zeros(4, bool), np.full(4, -1), np.zeros(1, np.int64), 4, 1, 1e-11)
    state = make_state(H, np.zeros((4, 1)), 2, 1)
    known = find_inside(state, 0, starts)
    score_removals(state, rules, known)
    items = starts, np.ones(2, np.int64), 2
    score(H, state, 0, rules, items, known, 0, False, 0.0, True, gains, np.empty(2, np.int64))
