"""Searches without the variables of forced items, against enumeration and against searches with all variables."""

import itertools

import numpy as np
import pytest
import torch

from psfit.problem import Domain, OutputItems
from psfit.search.batch_search import make_search
from psfit.search.form_search import FormSearch, SearchForm
from psfit.search.reduced_search import ReducedSearch

SIZE, FORCED = 8, [1, 4]


def make_form(free, twins=False):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, SIZE + free))
    if twins:
        A[:, 2] = A[:, 1]
    H = torch.from_numpy(A.T @ A + 1e-9 * np.eye(SIZE + free))
    return SearchForm(H, torch.from_numpy(A.T @ rng.normal(size=(30, 1))), 50.0)


def make_domain(left, **rules):
    inside = torch.zeros(1, SIZE, dtype=torch.bool)
    inside[0, FORCED] = True
    nothing = torch.zeros_like(inside)
    nothing[0, 7] = True
    domain = Domain.of(OutputItems(SIZE, 1, 0), left + len(FORCED), torch.device("cpu")).decide(inside, nothing)
    return domain.with_groups(**rules) if rules else domain


def least(form, domain):
    """The least value over all allowed supports of the largest size, by linear systems."""
    values = []
    for some in itertools.combinations(range(SIZE), int(domain.limit)):
        mask = torch.zeros(SIZE, dtype=torch.bool)
        mask[list(some)] = True
        if domain.allows(mask):
            at = [*some, *range(SIZE, len(form.H))]
            H, q = form.H[at][:, at].numpy(), form.Q[at, 0].numpy()
            values.append(form.constant - 0.5 * q @ np.linalg.solve(H, q))
    return min(values)


@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize("twins", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_restarts_reach_the_least_value_over_all_supports(free, twins, grouped):
    form = make_form(free, twins)
    rules = {"group": torch.tensor([0, 0, -1, -1, 1, 1, 1, -1]), "most": torch.tensor([1, 2])} if grouped else {}
    domain = make_domain(2, **rules)
    search = make_search(form, domain, 1e-12)
    assert isinstance(search, ReducedSearch)
    grown = search.grow(domain.inside[0].numpy(), [int(domain.limit)])[0]
    (end,) = search.descend([grown])
    best = search.restart(end, 64, 1e9, lambda: False)
    assert domain.allows(torch.from_numpy(best.chosen))
    assert best.value == pytest.approx(least(form, domain), rel=1e-7)


def test_steps_are_those_of_the_whole_form():
    form, domain = make_form(1), make_domain(3)
    whole, reduced = FormSearch(form, domain, 1e-12), make_search(form, domain, 1e-12)
    base = domain.inside[0].numpy()
    for limits in ([3, 4, 5], [5]):
        for one, other in zip(whole.grow(base, limits), reduced.grow(base, limits), strict=True):
            np.testing.assert_array_equal(one, other)
    every = ~domain.outside[0].numpy()
    for one, other in zip(whole.shrink(every, [5, 4]), reduced.shrink(every, [5, 4]), strict=True):
        np.testing.assert_array_equal(one, other)
    start = whole.grow(base, [5])[0]
    for one, other in zip(whole.single_swaps(start, 4), reduced.single_swaps(start, 4), strict=True):
        np.testing.assert_array_equal(one.chosen, other.chosen)
        assert other.value == pytest.approx(one.value, rel=1e-9)


def test_without_places_nothing_is_taken_out():
    search = make_search(make_form(0), make_domain(0), 1e-12)
    base = make_domain(0).inside[0].numpy()
    assert not isinstance(search, ReducedSearch)
    assert search.count_affordable(base, 1e9) >= 1
