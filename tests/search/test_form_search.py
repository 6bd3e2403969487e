"""Searches in a quadratic form against NumPy: each support is solved anew, and all swaps are tried."""

from itertools import combinations

import numpy as np
import pytest
import torch

from psfit.problem import Domain, OutputItems
from psfit.search import form_search
from psfit.search.form_search import End, FormSearch, SearchForm

N = 12
# Each of the first nine items belongs to one of four groups.
GROUP = np.array([0, 0, 1, 1, 1, 2, 2, 3, 3, -1, -1, -1])
MOST = np.array([1, 2, 1, 1])
FORCED, BANNED = 4, 9


def make_form(seed, items=N, intercepts=1, outputs=1, correlation=0.9):
    """The squared loss on correlated columns, with a ridge, and with columns of ones as intercepts."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(40, items))
    for j in range(1, items):
        A[:, j] = correlation * A[:, j - 1] + np.sqrt(1 - correlation**2) * A[:, j]
    A = np.hstack([A, np.ones((40, intercepts))])
    b = A @ rng.normal(size=(items + intercepts, outputs)) + rng.normal(size=(40, outputs))
    ridge = np.diag([1.0] * items + [0.0] * intercepts)
    return SearchForm(torch.tensor(2 * A.T @ A + ridge), torch.tensor(2 * A.T @ b), float((b**2).sum()))


def plain_domain(kappa, items=N):
    return Domain.of(OutputItems(items, 1, 1), kappa, torch.device("cpu"))


def strict_domain(kappa):
    """One item is forced in, one out, and groups are limited."""
    domain = plain_domain(kappa)
    inside, outside = torch.zeros_like(domain.inside), torch.zeros_like(domain.outside)
    inside[0, FORCED] = outside[0, BANNED] = True
    return domain.decide(inside, outside).with_groups(torch.tensor(GROUP), torch.tensor(MOST))


def is_allowed(support):
    """The rules of `strict_domain`, written a second time."""
    counts = [sum(GROUP[j] == g for j in support) for g in range(len(MOST))]
    return FORCED in support and BANNED not in support and all(np.array(counts) <= MOST)


def mask(support, items=N):
    chosen = np.zeros(items, dtype=bool)
    chosen[list(support)] = True
    return chosen


def value(form, chosen):
    """The minimum on a support, and on the intercepts."""
    H, Q = form.H.numpy(), form.Q.numpy()
    rows = np.concatenate([np.flatnonzero(chosen), np.arange(len(chosen), len(H))])
    x = np.linalg.solve(H[np.ix_(rows, rows)], Q[rows])
    return form.constant - 0.5 * float((Q[rows] * x).sum())


def swaps_of(chosen):
    """All supports that differ in one item."""
    for out in np.flatnonzero(chosen):
        for into in np.flatnonzero(~chosen):
            other = chosen.copy()
            other[out], other[into] = False, True
            yield other


def assert_no_swap_helps(form, end, allowed):
    assert end.value == pytest.approx(value(form, end.chosen), rel=1e-9)
    least = min(value(form, other) for other in swaps_of(end.chosen) if allowed(np.flatnonzero(other)))
    assert end.value <= least * (1 + 1e-9)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("intercepts", [0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_no_swap_improves_an_end(seed, intercepts, outputs):
    form = make_form(seed, intercepts=intercepts, outputs=outputs)
    search = FormSearch(form, plain_domain(4), 1e-12)
    starts = [mask(s) for s in ([0, 1, 2, 3], [8, 9, 10, 11], [0, 3, 6, 9], [1, 2, 3], [5])]
    ends = search.descend(starts)
    assert [int(end.chosen.sum()) for end in ends] == [4, 4, 4, 3, 1]
    around = search.descend_around(starts[0], np.stack(starts[:3]), [100] * 3)
    for end in [*ends, *around]:
        assert_no_swap_helps(form, end, lambda support: True)


@pytest.mark.parametrize("seed", range(6))
def test_no_allowed_swap_improves_an_end_and_rules_are_kept(seed):
    form = make_form(seed)
    search = FormSearch(form, strict_domain(5), 1e-12)
    starts = [mask(s) for s in ([0, 4, 5, 7, 10], [2, 4, 6, 10, 11], [1, 3, 4, 8, 11])]
    for end in [*search.descend(starts), *search.descend_around(starts[1], np.stack(starts), [100] * 3)]:
        assert is_allowed(np.flatnonzero(end.chosen))
        assert_no_swap_helps(form, end, is_allowed)
    best = search.restart(search.descend(starts[:1])[0], 32, np.inf, lambda: False)
    assert is_allowed(np.flatnonzero(best.chosen))
    least = min(value(form, mask(s)) for s in combinations(range(N), 5) if is_allowed(s))
    assert best.value == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_restarts_end_at_the_best_support_and_never_at_a_worse_one(seed):
    form = make_form(seed, outputs=2)
    search = FormSearch(form, plain_domain(4), 1e-12)
    (first,) = search.descend([mask([8, 9, 10, 11])])
    best = search.restart(first, 32, np.inf, lambda: False)
    assert best.value <= first.value
    assert best.value == pytest.approx(min(value(form, mask(s)) for s in combinations(range(N), 4)), rel=1e-9)
    assert search.restart(first, 32, np.inf, lambda: True) is first
    assert search.restart(first, 32, 0.0, lambda: False) is first


def test_a_number_of_swaps_is_not_exceeded():
    form = make_form(0, items=30)
    search, base = FormSearch(form, plain_domain(8, 30), 1e-12), mask(range(22, 30), 30)
    ends = search.descend_around(base, np.stack([base] * 4), [0, 1, 2, 100])
    exchanged = [int((end.chosen & ~base).sum()) for end in ends]
    assert exchanged[0] == 0
    assert exchanged[1] == 1
    assert exchanged[2] <= 2 < exchanged[3]
    assert [end.value for end in ends] == sorted((end.value for end in ends), reverse=True)
    assert ends[1].value == pytest.approx(min(value(form, other) for other in swaps_of(base)))


@pytest.mark.parametrize("rules", [plain_domain, strict_domain])
def test_the_best_swap_of_each_newcomer(rules):
    form, base = make_form(1), mask([0, 4, 5, 7, 10])
    allowed = is_allowed if rules is strict_domain else lambda support: True
    found = FormSearch(form, rules(5), 1e-12).single_swaps(base, N)
    expected = {}
    for other in swaps_of(base):
        newcomer, after = int(np.flatnonzero(other & ~base)[0]), value(form, other)
        if allowed(np.flatnonzero(other)) and after < value(form, base):
            expected[newcomer] = min(after, expected.get(newcomer, np.inf))
    assert expected
    assert {int(np.flatnonzero(end.chosen & ~base)[0]): end.value for end in found} == pytest.approx(expected)
    assert [end.value for end in found] == sorted(end.value for end in found)
    for end in found:
        assert end.value == pytest.approx(value(form, end.chosen))
    assert len(FormSearch(form, rules(5), 1e-12).single_swaps(base, 1)) == 1


def grow_naively(form, chosen, limit, allowed):
    while chosen.sum() < limit:
        more = [chosen | mask([j]) for j in np.flatnonzero(~chosen) if allowed(np.flatnonzero(chosen | mask([j])))]
        if not more:
            break
        chosen = min(more, key=lambda other: value(form, other))
    return chosen


def shrink_naively(form, chosen, limit, forced):
    while chosen.sum() > limit:
        less = [chosen & ~mask([j]) for j in np.flatnonzero(chosen) if j != forced]
        chosen = min(less, key=lambda other: value(form, other))
    return chosen


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_items_join_and_leave_one_by_one(seed, outputs):
    form = make_form(seed, outputs=outputs)
    search, nothing = FormSearch(form, plain_domain(N), 1e-12), mask([])
    for limit, chosen in zip([2, 5, 6], search.grow(nothing, [2, 5, 6]), strict=True):
        np.testing.assert_array_equal(chosen, grow_naively(form, nothing, limit, lambda support: True))
    np.testing.assert_array_equal(
        search.grow(mask([3, 7]), [4])[0], grow_naively(form, mask([3, 7]), 4, lambda support: True)
    )
    for limit, chosen in zip([10, 4, 1], search.shrink(mask(range(N)), [10, 4, 1]), strict=True):
        np.testing.assert_array_equal(chosen, shrink_naively(form, mask(range(N)), limit, None))


@pytest.mark.parametrize("seed", range(4))
def test_rules_are_kept_while_items_join_and_leave(seed):
    form = make_form(seed)
    search = FormSearch(form, strict_domain(N), 1e-12)
    # At most seven items: four groups have one, two, one and one, and two others have none.
    for limit, chosen in zip([3, 7, 12], search.grow(mask([FORCED]), [3, 7, 12]), strict=True):
        np.testing.assert_array_equal(chosen, grow_naively(form, mask([FORCED]), limit, is_allowed))
        assert chosen.sum() == min(limit, 7)
    full = search.grow(mask([FORCED]), [7])[0]
    for limit, chosen in zip([4, 1], search.shrink(full, [4, 1]), strict=True):
        np.testing.assert_array_equal(chosen, shrink_naively(form, full, limit, FORCED))


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("rules", [plain_domain, strict_domain])
def test_a_perturbation_keeps_the_size_and_the_rules(rules, share):
    search, generator = FormSearch(make_form(0), rules(5), 1e-12), np.random.default_rng(0)
    base, seen = mask([0, 4, 5, 7, 10]), set()
    for _ in range(40):
        other = search.perturb(base, share, generator)
        assert other.sum() == 5
        assert rules is plain_domain or is_allowed(np.flatnonzero(other))
        seen.add(other.tobytes())
    assert len(seen) > 5
    # Without rules so many items are exchanged, and no others.
    if rules is plain_domain:
        assert (other & ~base).sum() == max(1, round(share * 5))


def test_a_support_of_forced_items_alone_stays():
    domain = plain_domain(3)
    inside = torch.tensor(mask([1, 2, 3])).unsqueeze(0)
    search = FormSearch(make_form(0), domain.decide(inside, torch.zeros_like(inside)), 1e-12)
    base = mask([1, 2, 3])
    np.testing.assert_array_equal(search.perturb(base, 0.5, np.random.default_rng(0)), base)
    (end,) = search.descend([base])
    np.testing.assert_array_equal(search.restart(end, 16, np.inf, lambda: False).chosen, base)


@pytest.fixture
def threads(monkeypatch):
    """Set a number of threads; all searches are worth them."""
    monkeypatch.setattr(form_search, "THREAD_WORK", 0.0)
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_the_number_of_threads_does_not_matter(threads):
    form = make_form(2, items=40)
    found = []
    for count in (1, 4):
        threads(count)
        search = FormSearch(form, plain_domain(7, 40), 1e-12)
        starts = [mask(range(k, k + 7), 40) for k in range(6)]
        ends = search.descend(starts)
        ends += search.descend_around(starts[0], np.stack(starts), [3] * 6)
        ends.append(search.restart(ends[0], 32, np.inf, lambda: False))
        found.append([(end.chosen.tobytes(), end.value, end.swaps) for end in ends] + [search.work])
    assert found[0] == found[1]


def test_equal_columns_without_a_ridge():
    """The other of two equal columns adds nothing, and a search that begins with both ends as well as others."""
    form = make_form(3, items=6)
    twice = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6])
    doubled = SearchForm(form.H[twice][:, twice], form.Q[twice], form.constant)
    search = FormSearch(doubled, plain_domain(4), 1e-12)
    best = min(value(form, mask(s, 6)) for s in combinations(range(6), 4))
    for start in ([0, 1, 2, 3], [0, 2, 4, 6], [8, 9, 10, 11], [0, 1, 4, 6]):
        (end,) = search.descend([mask(start)])
        (around,) = search.descend_around(mask([0, 2, 4, 6]), mask(start)[None], [100])
        for found in (end, around):
            assert found.value == pytest.approx(value(form, mask(np.flatnonzero(found.chosen) // 2, 6)), rel=1e-7)
            assert found.value == pytest.approx(best, rel=1e-7)
    grown = search.grow(mask([]), [4, 12])
    assert sorted(np.flatnonzero(grown[1]) // 2) == list(range(6))
    (end,) = search.descend([grown[0]])
    assert search.restart(end, 32, np.inf, lambda: False).value == pytest.approx(best, rel=1e-7)


def test_no_start_has_no_end():
    assert FormSearch(make_form(0), plain_domain(3), 1e-12).descend([]) == []


def test_an_end_is_better_by_more_than_rounding():
    """A restart must gain more than the tolerance; else the first support stays."""
    form = make_form(0)
    search = FormSearch(form, plain_domain(4), 1.0)
    first = End(mask([8, 9, 10, 11]), value(form, mask([8, 9, 10, 11])))
    assert search.restart(first, 16, np.inf, lambda: False) is first
