"""Settings of the solver that estimators take themselves, by scikit-learn's conventions."""

import inspect
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import psfit
from psfit import BiCADMM, SparseLinearRegression, SparseLinearRegressionCV, SparseLogisticRegression
from psfit.kernels.cpu.threads import limit_threads

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 8))
Y = X[:, 0] - X[:, 1] + RNG.normal(size=60)
GIVEN = {"effort": "low", "tol": 1e-2, "max_iter": 300, "time_limit": 1e5, "n_jobs": 1, "random_state": 3}
MODELS = [name for name in psfit.__all__ if hasattr(getattr(psfit, name), "predict")]


@pytest.mark.parametrize("name", MODELS)
def test_all_models_take_them(name):
    kind = getattr(psfit, name)
    assert all(inspect.signature(kind).parameters[one].default is None for one in GIVEN)
    model = kind(**GIVEN)
    for copy in (clone(model), pickle.loads(pickle.dumps(model)), kind().set_params(**GIVEN)):
        assert {one: copy.get_params()[one] for one in GIVEN} == GIVEN
        assert copy.solver is None


def test_they_are_those_of_the_solver():
    direct = SparseLinearRegression(3, **GIVEN).fit(X, Y)
    inside = SparseLinearRegression(3, solver=BiCADMM(**GIVEN)).fit(X, Y)
    np.testing.assert_array_equal(direct.coef_, inside.coef_)
    assert direct.n_iter_ == inside.n_iter_ <= 300
    assert direct.result_.starts == inside.result_.starts
    chosen = SparseLinearRegressionCV([1, 2], cv=2, gammas=1.0, **GIVEN).fit(X, Y)
    assert chosen.n_iter_ <= 300


def test_a_setting_in_two_places_is_refused():
    solver = BiCADMM(exact=True, effort="low")
    with pytest.raises(ValueError, match=r"effort='high', but solver=BiCADMM\(effort='low'\)"):
        SparseLinearRegression(2, effort="high", solver=solver).fit(X, Y)
    # The same value, or one that the solver leaves open, is no contradiction.
    model = SparseLinearRegression(2, effort="low", max_iter=9, solver=solver).fit(X, Y)
    assert model.result_.status is psfit.Status.PROVED
    assert model._make_solver() == replace(solver, max_iter=9)


def test_searches_over_the_effort():
    search = GridSearchCV(SparseLinearRegression(2, certify=False), {"effort": ["low", "medium"]}, cv=2).fit(X, Y)
    assert search.best_params_["effort"] in ("low", "medium")
    nested = SparseLinearRegression(2).set_params(solver__effort="low", solver__max_iter=5)
    assert (nested.solver.effort, nested.get_params()["solver__max_iter"]) == ("low", 5)


def test_too_few_iterations_are_reported():
    wide, kinds = RNG.normal(size=(50, 40)), RNG.integers(0, 2, size=50)
    with pytest.warns(ConvergenceWarning, match="MAX_ITER"):
        SparseLogisticRegression(5, effort="low", max_iter=2).fit(wide, kinds)


def test_the_seed_changes_the_random_numbers_only():
    """Other restarts, the same model on an easy problem; and the same restarts for the same seed."""
    wide = RNG.normal(size=(60, 40))
    noise = RNG.normal(size=60)
    objectives = [
        SparseLinearRegression(8, certify=False, random_state=seed).fit(wide, noise).objective_ for seed in (None, 0, 1)
    ]
    assert objectives[0] == objectives[1]
    assert objectives[2] == pytest.approx(objectives[0], rel=0.05)


def test_threads_are_limited_and_set_back():
    before = torch.get_num_threads()
    seen = []
    model = SparseLinearRegression(2, n_jobs=1, callback=lambda progress: seen.append(torch.get_num_threads()))
    model.fit(X, Y)
    assert set(seen) == {1}
    assert torch.get_num_threads() == before
    with limit_threads(3):
        assert torch.get_num_threads() == 3
        with limit_threads(None):
            assert torch.get_num_threads() == 3
    with limit_threads(-1):
        assert torch.get_num_threads() >= 1
    assert torch.get_num_threads() == before


def test_an_error_names_each_choice_once():
    with pytest.raises(ValueError, match=r"^random_state='x' must be an integer of at least 0, or None$"):
        SparseLinearRegression(2, random_state="x").fit(X, Y)
