"""Proposals of models that promise too much."""

from itertools import product

import numpy as np
import pytest
import torch

from psfit.problem import Domain
from psfit.problem.items import RowItems
from psfit.search.form_search import FormSearch, SearchForm
from psfit.search.improve import MANY_SWAPS, _propose_swaps


def make_search(inside=()):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((60, 30))
    b = A[:, :6].sum(axis=1) + rng.standard_normal(60)
    form = SearchForm(torch.from_numpy(A.T @ A + np.eye(30)), torch.from_numpy(A.T @ b[:, None]), float(b @ b))
    domain = Domain.of(RowItems(30, 1, 0), 4, torch.device("cpu"))
    forced = torch.zeros(1, 30, dtype=torch.bool)
    forced[0, list(inside)] = True
    return FormSearch(form, domain.decide(forced, torch.zeros_like(forced)), 1e-9)


@pytest.mark.parametrize("forced", [(), (20,), (20, 21, 22, 23)])
def test_the_best_newcomers_are_proposed_in_all_places_that_are_free(forced):
    search = make_search(forced)
    base = np.isin(np.arange(30), (20, 21, 22, 23))
    ends = _propose_swaps(search, base, MANY_SWAPS)
    supports = {tuple(np.flatnonzero(end.chosen)) for end in ends}
    assert len(supports) == len(ends)
    free = sorted({20, 21, 22, 23} - set(forced))
    newcomers = [int(np.flatnonzero(end.chosen & ~base)[0]) for end in search.single_swaps(base, MANY_SWAPS)]
    assert bool(newcomers) == bool(free)
    expected = {tuple(sorted({20, 21, 22, 23} - {gone} | {new})) for new, gone in product(newcomers, free)}
    assert supports == expected
