"""Warnings about targets that are constant, counts taken for classes, and labels that are probably the same."""

import warnings

import numpy as np
import pytest

import psfit

RNG = np.random.default_rng(3)
X = RNG.normal(size=(90, 4))


@pytest.mark.parametrize(
    ("model", "value", "predicted"),
    [
        (psfit.SparseLinearRegression(2), 0.3, 0.3),
        (psfit.SparseLinearRegression(2), 0.0, 0.0),
        (psfit.SparsePoissonRegression(2), 3, 3.0),
        (psfit.SparseGammaRegression(2), 0.7, 0.7),
        (psfit.SparseLinearRegressionCV([1, 2]), 5.0, 5.0),
    ],
)
def test_a_constant_target_has_no_features_and_a_warning(model, value, predicted):
    with pytest.warns(UserWarning, match="y is the same number in all samples: the model uses no feature"):
        model.fit(X, np.full(90, value))
    assert model.support_.tolist() == []
    assert not model.coef_.any()
    np.testing.assert_allclose(model.predict(X), predicted, rtol=1e-9, atol=1e-12)
    assert "no feature, at most" in str(model.result_)


def test_only_constant_targets_lose_their_features():
    y = np.column_stack([X[:, 0], np.full(90, 2.0)])
    with pytest.warns(UserWarning, match=r"y\[:, 1\] is the same number"):
        model = psfit.SparseLinearRegression(1).fit(X, y)
    assert np.flatnonzero(model.coef_[0]).tolist() == [0]
    assert not model.coef_[1].any()
    assert len(model.result_.spreads) == 1


def test_weights_of_zero_do_not_count_and_offsets_can_need_features():
    y, weight = np.full(90, 2.0), np.ones(90)
    y[:5], weight[:5] = 7.0, 0.0
    with pytest.warns(UserWarning, match="same number"):
        psfit.SparseLinearRegression(1).fit(X, y, weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = psfit.SparseLinearRegression(1).fit(X, np.full(90, 2.0), offset=X[:, 1])
        psfit.SparseLinearRegression(1, fit_intercept=False).fit(X, np.full(90, 2.0))
    assert model.support_.tolist() == [1]


def test_a_path_of_a_constant_target_is_empty():
    with pytest.warns(UserWarning, match="same number"):
        path = psfit.sparse_path(X, np.full(90, 4.0), [1, 2])
    assert not path.coefs.any()


def test_many_numbers_as_classes_are_probably_counts():
    y = np.arange(90) % 11
    with pytest.warns(UserWarning, match="11 different numbers.*for counts use SparsePoissonRegression"):
        psfit.SparseLogisticRegression(1, certify=False).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        psfit.SparseLogisticRegression(1, certify=False).fit(X, np.arange(90) % 10)
        psfit.SparseLogisticRegression(1, certify=False).fit(X, (np.arange(90) % 11).astype(str))


def test_labels_that_differ_only_in_case_or_spaces_are_shown_with_quotes():
    y = np.where(X[:, 0] > 0, "yes", "no").astype(object)
    y[0] = " yes"
    with pytest.warns(UserWarning, match="y holds the labels ' yes', 'yes', which differ only in case or spaces"):
        psfit.SparseLogisticRegression(1, certify=False).fit(X, y)
