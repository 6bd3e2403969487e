"""Scores of exchanges of items with several variables in a quadratic form, as plain loops; see `block_swaps`.

With the Schur block ``S_I = H_II - H_IS K H_SI`` of an item I outside, and ``K_JJ = L L'``, ``W = T_IJ L^-T`` and
``y = L^-1 x_J`` for an item J inside, a swap of J for I gains

    1/2 (d_I - W y)' (S_I + W W')^-1 (d_I - W y) - 1/2 y'y.

It is at most ``1/2 d_I' S_I^-1 d_I``, the gain if I joined and nothing left, so most items need no further look. A
block that is singular up to rounding gains nothing. The form has one output.
"""

from collections import namedtuple

import numpy as np

from psfit.kernels.cpu.compiler import compile_inner_sums, compile_sums
from psfit.kernels.cpu.states import Rules, State, make_rules, make_state

# An item stays inside if a pivot of its block of the inverse is below this share of the diagonal.
LEAST_PIVOT = 1e-13

# Room for the numbers of one newcomer: its columns of `H` at all places, its Schur block, two more blocks, a vector,
# and the smallest pivots of a regular block.
Room = namedtuple("Room", ["h", "schur", "block", "factor", "v", "floor"])


@compile_inner_sums
def _make_room(size, width):  # type: ignore[no-untyped-def]
    block = (width, width)
    return Room(
        np.empty((width, size)), np.empty(block), np.empty(block), np.empty(block), np.empty(width), np.empty(width)
    )


@compile_inner_sums
def _factor(A, floor):  # type: ignore[no-untyped-def]
    """Replace the lower half of a block by its Cholesky factor, with inverse pivots; false if one is too small."""
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


@compile_inner_sums
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


@compile_inner_sums
def _score_addition(H, state, size, item, accuracy, room):  # type: ignore[no-untyped-def]
    """What an item gains if it joins, or -1 if it depends on the support; `room` gets its Schur block."""
    width = len(room.v)
    first = item * width
    for o in range(width):
        for a in range(size):
            room.h[o, a] = H[first + o, state.places[a]]
    for o in range(width):
        room.v[o] = state.outer[first + o, 0]
        room.floor[o] = accuracy * H[first + o, first + o]
        for q in range(o + 1):
            total = 0.0
            for a in range(size):
                total += state.outer[first + o, 1 + a] * room.h[q, a]
            room.schur[o, q] = room.factor[o, q] = H[first + o, first + q] - total
    return _solve(room.factor, room.v) if _factor(room.factor, room.floor) else -1.0


@compile_sums
def score_removals(state, size, rules, L, y, cost):  # type: ignore[no-untyped-def]
    """For each item inside: the factor L of ``K_JJ``, ``y = L^-1 x_J``, and what it costs to leave.

    These are written to ``L (items inside, width, width)``, ``y`` and ``cost``; the cost is infinite if it must stay.
    """
    count, width = y.shape
    floor = np.empty(width)
    for J in range(count):
        a = size - (count - J) * width
        for o in range(width):
            y[J, o] = state.inner[a + o, 0]
            floor[o] = LEAST_PIVOT * state.inner[a + o, 1 + a + o]
            for q in range(width):
                L[J, o, q] = state.inner[a + o, 1 + a + q]
        regular = _factor(L[J], floor)
        cost[J] = np.inf if rules.fixed[state.places[a]] or not regular else _solve(L[J], y[J])


@compile_inner_sums
def _may_join(state, item, width, rules):  # type: ignore[no-untyped-def]
    """Whether an item is outside and free, and the group that it may not enter, or -1."""
    first = item * width
    g = rules.group[first]
    full = g >= 0 and state.taken[g] >= rules.most[g]
    return not (state.inside[first] or rules.fixed[first]), g if full else -1


@compile_inner_sums
def _score_swap(state, item, place, L, y, room):  # type: ignore[no-untyped-def]
    """What the newcomer of `room` gains once the item at `place` has left; -1 if its block is singular."""
    width = len(room.v)
    first = item * width
    for o in range(width):
        force = state.outer[first + o, 0]
        for b in range(width):
            total = state.outer[first + o, 1 + place + b]
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


@compile_sums
def _score(H, state, size, rules, known, alone, least, rising, gains, partners):  # type: ignore[no-untyped-def]
    """Both scores below, because what they share would be compiled twice; those of additions if they join `alone`."""
    L, y, cost = known
    count, width = y.shape
    room = _make_room(size, width)
    for item in range(len(gains)):
        gains[item], partners[item] = -np.inf, -1
        may, full = _may_join(state, item, width, rules)
        if not may or (alone and full >= 0):
            continue
        bound = _score_addition(H, state, size, item, rules.accuracy, room)
        if alone:
            gains[item] = bound
        if alone or 0 <= bound <= least:
            continue
        best = least
        for J in range(count):
            place = size - (count - J) * width
            # The first variable of an item, which carries its group, may lie at any of its places.
            if cost[J] == np.inf or (full >= 0 and rules.group[state.places[place] // width * width] != full):
                continue
            gain = _score_swap(state, item, place, L[J], y[J], room)
            if gain >= 0 and gain - cost[J] > best:
                best = gain - cost[J]
                gains[item], partners[item] = best, place
        if rising:
            least = best


def score_additions(H: np.ndarray, state: State, size: int, rules: Rules, width: int, gains: np.ndarray) -> None:
    """What each item gains if it joins, to ``gains (items,)``; negative where it may not, or depends on the support."""
    nothing = np.empty((0, width, width)), np.empty((0, width)), np.empty(0)
    _score(H, state, size, rules, nothing, True, 0.0, False, gains, np.empty(len(gains), np.int64))


def score_swaps(
    H: np.ndarray,
    state: State,
    size: int,
    rules: Rules,
    known: tuple[np.ndarray, np.ndarray, np.ndarray],
    least: float,
    rising: bool,
    gains: np.ndarray,
    partners: np.ndarray,
) -> None:
    """For every item the gain of its best swap, and the place of its partner; -1 where none gains more than `least`.

    If it is `rising`, a swap must gain more than all those before. `known` is the result of `score_removals`.
    """
    _score(H, state, size, rules, known, False, least, rising, gains, partners)


def compile_kernels() -> None:
    """Compile what searches call."""
    H, width, gains = np.eye(4), 2, np.empty(2)
    rules = make_rules(np.zeros(4, bool), np.full(4, -1), np.zeros(1, np.int64), 4, 1, 1e-11)
    state = make_state(H, np.zeros((4, 1)), width, 1)
    known = np.empty((1, width, width)), np.empty((1, width)), np.empty(1)
    score_removals(state, width, rules, *known)
    score_swaps(H, state, width, rules, known, 0.0, True, gains, np.empty(2, np.int64))
