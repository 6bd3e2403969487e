"""The figures in docs/faq.md are true."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LogisticRegression, Ridge, lars_path
from sklearn.preprocessing import StandardScaler

from psfit import BiCADMM, SparseLinearRegression, SparseLogisticRegression, SparseLogisticRegressionCV, SparseSVC


@pytest.fixture(scope="module")
def tumours():
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def patients():
    X, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def test_why_the_gap_is_wide():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 200))
    y = X[:, 3] - X[:, 9] + 0.1 * rng.normal(size=50)
    wide = SparseLinearRegression(2, gamma=10.0).fit(X, y)
    tight = SparseLinearRegression(2, gamma=0.01).fit(X, y)
    searched = SparseLinearRegression(2, gamma=10.0, solver=BiCADMM(exact=True, time_limit=60)).fit(X, y)
    for model in (wide, tight, searched):
        assert model.support_.tolist() == [3, 9]
    assert wide.gap_ == pytest.approx(0.74, abs=0.02)
    assert tight.gap_ < 1e-9
    assert searched.gap_ < 1e-4


def test_the_lasso_shrinks(patients):
    X, y = patients
    _, _, coefs = lars_path(X, y - y.mean(), method="lasso", max_iter=4)
    lasso = coefs[:, np.flatnonzero(np.count_nonzero(coefs, axis=0) <= 2)[-1]]
    model = SparseLinearRegression(2, gamma=1e4).fit(X, y)
    assert np.flatnonzero(lasso).tolist() == model.support_.tolist() == [2, 8]
    ratio = np.square(X @ lasso + y.mean() - y).sum() / np.square(model.predict(X) - y).sum()
    assert ratio == pytest.approx(1.2, abs=0.01)
    assert np.abs(lasso).sum() / np.abs(model.coef_).sum() == pytest.approx(0.5, abs=0.03)


def test_without_a_limit_it_is_scikit_learn(tumours, patients):
    X, y = tumours
    dense = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(SparseLogisticRegression(30, gamma=0.5).fit(X, y).coef_, dense.coef_, atol=1e-5)
    X, y = patients
    np.testing.assert_allclose(SparseLinearRegression(10, gamma=0.25).fit(X, y).coef_, Ridge(2.0).fit(X, y).coef_)


def test_twins_share_their_effect_under_a_moderate_ridge():
    rng = np.random.default_rng(0)
    cause = rng.normal(size=300)
    twins = cause[:, None] + 1e-3 * rng.normal(size=(300, 2))
    X = np.hstack([twins, rng.normal(size=(300, 3))])
    y = cause + 0.1 * rng.normal(size=300)
    np.testing.assert_allclose(SparseLinearRegression(2).fit(X, y).coef_[:2], 0.5, atol=0.02)
    apart = SparseLinearRegression(2, gamma=1e8).fit(X, y).coef_[:2]
    assert abs(apart[0] - apart[1]) > 0.5


def test_units_do_not_matter_when_standardised(tumours):
    X, y = tumours
    plain = SparseLogisticRegression(5, standardize=True).fit(X, y)
    other = SparseLogisticRegression(5, standardize=True).fit(X * np.logspace(-5, 5, 30), y)
    assert other.support_.tolist() == plain.support_.tolist()
    assert other.objective_ == pytest.approx(plain.objective_, rel=1e-9)


def test_a_rare_class():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 20))
    y = (rng.random(2000) < 1 / (1 + np.exp(4 - X[:, 0] - X[:, 1]))).astype(int)
    assert y.mean() == pytest.approx(0.04, abs=0.005)
    plain = SparseLogisticRegression(2).fit(X, y)
    balanced = SparseLogisticRegression(2, class_weight="balanced").fit(X, y)
    assert plain.support_.tolist() == balanced.support_.tolist() == [0, 1]
    assert plain.predict(X)[y == 1].mean() == 0
    assert balanced.predict(X)[y == 1].mean() == pytest.approx(0.73, abs=0.03)
    assert plain.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=1e-6)
    assert balanced.predict_proba(X)[:, 1].mean() == pytest.approx(0.37, abs=0.02)
    chosen = SparseLogisticRegressionCV([1, 2, 3], scoring="average_precision", cv=3).fit(X, y)
    assert chosen.kappa_ in (2, 3)


def test_what_other_tools_make_of_it(tumours):
    X, y = tumours
    assert not hasattr(SparseSVC(3), "predict_proba")
    calibrated = CalibratedClassifierCV(SparseSVC(3), cv=3).fit(X, y)
    assert np.mean(calibrated.predict(X) == y) > 0.9
    kept = SelectFromModel(SparseLogisticRegression(5), threshold=1e-12).fit(X, y)
    assert kept.transform(X).shape[1] == 5
