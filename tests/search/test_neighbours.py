"""Supports along a path of limits against all supports."""

import numpy as np
import pytest
import torch
from enumeration import best_objective, quick_best_objective
from posed import CPU, posed, support, zero
from problems import LOSSES, make_source

from psfit import GridSpec, Problem, Source, SparseLinearRegressionCV, sparse_path
from psfit.data import Dense
from psfit.losses import Hinge, Logistic, Softmax, Squared
from psfit.pipeline.path import solve_path
from psfit.problem.pose import pose
from psfit.search.form_search import FormSearch
from psfit.search.joint_refit import refit_together
from psfit.search.neighbours import pass_on, restart_limits, search_limits
from psfit.search.objective import DataObjective, objective_of
from psfit.search.starts import refit_end

NAMED = {"ids": lambda loss: loss.name}


def search_path(inst, kappas, own):
    """Supports of all limits from the first items at some of them."""
    starts = {kappa: [support(inst, range(kappa))] for kappa in kappas if kappa in own}
    return search_limits(objective_of(inst, 0), kappas, starts, zero(inst))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_every_limit_has_the_best_support(seed, intercept):
    inst = posed(Squared(), 8, samples=70, seed=seed, correlation=0.7, nodes=2, fit_intercept=intercept)
    kappas = list(range(1, 9))
    found = search_path(inst, kappas, {1, 4, 8})
    fits = refit_together(inst, 0, list(found.values()))
    source = make_source(Squared(), samples=70, features=8, nonzeros=3, seed=seed, correlation=0.7)
    for kappa, fit in zip(kappas, fits, strict=True):
        assert int(found[kappa].chosen.sum()) == kappa
        best = best_objective(Problem(Squared(), (kappa,), 3.0, fit_intercept=intercept), source)
        assert fit.value == pytest.approx(best, rel=1e-9)
        assert found[kappa].value == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES, **NAMED)
def test_paths_of_all_losses_fall_to_the_best_of_all_supports(loss):
    source = make_source(loss, samples=60, features=4 if loss.joint else 9, nonzeros=4, seed=1, correlation=0.8)
    kappas = [1, 2, 3, 5]
    (points,) = solve_path(Problem(loss, (1,)), source, kappas, [3.0], certify=False)
    assert np.all(np.diff(points.objectives) <= 1e-9 * np.abs(points.objectives[:-1]))
    quick = loss.smooth and not loss.quadratic
    for kappa, value, coef in zip(kappas, points.objectives, points.coefs, strict=True):
        best = (quick_best_objective if quick else best_objective)(Problem(loss, (kappa,), 3.0), source)
        # Models of a loss with kinks are rough, and may miss the best support.
        assert value == pytest.approx(best, rel=1e-6 if loss.smooth else 0.02)
        assert value >= best - 1e-7 * abs(best)
        assert np.count_nonzero(coef) <= kappa


@pytest.mark.parametrize("kappas", [[5], [1, 30], [2, 3, 11, 12, 13, 29], list(range(1, 31))])
def test_objectives_fall_and_are_those_of_refits(kappas):
    inst = posed(Squared(), 30, features=30, samples=120, seed=1, correlation=0.95, nodes=2)
    found = search_path(inst, kappas, {kappas[0], 12, kappas[-1]})
    values = [one.value for one in found.values()]
    assert list(found) == kappas
    assert values == sorted(values, reverse=True)
    for one, fit in zip(found.values(), refit_together(inst, 0, list(found.values())), strict=True):
        assert one.value == pytest.approx(fit.value, rel=1e-9)
    # Restarts and neighbours only ever help.
    objective = objective_of(inst, 0)
    better = pass_on(objective, restart_limits(objective, found, kappas, "medium"))
    assert all(better[kappa].value <= found[kappa].value * (1 + 1e-12) for kappa in kappas)
    assert [int(better[kappa].chosen.sum()) for kappa in kappas] == kappas
    assert restart_limits(objective, found, kappas, "low") == found


@pytest.mark.parametrize("loss", [Logistic(), Softmax(), Hinge()], **NAMED)
def test_restarts_by_models_only_ever_help(loss):
    inst = posed(loss, 6, samples=60, correlation=0.8)
    objective, kappas = objective_of(inst, 0), [2, 3, 5]
    found = {kappa: refit_end(objective, support(inst, range(8 - kappa, 8)), zero(inst)) for kappa in kappas}
    better = restart_limits(objective, found, kappas, "medium")
    assert all(better[kappa].value < found[kappa].value for kappa in kappas)
    assert [int(better[kappa].chosen.sum()) for kappa in kappas] == kappas
    assert restart_limits(objective, found, kappas, "low") == found


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Softmax(), Hinge()], **NAMED)
def test_a_limit_takes_what_its_neighbours_have(loss):
    """A poor support in the middle is replaced from below and from above."""
    inst = posed(loss, 6, samples=100, correlation=0.0)
    objective = objective_of(inst, 0)
    kappas = [2, 3, 4]
    good = search_path(inst, kappas, {2, 4})
    poor = {**good, 3: refit_end(objective, good[3].chosen.flip(0), zero(inst))}
    assert poor[3].value > good[3].value * 1.001
    assert pass_on(objective, poor)[3].value == pytest.approx(good[3].value, rel=1e-6)


@pytest.mark.parametrize("gamma", [1.0, 1e4, 1e12])
@pytest.mark.parametrize("seed", range(2))
def test_columns_that_occur_twice(seed, gamma):
    rng = np.random.default_rng(seed)
    single = rng.normal(size=(50, 5))
    X = np.repeat(single, 2, axis=1)
    y = X[:, 0] - X[:, 2] + 0.1 * rng.normal(size=50)
    found = sparse_path(X, y, gammas=gamma)
    assert np.all(np.diff(found.objectives[0]) <= 0)
    # A column that occurs twice has half of its ridge.
    everything = Source(Dense(torch.tensor(single)), torch.tensor(y).unsqueeze(1), torch.ones(50, 1).double())
    best = best_objective(Problem(Squared(), (5,), 2 * gamma), everything)
    assert found.objectives[0, -1] == pytest.approx(best, rel=1e-6)
    once = best_objective(Problem(Squared(), (1,), gamma), everything)
    assert found.objectives[0, 0] == pytest.approx(once, rel=1e-9)


def test_nearly_dependent_powers():
    """Forms of such columns have few digits; objectives are those of refits all the same, and fall."""
    powers = torch.linspace(0, 1, 60, dtype=torch.float64).unsqueeze(1) ** torch.arange(1, 31)
    source = Source(Dense(powers), powers[:, 3:4] - powers[:, 20:21], torch.ones(60, 1, dtype=torch.float64))
    inst = pose(Problem(Squared(), (19,), 1e12), source, GridSpec().build(CPU))
    kappas = list(range(1, 20))
    found = search_path(inst, kappas, {1, 10, 19})
    objective = DataObjective(inst, 0)
    for one in found.values():
        exact = objective.fit(one.chosen, zero(inst), tol=1e-9).value
        assert one.value == pytest.approx(exact, rel=1e-3, abs=1e-9)
    single = best_objective(Problem(Squared(), (1,), 1e12), source)
    assert found[1].value == pytest.approx(single, rel=1e-6)


def test_a_choice_among_one_limit():
    """Folds have a path of one limit, which has no neighbours."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8))
    assert SparseLinearRegressionCV([3], cv=3).fit(X, X[:, 0] + rng.normal(size=60)).kappa_ == 3


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_no_support_of_a_limit_is_searched_twice(correlation, monkeypatch):
    inst = posed(Squared(), 20, samples=200, features=30, seed=0, correlation=correlation, nonzeros=10)
    starts, descend = [], FormSearch.descend

    def note(search, some):
        starts.extend(start.tobytes() for start in some)
        return descend(search, some)

    monkeypatch.setattr(FormSearch, "descend", note)
    search_path(inst, list(range(1, 21)), {1, 10, 20})
    assert len(starts) >= 20
    assert len(set(starts)) == len(starts)
