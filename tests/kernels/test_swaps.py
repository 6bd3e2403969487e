"""The compiled swap search against a dense solver."""

import numpy as np
import pytest
from swap_forms import gains_of, make_form, value_on, variables_of

from psfit.kernels.cpu import swaps

FREE = (np.zeros(12, bool), np.full(12, -1), np.zeros(1, np.int64))
# Item 2 is inside for ever and item 9 outside; of every third item at most two.
LIMITED = (np.isin(np.arange(12), [2, 9]), np.where(np.arange(12) % 3 == 2, 0, -1), np.array([2]))
CHOSEN = [4, 2, 8, 7]


def build(H, Q, chosen, limits=FREE, room=0):
    rules = swaps.make_rules(*limits, len(H), 1, 1e-11)
    places = variables_of(chosen, 1, len(H), len(limits[0]))
    return swaps.build(H, Q, np.concatenate([places, np.zeros(room, np.int64)]), len(places), rules), len(places), rules


def assert_same(state, size, H, Q, limits=FREE):
    """The state is that of a support built anew, up to the order of its places."""
    places = state.places[:size]
    fresh, _, _ = build(H, Q, places[places < len(limits[0])], limits)
    # The fresh one has the intercepts first.
    order = [list(fresh.places).index(place) for place in places]
    outside = ~state.inside
    np.testing.assert_array_equal(state.inside, fresh.inside)
    np.testing.assert_array_equal(state.taken, fresh.taken)
    np.testing.assert_allclose(state.K[:size, :size], np.linalg.inv(H[np.ix_(places, places)]), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(state.x[:size], fresh.x[order], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(state.T[outside, :size], fresh.T[outside][:, order], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(state.d[outside], fresh.d[outside], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(state.left[outside], fresh.left[outside], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("limits", [FREE, LIMITED])
@pytest.mark.parametrize(("outputs", "intercepts"), [(1, 0), (3, 1)])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_swaps_are_those_of_a_dense_solver(seed, outputs, intercepts, limits):
    H, Q = make_form(12, outputs=outputs, intercepts=intercepts, seed=seed)
    state, size, rules = build(H, Q, CHOSEN, limits)
    expected = gains_of(H, Q, CHOSEN, 1, 12, *limits)
    gains, partners = np.empty(len(H)), np.empty(len(H), np.int64)
    swaps.score_newcomers(H, state, size, rules, gains, partners)
    for item in range(12):
        mine = {j: gain for (j, i), gain in expected.items() if i == item}
        if mine:
            assert gains[item] == pytest.approx(max(mine.values()))
            assert state.places[partners[item]] == max(mine, key=mine.get)
        else:
            assert (gains[item], partners[item]) == (-np.inf, -1)
    assert swaps.value_of(Q, state, size) == pytest.approx(value_on(H, Q, state.places))


@pytest.mark.parametrize("intercepts", [0, 1])
def test_a_changed_state_is_that_of_a_fresh_one(intercepts):
    H, Q = make_form(12, outputs=2, intercepts=intercepts)
    state, size, rules = build(H, Q, CHOSEN, LIMITED, room=2)
    for item in (11, 0):
        size = swaps.change(H, Q, state, size, rules, np.array([[-1, item]]))
        assert_same(state, size, H, Q, LIMITED)
    for place in (intercepts, size - 2, size - 3):
        size = swaps.change(H, Q, state, size, rules, np.array([[place, -1]]))
        assert_same(state, size, H, Q, LIMITED)


@pytest.mark.parametrize("limits", [FREE, LIMITED])
@pytest.mark.parametrize("seed", range(4))
def test_no_swap_improves_an_end(seed, limits):
    H, Q = make_form(12, outputs=2, intercepts=1, seed=seed)
    rows, values, counts, _ = search(H, Q, [CHOSEN, [0, 1, 2, 3], [10, 11, 2, 0]], limits)
    for row, value in zip(rows, values, strict=True):
        assert value == pytest.approx(value_on(H, Q, row))
        gains = gains_of(H, Q, row[row < 12].tolist(), 1, 12, *limits)
        assert max(gains.values()) <= 1e-9
    assert counts.sum() > 0


def search(H, Q, starts, limits=FREE, most=100):
    state, size, rules = build(H, Q, CHOSEN, limits)
    work, _, _ = build(H, Q, CHOSEN, limits)
    rows = np.stack([variables_of(start, 1, len(H), 12) for start in starts])
    values, counts = np.empty(len(rows)), np.empty(len(rows), np.int64)
    most_swaps = np.full(len(rows), most)
    swaps.search_rows(H, Q, state, work, size, rows, most_swaps, rules, 1.0, 1e-12, values, counts)
    return rows, values, counts, work


def test_the_last_state_of_a_search_is_that_of_a_fresh_one():
    H, Q = make_form(12, outputs=2, intercepts=1, seed=5)
    rows, _, counts, work = search(H, Q, [[0, 1, 3, 5]])
    assert counts[0] > 1
    assert_same(work, len(rows[0]), H, Q)


def test_a_search_does_not_depend_on_the_others():
    H, Q = make_form(12, seed=7)
    starts = [CHOSEN, [0, 1, 3, 5], [4, 2, 10, 11], [6, 9, 8, 7]]
    together = search(H, Q, starts)
    for k, start in enumerate(starts):
        for array, alone in zip(together[:3], search(H, Q, [start])[:3], strict=True):
            np.testing.assert_array_equal(array[k], alone[0])


def test_items_join_and_leave_in_the_order_of_their_gains():
    H, Q = make_form(12, intercepts=1, seed=3)
    state, size, rules = build(H, Q, [2], LIMITED, room=5)
    have = [2]
    for limit in range(3, 8):
        after = {
            i: value_on(H, Q, variables_of([*have, i], 1, 13, 12))
            for i in range(12)
            if i not in have and i != 9 and not (i % 3 == 2 and sum(k % 3 == 2 for k in have) == 2)
        }
        have.append(min(after, key=after.get))
        size = swaps.grow(H, Q, state, size, limit, rules)
        assert state.places[:size].tolist() == [12, *have]
    for limit in range(6, 1, -1):
        after = {j: value_on(H, Q, variables_of([k for k in have if k != j], 1, 13, 12)) for j in have if j != 2}
        have.remove(min(after, key=after.get))
        size = swaps.shrink(H, Q, state, size, limit, rules)
        assert set(state.places[:size]) == {12, *have}
    assert swaps.shrink(H, Q, state, size, 0, rules) == 2


@pytest.mark.parametrize("noise", [0.0, 1e-7, 1e-5])
@pytest.mark.parametrize("chosen", [[0, 1, 2, 3], [0, 1, 6, 7], [0, 6, 2, 8]])
def test_nearly_dependent_columns_promise_nothing_false(chosen, noise):
    """Columns 6 to 11 are nearly copies of 0 to 5, up to a factor, and there is nearly no ridge."""
    generator = np.random.default_rng(1)
    A = generator.standard_normal((40, 6))
    A = np.hstack([A, 2 * A + noise * generator.standard_normal(A.shape)])
    b = A[:, :5].sum(axis=1) + generator.standard_normal(40)
    H, Q = A.T @ A + 1e-12 * np.eye(12), (A.T @ b)[:, None]
    rows, values, _, _ = search(H, Q, [chosen, CHOSEN])
    for row, value in zip(rows, values, strict=True):
        assert np.isfinite(value)
        assert len(set(row.tolist())) == 4
        residual = b - A[:, row] @ np.linalg.lstsq(A[:, row], b, rcond=None)[0]
        assert value >= 0.5 * (residual @ residual - b @ b) - 1e-6 * (b @ b)
