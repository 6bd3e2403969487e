"""Predictions for known predictors are those of the model, for everything that a scorer may ask."""

import numpy as np
import pytest
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import get_scorer

import psfit
from psfit.estimators.predictors import Predictions

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4))
Y = X[:, 0] - X[:, 2] + 0.3 * rng.normal(size=60)
CLASSES = np.array(["low", "middle", "high"])[np.digitize(Y, [-0.7, 0.7])]
FITS = {
    "numbers": (psfit.SparseLinearRegression(2), Y, ["r2", "neg_mean_absolute_error"]),
    "two targets": (psfit.SparseLinearRegression(2), np.column_stack([Y, -Y]), ["r2"]),
    "counts": (psfit.SparsePoissonRegression(2), np.exp(Y).round(), ["neg_mean_poisson_deviance"]),
    "two classes": (psfit.SparseLogisticRegression(2), Y > 0, ["accuracy", "roc_auc", "neg_log_loss"]),
    "two of softmax": (psfit.SparseSoftmaxRegression(2), Y > 0, ["accuracy", "roc_auc", "neg_log_loss"]),
    "classes": (psfit.SparseLogisticRegression(3), CLASSES, ["accuracy", "neg_log_loss", "roc_auc_ovr"]),
    "margins": (psfit.SparseSVC(2), Y > 0, ["accuracy", "roc_auc"]),
}
METHODS = ("predict", "decision_function", "predict_proba", "predict_log_proba")


@pytest.mark.parametrize("name", FITS)
def test_predictions_are_those_of_the_model(name):
    model, y, scorings = FITS[name]
    model.fit(X, y)
    known = Predictions(model.learned_.target, X @ model.result_.coef + model.result_.intercept)
    assert is_classifier(known) == is_classifier(model)
    assert is_regressor(known) == is_regressor(model)
    for method in METHODS:
        assert hasattr(known, method) == hasattr(model, method)
        if hasattr(model, method):
            found, expected = getattr(known, method)(None), getattr(model, method)(X)
            assert found.dtype == expected.dtype
            if found.dtype.kind == "f":
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
            else:
                np.testing.assert_array_equal(found, expected)
    weights = np.linspace(0.5, 2, 60)
    assert known.score(None, y, weights) == pytest.approx(model.score(X, y, weights))
    for scoring in scorings:
        assert get_scorer(scoring)(known, None, y) == pytest.approx(get_scorer(scoring)(model, X, y))
