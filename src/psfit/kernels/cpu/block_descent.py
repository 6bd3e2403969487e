"""Best swaps of items with several variables, one after the other, as plain loops; see `block_swaps`."""

import numpy as np

from psfit.kernels.cpu import block_scores
from psfit.kernels.cpu.block_scores import Removals, score, score_removals
from psfit.kernels.cpu.compiler import compile_inner_sums, compile_sums
from psfit.kernels.cpu.states import change_state, clear_state, make_rules, make_state
from psfit.kernels.cpu.swaps import MOST_DRIFT


@compile_inner_sums
def _list_inside(state, size, starts, known, place):  # type: ignore[no-untyped-def]
    """The items inside and the places of their variables, in the arrays of `known`, which have room for more."""
    for a in range(size):
        place[state.places[a]] = a
    count, variables, entries = 0, 0, 0
    for item in range(len(starts) - 1):
        if state.inside[starts[item]]:
            known.items[count], known.first[count], known.start[count] = item, variables, entries
            for k in range(starts[item], starts[item + 1]):
                known.where[variables] = place[k]
                variables += 1
            entries += (starts[item + 1] - starts[item]) ** 2
            count += 1
    known.first[count], known.start[count] = variables, entries
    return Removals(
        known.items[:count],
        known.first[: count + 1],
        known.where[:variables],
        known.start[: count + 1],
        known.L[:entries],
        known.y[:variables],
        known.cost[:count],
    )


@compile_inner_sums
def _take_out(H, state, size, rules, room, first, end):  # type: ignore[no-untyped-def]
    """Let the variables from `first` up to `end` leave; the new size. The last variable gets the place that is free."""
    for a in range(size - 1, -1, -1):
        if first <= state.places[a] < end:
            size = change_state(H, state, rules, room, a, -1, size)
    return size


@compile_inner_sums
def _put_in(H, state, size, rules, room, variables):  # type: ignore[no-untyped-def]
    """Let variables join; the new size."""
    for k in variables:
        size = change_state(H, state, rules, room, -1, k, size)
    return size


@compile_inner_sums
def _measure(Q, state, size):  # type: ignore[no-untyped-def]
    """The objective at the minimiser on the support."""
    total = 0.0
    for a in range(size):
        for o in range(Q.shape[1]):
            total -= 0.5 * Q[state.places[a], o] * state.inner[a, o]
    return total


@compile_sums
def walk_items(H, Q, state, size, rules, items, limit, adds, most_swaps, constant, rel_tol, known, gains, room):  # type: ignore[no-untyped-def]
    """Make the best swaps, at most `most_swaps`, until none gains more than `rel_tol` of the objective.

    After a swap the best items that fit into what it has left of the limit join, and before the first one if it `adds`
    them. Returns the size, the objective and the number of swaps.
    """
    starts, weights, _ = items
    place, partners = np.empty(len(state.inside), np.int64), np.empty(len(gains), np.int64)
    count, swapped, before, expected = 0, False, 0.0, 0.0
    while True:
        inside, spare, value = _list_inside(state, size, starts, known, place), limit, _measure(Q, state, size)
        for J in range(len(inside.items)):
            spare -= weights[inside.items[J]]
        if swapped:
            swapped, adds = False, True
            if not abs(value - expected) <= MOST_DRIFT * abs(value):
                order = state.places[:size].copy()
                clear_state(H, Q, state)
                _put_in(H, state, 0, rules, room, order)
                value = _measure(Q, state, size)
                if not value < before:
                    return size, value, count
        adds &= spare > 0
        if not adds:
            if count >= most_swaps:
                return size, value, count
            score_removals(state, rules, inside)
        least = 0.0 if adds else rel_tol * abs(constant + value)
        score(H, state, size, rules, items, inside, spare, adds, least, not adds, gains, partners)
        best = np.argmax(gains / weights) if adds else np.argmax(gains)
        if adds and gains[best] < 0:
            adds = False
            continue
        if not adds:
            if partners[best] < 0:
                return size, value, count
            J = 0
            while inside.where[inside.first[J]] != partners[best]:
                J += 1
            gone = inside.items[J]
            size = _take_out(H, state, size, rules, room, starts[gone], starts[gone + 1])
            before, expected, count, swapped = value, value - gains[best], count + 1, True
        size = _put_in(H, state, size, rules, room, np.arange(starts[best], starts[best + 1]))


def make_removals(widths: np.ndarray, room: int, outputs: int) -> Removals:
    """Arrays for what is known of the items inside, with room for a support of so many variables."""
    integer = np.int64
    return Removals(
        np.empty(room, integer),
        np.empty(room + 1, integer),
        np.empty(room, integer),
        np.empty(room + 1, integer),
        np.empty(room * int(widths.max())),
        np.empty((room, outputs)),
        np.empty(room),
    )


def compile_kernels() -> None:
    """Compile what searches call."""
    block_scores.compile_kernels()
    H, Q, widths = np.eye(4), np.ones((4, 1)), np.full(2, 2)
    rules = make_rules(np.zeros(4, bool), np.full(4, -1), np.zeros(1, np.int64), 4, 1, 1e-11)
    state, items = make_state(H, Q, 2, 1), (np.array([0, 2, 4]), np.ones(2, np.int64), 2)
    known, gains, room = make_removals(widths, 2, 1), np.empty(2), np.empty((3, 3))
    walk_items(H, Q, state, 0, rules, items, 1, True, 1, 0.0, 1e-9, known, gains, room)
