"""Swap search in a quadratic form for items of several variables; see `swaps`, and `block_scores` for the formulas.

Item I has the variables from ``starts[I]`` up to ``starts[I + 1]``. Variables that belong to every support come last.
Their number may differ from item to item. The limit is one on the sum of the items' weights; these are ones if items
are counted. The state is that of single variables, and so are its updates: the variables of one item leave, then those
of another one join, one after the other. Every support on the way is a part of the one before or of the one after, so
no step is worse conditioned than these.

Descents and growth are compiled as a whole (`block_descent`); exchanges of several items at once are put together here.
"""

from typing import NamedTuple

import numpy as np

from psfit.kernels.cpu import block_descent, swaps
from psfit.kernels.cpu.block_descent import make_removals, walk_items
from psfit.kernels.cpu.block_scores import Removals, find_inside, score, score_removals
from psfit.kernels.cpu.states import Rules, State, value_of
from psfit.kernels.cpu.swaps import change

__all__ = ["build", "descend_from", "grow", "make_rules", "score_newcomers", "shrink", "value_of"]


class BlockRules(NamedTuple):
    """The rules of single variables, of which only the first of an item carries its group; the starts of the items, the
    item of every variable (-1 for none), and what each item takes of the limit.
    """

    single: Rules
    starts: np.ndarray
    owner: np.ndarray
    weights: np.ndarray

    @property
    def items(self) -> tuple[np.ndarray, np.ndarray, int]:
        """What `score` needs to know of the items."""
        return self.starts, self.weights, int(np.diff(self.starts).max())

    def weigh(self, state: State) -> int:
        """What the items inside take of the limit."""
        return int(self.weights[state.inside[self.starts[:-1]]].sum())


def make_rules(
    fixed: np.ndarray,
    group: np.ndarray,
    most: np.ndarray,
    variables: int,
    widths: np.ndarray,
    accuracy: float,
    weights: np.ndarray | None = None,
) -> BlockRules:
    """The rules of items with ``widths (items,)`` variables, and of intercepts behind them, which stay in."""
    starts = np.concatenate([[0], np.cumsum(widths)])
    others = variables - int(starts[-1])
    groups, alone = np.full(variables, -1), np.full(others, -1)
    owner = np.concatenate([np.repeat(np.arange(len(fixed)), widths), alone])
    groups[starts[:-1]] = group
    single = Rules(np.concatenate([np.repeat(fixed, widths), np.ones(others, bool)]), groups, most, accuracy)
    return BlockRules(single, starts, owner, np.ones(len(fixed), np.int64) if weights is None else weights)


def build(H: np.ndarray, Q: np.ndarray, places: np.ndarray, size: int, rules: BlockRules) -> State:
    """The state of a support with `size` variables, and room for as many as there are `places`."""
    return swaps.build(H, Q, places, size, rules.single)


def grow(H: np.ndarray, Q: np.ndarray, state: State, size: int, limit: int, rules: BlockRules) -> int:
    """Add the best item that fits again and again, up to a `limit` of weights; return the new number of variables."""
    return _walk(H, Q, state, size, limit, rules, True, 0)[0]


def shrink(H: np.ndarray, Q: np.ndarray, state: State, size: int, limit: int, rules: BlockRules) -> int:
    """Take out the cheapest item again and again, down to a `limit` of weights; return the new number of variables."""
    while rules.weigh(state) > limit:
        known = _removals(state, size, rules)
        cost = known.cost / rules.weights[known.items]
        J = int(cost.argmin())
        if cost[J] == np.inf:
            break
        size = change(H, Q, state, size, rules.single, _exit(state, size, known.items[J : J + 1], rules))
    return size


def score_newcomers(
    H: np.ndarray, state: State, size: int, limit: int, rules: BlockRules, gains: np.ndarray, partners: np.ndarray
) -> None:
    """For every item the gain of its best swap, and the place of its partner; -1 where there is none."""
    known, spare = _removals(state, size, rules), limit - rules.weigh(state)
    score(H, state, size, rules.single, rules.items, known, spare, False, -np.inf, False, gains, partners)


def _removals(state: State, size: int, rules: BlockRules) -> Removals:
    """What is known of the items inside."""
    known = find_inside(state, size, rules.starts)
    score_removals(state, rules.single, known)
    return known


def _entry(item: int, rules: BlockRules) -> np.ndarray:
    """The changes that put an item after the last one."""
    variables = np.arange(rules.starts[item], rules.starts[item + 1])
    return np.stack([np.full(len(variables), -1), variables], axis=1)


def _exit(state: State, size: int, items: np.ndarray, rules: BlockRules) -> np.ndarray:
    """The changes that take items out, their last place first: each time the last variable gets the free place."""
    leaves = np.zeros(len(rules.weights) + 1, bool)
    leaves[items] = True
    # The last entry is that of variables without an item.
    places = np.flatnonzero(leaves[rules.owner[state.places[:size]]])[::-1]
    return np.stack([places, np.full(len(places), -1)], axis=1)


def _copy_state(source: State, target: State) -> None:
    for array, copy in zip(source, target, strict=True):
        np.copyto(copy, array)


def _walk(
    H: np.ndarray,
    Q: np.ndarray,
    state: State,
    size: int,
    limit: int,
    rules: BlockRules,
    adds: bool,
    most_swaps: int,
    constant: float = 0.0,
    rel_tol: float = 0.0,
) -> tuple[int, float, int]:
    """The size, the objective and the number of swaps after a walk; see `walk_items`."""
    gains, room = np.empty(len(rules.weights)), np.empty((3, state.inner.shape[1]))
    known = make_removals(np.diff(rules.starts), len(state.inner), Q.shape[1])
    found: tuple[int, float, int] = walk_items(
        *(H, Q, state, size, rules.single, rules.items, limit, adds, most_swaps),
        *(constant, rel_tol, known, gains, room),
    )
    return found


def descend_from(
    H: np.ndarray,
    Q: np.ndarray,
    base: State,
    size: int,
    start: np.ndarray,
    limit: int,
    rules: BlockRules,
    constant: float,
    rel_tol: float,
    most_swaps: int,
) -> tuple[np.ndarray, float, int]:
    """Descend from the items ``start (items,)``, by exchanges from `base`, which stays as it is.

    Returns the items at the end, their objective, and the number of swaps.
    """
    state = State(*(array.copy() for array in base))
    moved = _move(H, Q, base, state, size, start, rules)
    if (state.taken > rules.single.most).any() or rules.weigh(state) > limit:
        _copy_state(base, state)
        moved = size
    moved, value, count = _walk(H, Q, state, moved, limit, rules, False, most_swaps, constant, rel_tol)
    return state.inside[rules.starts[:-1]].copy(), value, count


def _move(
    H: np.ndarray, Q: np.ndarray, base: State, state: State, size: int, start: np.ndarray, rules: BlockRules
) -> int:
    """Exchange items of `state`, a copy of `base`, until the support is that of ``start (items,)``.

    Items that depend on the support stay out; in their place stay items of the base. Returns the number of variables.
    """
    inside = base.inside[rules.starts[:-1]]
    leaving, joining = np.flatnonzero(inside & ~start), np.flatnonzero(start & ~inside)
    steps = [_exit(state, size, leaving, rules), *(_entry(int(item), rules) for item in joining)]
    moved = change(H, Q, state, size, rules.single, np.concatenate(steps))
    if _are_regular(H, state, moved, rules):
        return moved
    _copy_state(base, state)
    if (rules.weights > 1).any():
        # Single exchanges might exceed the limit.
        return size
    for gone, item in zip(leaving, joining, strict=False):
        less = change(H, Q, state, size, rules.single, _exit(state, size, np.array([gone]), rules))
        size = change(H, Q, state, less, rules.single, _entry(int(item), rules))
        if not _are_regular(H, state, size, rules):
            less = change(H, Q, state, size, rules.single, _exit(state, size, np.array([item]), rules))
            size = change(H, Q, state, less, rules.single, _entry(int(gone), rules))
    return size


def _are_regular(H: np.ndarray, state: State, size: int, rules: BlockRules) -> bool:
    """Whether no variable inside depends on the others: each has a Schur complement above the least one."""
    places = state.places[:size]
    return bool((state.K.diagonal()[:size] * H[places, places] * rules.single.accuracy < 1).all())


def compile_kernels() -> None:
    """Compile what searches call."""
    swaps.compile_kernels()
    block_descent.compile_kernels()
