"""A fit that fails leaves the estimator as it was: it still predicts, and knows its old result."""

import copy

import numpy as np
import pandas as pd
import pytest

from psfit import (
    SparseLinearRegression,
    SparseLinearRegressionCV,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
    SparsePoissonRegression,
)

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(60, 4)), columns=list("abcd"))
Y = (X["a"] - X["c"]).to_numpy()
# Another number of features, without names.
OTHER = rng.normal(size=(60, 6))
MODELS = {
    "linear": (SparseLinearRegression(2), Y, np.column_stack([Y, Y])),
    "linear CV": (SparseLinearRegressionCV([1, 2], cv=2), Y, np.column_stack([Y, Y])),
    "logistic": (SparseLogisticRegression(2), Y > 0, rng.choice(["x", "y", "z"], size=60)),
    "logistic CV": (SparseLogisticRegressionCV([1, 2], cv=2), Y > 0, rng.choice(["x", "y", "z"], size=60)),
    "counts": (SparsePoissonRegression(2), np.exp(Y).round(), np.arange(60)),
}


class BrokenError(Exception):
    """What the callback of the second fit raises."""


def break_off(progress):
    if "polish" in progress.phase:
        raise BrokenError


def facts(model):
    """All that was learned, without the parameters."""
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


def require_unchanged(model, before, predicted):
    after = facts(model)
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    np.testing.assert_array_equal(model.predict(X), predicted)


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_that_breaks_off_changes_nothing(name):
    model, y, other = copy.deepcopy(MODELS[name])
    model.fit(X, y)
    before, predicted = facts(model), model.predict(X)
    with pytest.raises(BrokenError):
        model.set_params(callback=break_off).fit(OTHER, other)
    require_unchanged(model, before, predicted)


@pytest.mark.parametrize("name", MODELS)
def test_samples_that_are_refused_change_nothing(name):
    model, y, other = copy.deepcopy(MODELS[name])
    model.fit(X, y)
    before, predicted = facts(model), model.predict(X)
    bad = OTHER.copy()
    bad[7, 5] = np.nan
    for samples, target in ((bad, other), (OTHER, other[:-1]), (OTHER, None)):
        with pytest.raises(ValueError, match=r"NaN|inconsistent|requires y"):
            model.fit(samples, target)
        require_unchanged(model, before, predicted)


def test_a_first_fit_that_fails_leaves_nothing():
    model = SparseLogisticRegression(2)
    with pytest.raises(ValueError, match="inconsistent"):
        model.fit(X, [0, 1])
    assert facts(model) == {}
    assert not hasattr(model, "classes_")
    assert not hasattr(model, "n_features_in_")
