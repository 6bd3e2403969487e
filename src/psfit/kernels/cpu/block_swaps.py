"""Swap search in a quadratic form for items of several variables; see `swaps`, and `block_scores` for the formulas.

Item I has the variables ``I width, ..., I width + width - 1``. Variables that belong to every support come last. The
places of a support hold these first, and then the variables of each item side by side. The state is that of single
variables, and so are its updates: the variables of one item leave, then those of another one join, one after the other.
Every support on the way is a part of the one before or of the one after, so no step is worse conditioned than these.

Only loops over variables are compiled. Those over swaps call them from Python: a swap of blocks is much work, and to
compile the loops around it would take longer than they save.
"""

from typing import NamedTuple

import numpy as np

from psfit.kernels.cpu import block_scores, swaps
from psfit.kernels.cpu.block_scores import score_additions, score_removals, score_swaps
from psfit.kernels.cpu.states import Rules, State, value_of
from psfit.kernels.cpu.swaps import MOST_DRIFT, change

__all__ = ["build", "grow", "make_rules", "score_newcomers", "search_rows", "shrink", "value_of"]


class BlockRules(NamedTuple):
    """The rules of single variables, of which only the first of an item carries its group; numbers of items, and of the
    variables of an item.
    """

    single: Rules
    items: int
    width: int


def make_rules(
    fixed: np.ndarray, group: np.ndarray, most: np.ndarray, variables: int, width: int, accuracy: float
) -> BlockRules:
    """The rules of items with `width` variables each, and of intercepts behind them, which stay in."""
    items = len(fixed)
    groups = np.full(variables, -1)
    groups[: items * width : width] = group
    single = Rules(
        np.concatenate([np.repeat(fixed, width), np.ones(variables - items * width, bool)]), groups, most, accuracy
    )
    return BlockRules(single, items, width)


def build(H: np.ndarray, Q: np.ndarray, places: np.ndarray, size: int, rules: BlockRules) -> State:
    """The state of a support with `size` variables, and room for as many as there are `places`."""
    return swaps.build(H, Q, places, size, rules.single)


def grow(H: np.ndarray, Q: np.ndarray, state: State, size: int, limit: int, rules: BlockRules) -> int:
    """Add the best item again and again, up to `limit` variables; return the new size."""
    gains = np.empty(rules.items)
    while size < limit:
        score_additions(H, state, size, rules.single, rules.width, gains)
        item = int(gains.argmax())
        if gains[item] < 0:
            break
        size = change(H, Q, state, size, rules.single, _entry(item, rules))
    return size


def shrink(H: np.ndarray, Q: np.ndarray, state: State, size: int, limit: int, rules: BlockRules) -> int:
    """Take out the cheapest item again and again, down to `limit` variables; return the new size."""
    while size > limit:
        cost = _removals(state, size, rules)[2]
        J = int(cost.argmin())
        if cost[J] == np.inf:
            break
        size = change(H, Q, state, size, rules.single, _exit(size - (len(cost) - J) * rules.width, rules))
    return size


def score_newcomers(
    H: np.ndarray, state: State, size: int, rules: BlockRules, gains: np.ndarray, partners: np.ndarray
) -> None:
    """For every item the gain of its best swap, and the place of its partner; -1 where there is none."""
    score_swaps(H, state, size, rules.single, _removals(state, size, rules), -np.inf, False, gains, partners)


def best_swap(H: np.ndarray, state: State, size: int, rules: BlockRules, least: float) -> tuple[int, int, float]:
    """The place, the item and the gain of the best swap that gains more than `least`; place -1 if there is none."""
    gains, partners = np.empty(rules.items), np.empty(rules.items, np.int64)
    score_swaps(H, state, size, rules.single, _removals(state, size, rules), least, True, gains, partners)
    item = int(gains.argmax())
    return int(partners[item]), item, float(gains[item])


def _removals(state: State, size: int, rules: BlockRules) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The results of `score_removals`."""
    width = rules.width
    count = (size - _begin(state, rules)) // width
    known = np.empty((count, width, width)), np.empty((count, width)), np.empty(count)
    score_removals(state, size, rules.single, *known)
    return known


def _entry(item: int, rules: BlockRules) -> np.ndarray:
    """The changes that put an item after the last one."""
    variables = np.arange(item * rules.width, (item + 1) * rules.width)
    return np.stack([np.full(rules.width, -1), variables], axis=1)


def _exit(place: int, rules: BlockRules) -> np.ndarray:
    """The changes that take the item at a place out; the last one gets its place."""
    return np.stack([np.arange(place + rules.width - 1, place - 1, -1), np.full(rules.width, -1)], axis=1)


def _copy_state(source: State, target: State) -> None:
    for array, copy in zip(source, target, strict=True):
        np.copyto(copy, array)


def descend(
    H: np.ndarray,
    Q: np.ndarray,
    state: State,
    size: int,
    rules: BlockRules,
    constant: float,
    rel_tol: float,
    most_swaps: int,
) -> tuple[float, int]:
    """Make the best swap until none gains more than `rel_tol` of the objective; return the objective and the swaps."""
    value = value_of(Q, state, size)
    for count in range(most_swaps):
        place, newcomer, gain = best_swap(H, state, size, rules, rel_tol * abs(constant + value))
        if place < 0:
            return value, count
        change(H, Q, state, size, rules.single, np.concatenate([_exit(place, rules), _entry(newcomer, rules)]))
        before, value = value, value_of(Q, state, size)
        if not abs(value - (before - gain)) <= MOST_DRIFT * abs(value):
            _copy_state(build(H, Q, state.places, size, rules), state)
            value = value_of(Q, state, size)
            if not value < before:
                return value, count + 1
    return value, most_swaps


def search_rows(
    H: np.ndarray,
    Q: np.ndarray,
    base: State,
    work: State,
    size: int,
    starts: np.ndarray,
    most_swaps: np.ndarray,
    rules: BlockRules,
    constant: float,
    rel_tol: float,
    values: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Descend from each row of ``starts (B, size)``, which differ from `base` in some items.

    The ends replace the starts; their objectives and numbers of swaps are written to `values` and `counts`.
    """
    for row, start in enumerate(starts):
        _copy_state(base, work)
        _move(H, Q, work, size, start, rules)
        if (work.taken > rules.single.most).any():
            _copy_state(base, work)
        values[row], counts[row] = descend(H, Q, work, size, rules, constant, rel_tol, int(most_swaps[row]))
        start[:] = work.places[:size]


def _move(H: np.ndarray, Q: np.ndarray, state: State, size: int, start: np.ndarray, rules: BlockRules) -> None:
    """Exchange items until the support is that of ``start (size,)``; those that depend on the support stay out."""
    width, place = rules.width, _begin(state, rules)
    wanted = start[place::width] // width
    for item in wanted.tolist():
        if state.inside[item * width]:
            continue
        while (gone := state.places[place] // width) in wanted:
            place += width
        less = change(H, Q, state, size, rules.single, _exit(place, rules))
        if not _join_if_regular(H, Q, state, item, less, rules):
            change(H, Q, state, less, rules.single, _entry(int(gone), rules))


def _join_if_regular(H: np.ndarray, Q: np.ndarray, state: State, item: int, size: int, rules: BlockRules) -> bool:
    """Put an item after the last one, unless it depends on the support; tell whether it joined."""
    steps = _entry(item, rules)
    for o, (_, i) in enumerate(steps):
        if state.left[i] <= rules.single.accuracy * H[i, i]:
            change(H, Q, state, size + o, rules.single, _exit(size, rules)[rules.width - o :])
            return False
        change(H, Q, state, size + o, rules.single, steps[o : o + 1])
    return True


def _begin(state: State, rules: BlockRules) -> int:
    """The place of the first item, behind the intercepts."""
    return len(state.left) - rules.items * rules.width


def compile_kernels() -> None:
    """Compile what searches call."""
    swaps.compile_kernels()
    block_scores.compile_kernels()
