"""The swap search for items of several variables against a dense solver."""

import numpy as np
import pytest
from swap_forms import gains_of, make_form, value_on, variables_of

from psfit.kernels.cpu import block_swaps, swaps

ITEMS = 9
FREE = (np.zeros(ITEMS, bool), np.full(ITEMS, -1), np.zeros(1, np.int64))
# Item 2 is inside for ever and item 7 outside; of every third item at most two.
LIMITED = (np.isin(np.arange(ITEMS), [2, 7]), np.where(np.arange(ITEMS) % 3 == 2, 0, -1), np.array([2]))
CHOSEN = [4, 2, 8]


def build(H, Q, chosen, width, limits=FREE, room=0):
    rules = block_swaps.make_rules(*limits, len(H), width, 1e-11)
    places = variables_of(chosen, width, len(H), ITEMS)
    room = np.zeros(room * width, np.int64)
    return block_swaps.build(H, Q, np.concatenate([places, room]), len(places), rules), len(places), rules


def items_of(places, width, n):
    """The items in the order of their places, which must be side by side, behind the intercepts."""
    begin = n - ITEMS * width
    assert set(places[:begin]) == set(range(ITEMS * width, n))
    blocks = places[begin:].reshape(-1, width)
    np.testing.assert_array_equal(np.sort(blocks, axis=1), blocks[:, :1] // width * width + np.arange(width))
    return (blocks[:, 0] // width).tolist()


def search(H, Q, starts, width, limits=FREE):
    state, size, rules = build(H, Q, CHOSEN, width, limits)
    work, _, _ = build(H, Q, CHOSEN, width, limits)
    rows = np.stack([variables_of(start, width, len(H), ITEMS) for start in starts])
    values, counts = np.empty(len(rows)), np.empty(len(rows), np.int64)
    most = np.full(len(rows), 100)
    block_swaps.search_rows(H, Q, state, work, size, rows, most, rules, 1.0, 1e-12, values, counts)
    return rows, values, counts, work


@pytest.mark.parametrize("limits", [FREE, LIMITED])
@pytest.mark.parametrize(("width", "intercepts"), [(2, 0), (3, 3), (1, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_the_best_swaps_are_those_of_a_dense_solver(seed, width, intercepts, limits):
    H, Q = make_form(ITEMS, width, intercepts=intercepts, seed=seed)
    state, size, rules = build(H, Q, CHOSEN, width, limits)
    expected = gains_of(H, Q, CHOSEN, width, ITEMS, *limits)
    gains, partners = np.empty(ITEMS), np.empty(ITEMS, np.int64)
    block_swaps.score_newcomers(H, state, size, rules, gains, partners)
    for item in range(ITEMS):
        mine = {j: gain for (j, i), gain in expected.items() if i == item}
        if mine:
            assert gains[item] == pytest.approx(max(mine.values()))
            assert state.places[partners[item]] // width == max(mine, key=mine.get)
        else:
            assert (gains[item], partners[item]) == (-np.inf, -1)
    best = max(expected, key=expected.get)
    place, newcomer, gain = block_swaps.best_swap(H, state, size, rules, -np.inf)
    assert (state.places[place] // width, newcomer) == best
    assert gain == pytest.approx(expected[best])
    assert block_swaps.best_swap(H, state, size, rules, gain + 1e-9)[0] == -1


@pytest.mark.parametrize("limits", [FREE, LIMITED])
@pytest.mark.parametrize(("width", "intercepts"), [(2, 0), (3, 3)])
@pytest.mark.parametrize("seed", range(3))
def test_no_swap_improves_an_end(seed, width, intercepts, limits):
    H, Q = make_form(ITEMS, width, intercepts=intercepts, seed=seed)
    rows, values, counts, work = search(H, Q, [CHOSEN, [0, 1, 2], [6, 2, 5], [2, 3, 4]], width, limits)
    for row, value in zip(rows, values, strict=True):
        assert value == pytest.approx(value_on(H, Q, row))
        gains = gains_of(H, Q, items_of(row, width, len(H)), width, ITEMS, *limits)
        assert max(gains.values()) <= 1e-9
    assert counts.sum() > 0
    np.testing.assert_array_equal(work.places, rows[-1])
    single = swaps.make_rules(np.zeros(0, bool), np.zeros(0, np.int64), np.zeros(1, np.int64), len(H), 1, 1e-11)
    fresh = swaps.build(H, Q, work.places, len(work.places), single)
    for name in ("K", "x", "inside"):
        np.testing.assert_allclose(getattr(work, name), getattr(fresh, name), rtol=1e-8, atol=1e-9)
    for name in ("T", "d", "left"):
        outside = ~work.inside
        np.testing.assert_allclose(getattr(work, name)[outside], getattr(fresh, name)[outside], rtol=1e-8, atol=1e-9)


def test_a_search_without_swaps_stays_at_its_start():
    H, Q = make_form(ITEMS, 3, intercepts=3)
    state, size, rules = build(H, Q, CHOSEN, 3)
    starts = [[0, 2, 1], [8, 4, 2], [5, 6, 7]]
    rows, values, counts = np.stack([variables_of(s, 3, 30, ITEMS) for s in starts]), np.empty(3), np.empty(3, np.int64)
    work, _, _ = build(H, Q, CHOSEN, 3)
    none = np.zeros(3, np.int64)
    block_swaps.search_rows(H, Q, state, work, size, rows, none, rules, 1.0, 1e-12, values, counts)
    assert [set(items_of(row, 3, 30)) for row in rows] == [set(start) for start in starts]
    assert counts.tolist() == [0, 0, 0]
    assert values.tolist() == pytest.approx([value_on(H, Q, row) for row in rows])


def test_a_search_does_not_depend_on_the_others():
    H, Q = make_form(ITEMS, 2, seed=7)
    starts = [CHOSEN, [0, 1, 3], [4, 2, 5], [6, 7, 8]]
    together = search(H, Q, starts, 2)
    for k, start in enumerate(starts):
        for array, alone in zip(together[:3], search(H, Q, [start], 2)[:3], strict=True):
            np.testing.assert_array_equal(array[k], alone[0])


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
        size = block_swaps.grow(H, Q, state, size, intercepts + count * width, rules)
        assert items_of(state.places[:size], width, n) == have
    for count in range(4, 0, -1):
        after = {j: value_on(H, Q, variables_of([k for k in have if k != j], width, n, ITEMS)) for j in have if j != 2}
        have.remove(min(after, key=after.get))
        size = block_swaps.shrink(H, Q, state, size, intercepts + count * width, rules)
        assert set(items_of(state.places[:size], width, n)) == set(have)
    assert block_swaps.shrink(H, Q, state, size, intercepts, rules) == intercepts + width
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
    rows, values, _, _ = search(H, Q, [start], 2)
    (row,), (value,) = rows, values
    assert np.isfinite(value)
    assert len(set(items_of(row, 2, 18))) == 3
    residual = b - A[:, row] @ np.linalg.lstsq(A[:, row], b, rcond=None)[0]
    assert value >= 0.5 * (residual @ residual - b @ b) - 1e-6 * (b @ b)
