"""The swap search for items of several variables against a dense solver."""

import numpy as np
import pytest
import swap_forms
from swap_forms import gains_of, make_form, value_on, variables_of

from psfit.kernels.cpu import block_swaps

ITEMS = 9
FREE = (np.zeros(ITEMS, bool), np.full(ITEMS, -1), np.zeros(1, np.int64))
# Item 2 is inside for ever and item 7 outside; of every third item at most two.
LIMITED = (np.isin(np.arange(ITEMS), [2, 7]), np.where(np.arange(ITEMS) % 3 == 2, 0, -1), np.array([2]))
CHOSEN = [4, 2, 8]


def build(H, Q, chosen, width, limits=FREE, room=0):
    rules = block_swaps.make_rules(*limits, len(H), np.full(ITEMS, width), 1e-11)
    places = variables_of(chosen, width, len(H), ITEMS)
    room = np.zeros(room * width, np.int64)
    return block_swaps.build(H, Q, np.concatenate([places, room]), len(places), rules), len(places), rules


def items_of(places, width, n):
    """The items of places that have all their variables, and the intercepts."""
    begin = n - ITEMS * width
    assert set(places) >= set(range(ITEMS * width, n))
    found = sorted(set(places[places < ITEMS * width] // width))
    assert len(places) == begin + width * len(found)
    return found


def search(H, Q, starts, width, limits=FREE):
    """Items, objectives and numbers of swaps at the ends of searches."""
    state, size, rules = build(H, Q, CHOSEN, width, limits)
    masks = [np.isin(np.arange(ITEMS), start) for start in starts]
    ends = [block_swaps.descend_from(H, Q, state, size, mask, 3, rules, 1.0, 1e-12, 100) for mask in masks]
    return [np.flatnonzero(chosen).tolist() for chosen, _, _ in ends], *map(
        list, zip(*(end[1:] for end in ends), strict=True)
    )


@pytest.mark.parametrize("limits", [FREE, LIMITED])
@pytest.mark.parametrize(("width", "intercepts"), [(2, 0), (3, 3), (1, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_the_best_swaps_are_those_of_a_dense_solver(seed, width, intercepts, limits):
    H, Q = make_form(ITEMS, width, intercepts=intercepts, seed=seed)
    state, size, rules = build(H, Q, CHOSEN, width, limits)
    expected = gains_of(H, Q, CHOSEN, width, ITEMS, *limits)
    gains, partners = np.empty(ITEMS), np.empty(ITEMS, np.int64)
    block_swaps.score_newcomers(H, state, size, 3, rules, gains, partners)
    for item in range(ITEMS):
        mine = {j: gain for (j, i), gain in expected.items() if i == item}
        if mine:
            assert gains[item] == pytest.approx(max(mine.values()))
            assert state.places[partners[item]] // width == max(mine, key=mine.get)
        else:
            assert (gains[item], partners[item]) == (-np.inf, -1)
    best = max(expected, key=expected.get)
    base, value = np.isin(np.arange(ITEMS), CHOSEN), block_swaps.value_of(Q, state, size)
    chosen, after, count = block_swaps.descend_from(H, Q, state, size, base, 3, rules, 0.0, 1e-12, 1)
    assert expected[best] > 0
    assert ([*np.flatnonzero(base & ~chosen)], [*np.flatnonzero(chosen & ~base)]) == ([best[0]], [best[1]])
    assert (value - after, count) == (pytest.approx(expected[best]), 1)
    share = 1.01 * expected[best] / abs(value)
    chosen, after, count = block_swaps.descend_from(H, Q, state, size, base, 3, rules, 0.0, share, 1)
    assert (chosen == base).all()
    assert (after, count) == (pytest.approx(value), 0)


@pytest.mark.parametrize("limits", [FREE, LIMITED])
@pytest.mark.parametrize(("width", "intercepts"), [(2, 0), (3, 3)])
@pytest.mark.parametrize("seed", range(3))
def test_no_swap_improves_an_end(seed, width, intercepts, limits):
    H, Q = make_form(ITEMS, width, intercepts=intercepts, seed=seed)
    ends, values, counts = search(H, Q, [CHOSEN, [0, 1, 2], [6, 2, 5], [2, 3, 4]], width, limits)
    for items, value in zip(ends, values, strict=True):
        assert value == pytest.approx(value_on(H, Q, variables_of(items, width, len(H), ITEMS)))
        gains = gains_of(H, Q, items, width, ITEMS, *limits)
        assert max(gains.values()) <= 1e-9
    assert sum(counts) > 0


@pytest.mark.parametrize("seed", range(4))
def test_items_of_different_widths_and_several_outputs(seed):
    """Every end is a support that no swap improves, by a dense solver; the state at the base stays as it was."""
    widths = np.random.default_rng(seed).integers(1, 5, ITEMS)
    n, starts = int(widths.sum()) + 2, np.concatenate([[0], np.cumsum(widths)])
    H, Q = swap_forms.make_form(n - 2, intercepts=2, outputs=2, seed=seed)

    def variables(items):
        return np.concatenate([[n - 2, n - 1], *(np.arange(starts[i], starts[i + 1]) for i in items)])

    rules = block_swaps.make_rules(*LIMITED, n, widths, 1e-11)
    room = np.zeros(2 + int(np.sort(widths)[-3:].sum()), np.int64)
    base = variables(CHOSEN)
    room[: len(base)] = base
    state = block_swaps.build(H, Q, room, len(base), rules)
    before = [array.copy() for array in state]
    for start in ([0, 1, 2], [2, 3, 4], [2, 5, 6], CHOSEN):
        mask = np.isin(np.arange(ITEMS), start)
        chosen, value, _ = block_swaps.descend_from(H, Q, state, len(base), mask, 3, rules, 1.0, 1e-12, 100)
        items = np.flatnonzero(chosen).tolist()
        assert value == pytest.approx(value_on(H, Q, variables(items)))
        fixed, group, most = LIMITED
        for j in items:
            for i in set(range(ITEMS)) - set(items):
                after = [i if k == j else k for k in items]
                if not fixed[j] and not fixed[i] and (group[after] == 0).sum() <= most[0]:
                    assert value_on(H, Q, variables(after)) >= value - 1e-9
    for array, kept in zip(state, before, strict=True):
        np.testing.assert_array_equal(array, kept)


def test_a_search_without_swaps_stays_at_its_start():
    H, Q = make_form(ITEMS, 3, intercepts=3)
    state, size, rules = build(H, Q, CHOSEN, 3)
    for start in ([0, 2, 1], [8, 4, 2], [5, 6, 7]):
        mask = np.isin(np.arange(ITEMS), start)
        chosen, value, count = block_swaps.descend_from(H, Q, state, size, mask, 3, rules, 1.0, 1e-12, 0)
        assert set(np.flatnonzero(chosen)) == set(start)
        assert count == 0
        assert value == pytest.approx(value_on(H, Q, variables_of(start, 3, 30, ITEMS)))


@pytest.mark.parametrize(("width", "intercepts"), [(2, 0), (3, 3)])
def test_items_join_and_leave_in_the_order_of_their_gains(width, intercepts):
    H, Q = make_form(ITEMS, width, intercepts=intercepts, seed=3)
    n, have = len(H), [2]
    state, size, rules = build(H, Q, have, width, LIMITED, room=4)
    for count in range(2, 6):
        after = {
            i: value_on(H, Q, variables_of([*have, i], width, n, ITEMS))
            for i in range(ITEMS)
            if i not in have and i != 7 and not (i % 3 == 2 and sum(k % 3 == 2 for k in have) == 2)
        }
        have.append(min(after, key=after.get))
        size = block_swaps.grow(H, Q, state, size, count, rules)
        assert items_of(state.places[:size], width, n) == sorted(have)
    for count in range(4, 0, -1):
        after = {j: value_on(H, Q, variables_of([k for k in have if k != j], width, n, ITEMS)) for j in have if j != 2}
        have.remove(min(after, key=after.get))
        size = block_swaps.shrink(H, Q, state, size, count, rules)
        assert set(items_of(state.places[:size], width, n)) == set(have)
    assert block_swaps.shrink(H, Q, state, size, 0, rules) == intercepts + width
    assert block_swaps.value_of(Q, state, size) == pytest.approx(value_on(H, Q, state.places[:size]))


@pytest.mark.parametrize("noise", [0.0, 1e-7, 1e-5])
@pytest.mark.parametrize("start", [[0, 1, 2], [0, 1, 5], [4, 8, 3], [0, 4, 8]])
def test_nearly_dependent_columns_promise_nothing_false(start, noise):
    """Items 4 to 7 are nearly copies of 0 to 3, up to a factor; item 8 has two equal columns, and nearly no ridge."""
    generator = np.random.default_rng(1)
    A = generator.standard_normal((40, 8))
    A = np.hstack([A, 2 * A + noise * generator.standard_normal(A.shape), *2 * [generator.standard_normal((40, 1))]])
    b = A[:, :6].sum(axis=1) + generator.standard_normal(40)
    H, Q = A.T @ A + 1e-12 * np.eye(18), (A.T @ b)[:, None]
    (items,), (value,), _ = search(H, Q, [start], 2)
    assert np.isfinite(value)
    assert len(items) == 3
    row = variables_of(items, 2, 18, ITEMS)
    residual = b - A[:, row] @ np.linalg.lstsq(A[:, row], b, rcond=None)[0]
    assert value >= 0.5 * (residual @ residual - b @ b) - 1e-6 * (b @ b)
