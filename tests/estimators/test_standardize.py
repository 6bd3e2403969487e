"""`standardize=True` is a fit to columns standardised by hand, reported in the units of X."""

import jobs
import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from psfit import BiCADMM, SparseLinearRegression, SparseLogisticRegression, Status

X, JOBS = jobs.data()
LOW = jobs.plain(JOBS)
WEIGHT = np.random.default_rng(2).integers(0, 4, size=jobs.SAMPLES).astype(float)


def fitted(name, X, weight=None, **options):
    job = JOBS[name]
    model = job.model(jobs.KAPPA, gamma=0.1, solver=job.solver, **(job.options | options))
    return model.fit(X, job.y, weight)


def check_same(model, expected, factor, offset):
    """`expected` was fitted to ``(X - offset) / factor``."""
    coef = expected.result_.coef / factor[:, None]
    assert model.support_.tolist() == expected.support_.tolist()
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-7)
    assert model.lower_bound_ == pytest.approx(expected.lower_bound_, rel=1e-5)
    np.testing.assert_allclose(model.result_.coef, coef, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(
        model.result_.intercept, expected.result_.intercept - offset @ coef, rtol=1e-5, atol=1e-8
    )


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weights"])
@pytest.mark.parametrize("name", [name for name in LOW if "class_weight" not in JOBS[name].options])
def test_standardize_is_a_standard_scaler(name, weight):
    centred = JOBS[name].options.get("fit_intercept", True)
    if centred:
        scaler = StandardScaler().fit(X, sample_weight=weight)
        offset, factor = scaler.mean_, scaler.scale_
    else:
        offset, factor = np.zeros(X.shape[1]), np.sqrt(np.average(X**2, axis=0, weights=weight))
    expected = fitted(name, (X - offset) / factor, weight)
    check_same(fitted(name, X, weight, standardize=True), expected, factor, offset)


@pytest.mark.parametrize("name", LOW)
def test_units_do_not_matter(name):
    units = 10.0 ** np.random.default_rng(3).integers(-6, 7, size=X.shape[1])
    expected = fitted(name, X, standardize=True)
    check_same(fitted(name, X * units, standardize=True), expected, units, np.zeros(X.shape[1]))


@pytest.mark.parametrize("factor", [1e-12, 1e12])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_column_in_huge_or_tiny_units_changes_neither_residuals_nor_the_proof(factor, dtype):
    """Numbers that follow the largest column leave the range of float32, and the proof with it."""
    y = X[:, 0] - X[:, 1] + np.random.default_rng(4).normal(size=len(X)) > 0
    scaled = X.copy()
    scaled[:, 1] *= factor
    model = SparseLogisticRegression(2, standardize=True, solver=BiCADMM(effort="low"))
    expected, got = (model.fit(values.astype(dtype), y).result_ for values in (X, scaled))
    assert 0 < expected.gap < 0.9
    assert got.gap == pytest.approx(expected.gap, rel=1e-3)
    assert got.support.tolist() == expected.support.tolist()
    for name in ("primal", "dual"):
        assert getattr(got.history[3], name) == pytest.approx(getattr(expected.history[3], name), rel=1e-3)


@pytest.mark.parametrize("factor", [1e-9, 1e9])
def test_recorded_residuals_do_not_depend_on_the_units_of_y(factor):
    y = X[:, 0] - X[:, 1] + np.random.default_rng(4).normal(size=len(X))
    solver = BiCADMM(effort="low", tol=1e-3)
    expected, got = (SparseLinearRegression(2, solver=solver).fit(X, t).result_ for t in (y, factor * y))
    assert got.status is expected.status is Status.CONVERGED
    for record, other in zip(got.history, expected.history, strict=True):
        assert [record.primal, record.dual, record.bilinear] == pytest.approx(
            [other.primal, other.dual, other.bilinear], rel=1e-4, abs=1e-9
        )
    assert max(got.history[-1].primal, got.history[-1].dual, got.history[-1].bilinear) <= 1e-3


def test_without_it_the_ridge_sees_the_units():
    small = X * np.where(np.arange(X.shape[1]) == 5, 1e-6, 1.0)
    assert 5 in fitted("squared", X).support_
    assert 5 not in fitted("squared", small).support_
    assert 5 in fitted("squared", small, standardize=True).support_


@pytest.mark.parametrize("model", [SparseLinearRegression, SparseLogisticRegression])
def test_constant_columns_stay_out(model):
    rows = np.column_stack([np.full(len(X), 7.0), X, np.zeros(len(X))])
    y = JOBS["squared"].y if model is SparseLinearRegression else JOBS["hinge"].y
    found = model(3, gamma=0.1, standardize=True).fit(rows, y)
    expected = model(3, gamma=0.1, standardize=True).fit(X, y)
    np.testing.assert_allclose(found.result_.coef[1:-1], expected.result_.coef, rtol=1e-6, atol=1e-9)
    assert found.objective_ == pytest.approx(expected.objective_, rel=1e-9)
