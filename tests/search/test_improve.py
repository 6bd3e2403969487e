"""Proposals of models that promise too much, and all supports where they are few."""

from itertools import combinations, product

import numpy as np
import pytest
import torch
from constrained import make_case
from enumeration import best_objective
from posed import CPU, support, zero
from problems import make_source

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.losses import Logistic, SquaredHinge
from psfit.problem import Constraints, Domain
from psfit.problem.items import RowItems
from psfit.problem.pose import pose
from psfit.search.explore import try_all
from psfit.search.form_search import FormSearch, SearchForm
from psfit.search.improve import MANY_SWAPS, _propose_swaps, rank_supports
from psfit.search.model_form import make_form
from psfit.search.objective import objective_of
from psfit.search.support_fit import SupportFit


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


@pytest.mark.parametrize("squares", [1, 100, 1 << 22])
def test_groups_of_different_sizes_are_compared_in_batches(monkeypatch, squares):
    source = make_source(Logistic(), samples=60, features=9, nonzeros=4, seed=5, correlation=0.7)
    demands = Constraints(group=np.array([0, 1, 0, 2, 3, 3, 2, 2, 4]))
    inst = pose(Problem(Logistic(), (2,), 3.0, constraints=demands), source, GridSpec().build(CPU))
    monkeypatch.setattr("psfit.search.improve.MOST_SQUARES", squares)
    objective, start = objective_of(inst, 0), support(inst, [0, 1])
    found = try_all(objective, SupportFit(start, objective.fit(start, zero(inst))))
    assert found.value == pytest.approx(best_objective(inst.problem, source), rel=1e-6)
    pairs = [support(inst, pair) for pair in combinations(range(5), 2)]
    ranked = rank_supports(objective, found, pairs)
    assert {tuple(one.tolist()) for one in ranked} == {tuple(one.tolist()) for one in pairs}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("loss", [Logistic(), SquaredHinge()], ids=lambda loss: loss.name)
def test_the_best_of_all_supports_is_found_where_models_of_other_supports_say_little(loss, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(25, 5)) + 10 ** rng.uniform(0, 4, 5)
    y = np.where(X[:, 0] - X[:, 1] - (X[:, 0] - X[:, 1]).mean() + 0.5 * rng.normal(size=25) > 0, 1.0, -1.0)
    weight = 10.0 ** rng.integers(0, 4, 25)
    source = Source(Dense(torch.from_numpy(X)), *(torch.from_numpy(part).unsqueeze(1) for part in (y, weight)))
    problem = Problem(loss, (2,), 1e3)
    found = solve(problem, source, BiCADMM(), GridSpec(device="cpu"), certify=False)
    # The minimisers of the enumeration may end a little above the minimum.
    assert found.objective <= best_objective(problem, source) * (1 + 1e-6)


# A Poisson loss whose counts are all zero, and a softmax loss with a single class, where there are weights.
@pytest.mark.parametrize("seed", [1156, 1158])
def test_a_loss_that_falls_for_ever_ends_the_search(seed, monkeypatch):
    case, made = make_case(seed), []
    monkeypatch.setattr("psfit.search.objective.make_form", lambda *given: made.append(given) or make_form(*given))
    result = solve(case.problem, case.source, grid=GridSpec(device="cpu", backend="serial"))
    assert result.objective < 1e-9
    assert len(made) < 50
