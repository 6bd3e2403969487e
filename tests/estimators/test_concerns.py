"""An answer that may be worse than expected comes with one warning, which names the remedy."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from psfit import (
    BiCADMM,
    SparseLinearRegression,
    SparseLinearRegressionCV,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
    Status,
    sparse_path,
    stability_selection,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 30))
Y = X[:, :6].sum(axis=1) + 3 * rng.normal(size=60)
LABELS = Y > 0
# So few iterations that none can settle, and a ridge so weak that nothing much is proved.
BRIEF = BiCADMM(effort="low", max_iter=4)
LOOSE = {"gamma": 100.0, "solver": BRIEF}


def heard(action):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    assert all(issubclass(one.category, ConvergenceWarning) for one in caught)
    return [str(one.message) for one in caught]


def test_a_limit_of_iterations_is_said_once_with_the_remedy():
    model = SparseLogisticRegression(3, **LOOSE)
    said = heard(lambda: model.fit(X, LABELS))
    assert model.result_.status is Status.MAX_ITER
    assert len(said) == 1
    assert "MAX_ITER" in said[0]
    assert "raise max_iter" in said[0]


def test_the_warning_points_at_the_line_that_called_fit():
    with pytest.warns(ConvergenceWarning) as caught:
        SparseLogisticRegression(3, **LOOSE).fit(X, LABELS)
    assert caught[0].filename == __file__


def test_numbers_out_of_range_are_said():
    solver = BiCADMM(rho_c=1e-300, rho_b=1e290)
    model = SparseLinearRegression(2, gamma=100.0, certify=False, solver=solver)
    said = heard(lambda: model.fit(X, 1e90 * Y))
    assert model.result_.status is Status.DIVERGED
    assert len(said) == 1
    assert "Rescale y" in said[0]


def test_a_search_that_ran_out_of_time_is_said():
    solver = BiCADMM(exact=True, time_limit=1e-6)
    model = SparseLogisticRegression(3, gamma=100.0, solver=solver)
    said = heard(lambda: model.fit(X, LABELS))
    assert model.result_.status is Status.TIME_LIMIT
    assert len(said) == 1
    assert "raise time_limit" in said[0]


def test_healthy_and_proved_answers_are_not_doubted():
    assert heard(lambda: SparseLinearRegression(3).fit(X, Y)) == []
    # The proof is as good as it can be, so that it does not matter how the iteration ended.
    tall = SparseLinearRegression(30, gamma=1.0, solver=BRIEF)
    assert heard(lambda: tall.fit(X, Y)) == []
    assert tall.result_.status is Status.MAX_ITER
    # A user who stops a fit needs no warning.
    stopped = SparseLogisticRegression(3, callback=lambda progress: True)
    assert heard(lambda: stopped.fit(X, LABELS)) == []
    assert stopped.result_.status is Status.INTERRUPTED


@pytest.mark.parametrize("criterion", ["cv", "bic"])
def test_a_choice_warns_once_for_all_folds_and_the_final_fit(criterion):
    model = SparseLogisticRegressionCV([2, 3], gammas=[1.0, 10.0], criterion=criterion, cv=3, solver=BRIEF)
    said = heard(lambda: model.fit(X, LABELS))
    assert len(said) == 1
    assert ("3 of 3 folds" if criterion == "cv" else "2 of 2 paths") in said[0]
    assert said[0].count("MAX_ITER") == 2
    assert heard(lambda: SparseLinearRegressionCV([1, 2], cv=3).fit(X, Y)) == []


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_a_path_warns_once(loss):
    made = []
    said = heard(lambda: made.append(sparse_path(X, LABELS, [1, 2, 3], gammas=[1.0, 100.0], loss=loss, solver=BRIEF)))
    assert len(said) == 1
    assert "2 of 2 paths: MAX_ITER" in said[0]
    assert made[0].ended is Status.MAX_ITER
    assert "raise max_iter" in str(made[0])
    assert heard(lambda: sparse_path(X, Y, [1, 2])) == []


def test_stability_selection_warns_once():
    said = heard(lambda: stability_selection(X, LABELS, [2], loss="logistic", resamples=2, solver=BRIEF))
    assert len(said) == 1
    assert "2 of 2 resamples: MAX_ITER" in said[0]


def test_a_refit_that_is_no_minimum_is_in_text_and_concerns():
    result = SparseLinearRegression(2).fit(X, Y).result_
    assert result.residual < 1e-9
    assert result.concerns == ()
    assert "refit" not in str(result).splitlines()[-1].split()[0]
    poor = replace(result, residual=2.5e-4)
    assert len(poor.concerns) == 1
    assert "2.5e-04" in poor.concerns[0]
    assert "gamma" in poor.concerns[0]
    assert "2.5e-04" in str(poor)
    unknown = replace(result, residual=float("nan"))
    assert len(unknown.concerns) == 1
