"""The Gram matrix is the largest product of a squared loss: every row enters it once, however often it is needed."""

import numpy as np
import pytest

from psfit import BiCADMM, GridSpec, SparseLinearRegression, SparseLinearRegressionCV, sparse_path
from psfit.data import curvature
from psfit.data.strip import DenseStrip

SAMPLES, FEATURES, TARGETS = 120, 9, 6
rng = np.random.default_rng(0)
X = rng.normal(size=(SAMPLES, FEATURES)) + 3
Y = X[:, :TARGETS] - 2 * X[:, 1 : TARGETS + 1] + rng.normal(size=(SAMPLES, TARGETS))
LOW = BiCADMM(effort="low")


@pytest.fixture
def multiplied(monkeypatch):
    """The numbers of rows of all products ``A'WA`` over all columns."""
    rows = []
    product = DenseStrip.gram

    def counted(strip, weights):
        # Refits multiply the columns of a support; only products of all columns are expensive.
        if strip.shape[1] >= X.shape[1]:
            rows.append(strip.shape[0])
        return product(strip, weights)

    monkeypatch.setattr(DenseStrip, "gram", counted)
    return rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("nodes", [1, 3, 20], ids="nodes={}".format)
@pytest.mark.parametrize("exact", [False, True], ids=["", "exact"])
def test_one_product_serves_iteration_and_proof_of_all_targets(dtype, nodes, exact, multiplied):
    solver = BiCADMM(effort="low", exact=exact)
    SparseLinearRegression(2, grid=GridSpec(nodes=nodes, backend="serial"), solver=solver).fit(X.astype(dtype), Y)
    assert sum(multiplied) == SAMPLES


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_product_serves_all_gammas_and_targets_of_a_path(dtype, multiplied):
    sparse_path(X.astype(dtype), Y, [1, 2, 3], gammas=[0.1, 1.0, 10.0], solver=LOW)
    assert sum(multiplied) == SAMPLES


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("criterion", ["cv", "bic"])
def test_products_of_a_choice_do_not_grow_with_gammas(dtype, criterion, multiplied):
    """Folds, or the path of a criterion, share one product with the final fit."""
    model = SparseLinearRegressionCV([1, 2], gammas=[0.1, 1.0, 10.0], criterion=criterion, solver=LOW)
    model.fit(X.astype(dtype), Y)
    assert sum(multiplied) == SAMPLES


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("gammas", [[1.0], [0.1, 1.0, 10.0]], ids=["one gamma", "three"])
def test_the_smallest_eigenvalue_is_found_once_for_all_targets_and_gammas(gammas, fit_intercept, monkeypatch):
    sizes, least = [], curvature.least_eigenvalue

    def counted(M):
        sizes.append(len(M))
        return least(M)

    monkeypatch.setattr(curvature, "least_eigenvalue", counted)
    sparse_path(X, Y, [2, 3], gammas=gammas, fit_intercept=fit_intercept, solver=LOW)
    SparseLinearRegression(2, fit_intercept=fit_intercept, solver=LOW).fit(X, Y)
    assert sizes.count(FEATURES) == 2


def test_folds_and_the_final_fit_come_from_one_pass(monkeypatch):
    """Also where a fit that is certified follows them: the rows of all folds are multiplied once, in float64."""
    rows, product = [], DenseStrip.gram

    def counted(strip, weights):
        rows.append((strip.shape[0], strip.values.dtype))
        return product(strip, weights)

    monkeypatch.setattr(DenseStrip, "gram", counted)
    SparseLinearRegressionCV([1, 2], cv=4, solver=LOW).fit(X.astype(np.float32), Y)
    assert sorted(count for count, _ in rows) == [SAMPLES // 4] * 4
    assert {str(dtype) for _, dtype in rows} == {"torch.float64"}


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_shared_matrix_proves_what_each_target_proves_alone(fit_intercept):
    weight = rng.uniform(0.5, 2, SAMPLES)
    together = SparseLinearRegression(2, fit_intercept=fit_intercept, solver=LOW).fit(X.astype(np.float32), Y, weight)
    for k in range(TARGETS):
        alone = SparseLinearRegression(2, fit_intercept=fit_intercept, solver=LOW).fit(X, Y[:, k], weight)
        assert together.result_.objectives[k] == pytest.approx(alone.objective_, rel=1e-6)
        assert together.result_.lower_bounds[k] == pytest.approx(alone.lower_bound_, rel=1e-5)
