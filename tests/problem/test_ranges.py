"""Numbers far from one: what can be computed is computed, the rest is refused before the fit."""

from functools import cache

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from psfit import (
    BiCADMM,
    Dense,
    Problem,
    Source,
    SparseLinearRegression,
    SparseLinearRegressionCV,
    SparseLogisticRegression,
    SparsePoissonRegression,
    SparseSoftmaxRegression,
    SparseSVC,
    solve,
    sparse_path,
)
from psfit.common.status import Status
from psfit.losses import Squared
from psfit.pipeline.path import solve_path

MODELS = {
    "squared": lambda: SparseLinearRegression(2, standardize=True),
    "huber": lambda: SparseLinearRegression(2, loss="huber", standardize=True),
    "logistic": lambda: SparseLogisticRegression(2, standardize=True),
    "softmax": lambda: SparseSoftmaxRegression(2, standardize=True),
    "hinge": lambda: SparseSVC(2, loss="hinge", standardize=True),
    "squared_hinge": lambda: SparseSVC(2, standardize=True),
    "poisson": lambda: SparsePoissonRegression(2, standardize=True),
}


def draw(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 6))
    signal = X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=40)
    if name in ("squared", "huber"):
        return X, signal
    return X, rng.poisson(np.exp(0.3 * signal)) if name == "poisson" else (signal > 0).astype(int)


@cache
def plain_fit(name):
    return MODELS[name]().fit(*draw(name))


@pytest.mark.parametrize("exponent", [-90, 90])
@pytest.mark.parametrize("name", MODELS)
def test_a_common_unit_of_all_columns_changes_nothing(name, exponent):
    X, y = draw(name)
    plain, other = plain_fit(name), MODELS[name]().fit(X * 10.0**exponent, y)
    assert other.objective_ == pytest.approx(plain.objective_, rel=1e-8)
    assert other.lower_bound_ == pytest.approx(plain.lower_bound_, rel=1e-2, abs=1e-6)
    assert list(other.support_) == list(plain.support_)


@pytest.mark.parametrize("exponent", [-20, 30])
@pytest.mark.parametrize("name", MODELS)
def test_float32_columns_may_have_any_unit(name, exponent):
    X, y = draw(name)
    X = X.astype(np.float32)
    scaled = X * np.float32(10.0**exponent)
    plain = MODELS[name]().fit(scaled.astype(np.float64), y)
    assert MODELS[name]().fit(scaled, y).objective_ == pytest.approx(plain.objective_, rel=1e-6)


@pytest.mark.parametrize("standardize", [True, False])
def test_float32_columns_far_from_zero_are_not_taken_for_constant(standardize):
    rng = np.random.default_rng(0)
    latitude = (47.37 + 3e-4 * rng.normal(size=200)).astype(np.float32)
    X = np.column_stack([latitude, rng.normal(size=200)]).astype(np.float32)
    y = 2 * (latitude.astype(float) - 47.37) / 3e-4 + 0.1 * rng.normal(size=200)
    model = SparseLinearRegression(1, gamma=1e8, standardize=standardize).fit(X, y)
    A = np.column_stack([X[:, 0].astype(float) - 47.37, np.ones(200)])
    pays = 0.5e-8 * (X[:, 0].astype(float).var() if standardize else 1.0)
    beta = np.linalg.solve(A.T @ A + np.diag([pays, 0.0]), A.T @ y)
    best = np.square(A @ beta - y).sum() + pays * beta[0] ** 2
    assert list(model.support_) == [0]
    assert model.objective_ == pytest.approx(best, rel=1e-6)
    assert model.lower_bound_ <= best * (1 + 1e-9)


def test_bounds_of_float32_data_count_all_digits_of_the_targets():
    """The rounding of centred targets to float32 would raise the bound by about 1e-8 of the objective."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(30, 4)).astype(np.float32)
        y = rng.normal(size=30) + 1000
        model = SparseLinearRegression(4, gamma=1e6).fit(X, y)
        A = np.column_stack([X.astype(float), np.ones(30)])
        beta = np.linalg.solve(A.T @ A + 0.5e-6 * np.diag([1, 1, 1, 1, 0]), A.T @ y)
        best = np.square(A @ beta - y).sum() + 0.5e-6 * np.square(beta[:4]).sum()
        assert model.objective_ == pytest.approx(best, rel=1e-11)
        assert model.lower_bound_ <= best * (1 + 1e-11)


@pytest.mark.parametrize("size", [1e-250, 1e-140, 1e140, 1e250])
@pytest.mark.parametrize("name", MODELS)
def test_columns_beyond_the_range_are_refused(name, size):
    X, y = draw(name)
    X[:, 3] *= size
    with pytest.raises(ValueError, match=r"X, column 3: values of size .* change its unit"):
        MODELS[name]().fit(X, y)


@pytest.mark.parametrize("size", [1e-300, 1e-150, 1e150, 1e300])
@pytest.mark.parametrize("name", ["squared", "huber", "poisson"])
def test_targets_beyond_the_range_are_refused(name, size):
    X, y = draw(name)
    with pytest.raises(ValueError, match=r"y: values of size .* change its unit"):
        MODELS[name]().fit(X, y * size)


@pytest.mark.parametrize("size", [1e-320, 1e-150, 1e150, 1e300])
@pytest.mark.parametrize("name", MODELS)
def test_weights_beyond_the_range_are_refused(name, size):
    X, y = draw(name)
    weight = np.ones(40)
    weight[7] = size
    with pytest.raises(ValueError, match="sample_weight: values of size"):
        MODELS[name]().fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("name", MODELS)
def test_a_ridge_that_is_nearly_nothing_does_not_spoil_the_answer(name):
    X, y = draw(name)
    if name in ("logistic", "softmax", "hinge", "squared_hinge"):
        y = y ^ (np.random.default_rng(1).random(40) < 0.3)
    weak = MODELS[name]().set_params(gamma=1e9).fit(X, y)
    for gamma in (1e12, 1e300):
        weaker = MODELS[name]().set_params(gamma=gamma).fit(X, y)
        assert weaker.objective_ == pytest.approx(weak.objective_, rel=1e-6)
        assert weaker.gap_ >= 0
        assert weaker.lower_bound_ <= weak.objective_


def test_an_objective_that_is_no_number_never_leaves_the_fit():
    class Undefined(Squared):
        quadratic = False

        def value(self, eta, b):
            return super().value(eta, b) + torch.nan

    source = Source(
        Dense(torch.randn(20, 3).double()), torch.randn(20, 1).double(), torch.ones(20, 1, dtype=torch.float64)
    )
    with pytest.raises(ArithmeticError, match="Rescale"):
        solve(Problem(Undefined(), (2,), 1.0), source)
    with pytest.raises(ArithmeticError, match="Rescale"):
        solve_path(Problem(Undefined(), (2,), 1.0), source, [1, 2], [1.0])


@pytest.fixture
def beyond():
    """Columns and weights that can be computed with, but not under the ridge of a gamma of 1e-300."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 3)) * [1e-60, 1e60, 1.0]
    return X, rng.normal(size=40) * 1e-60, np.full(40, 1e60)


def test_coefficients_that_are_no_numbers_never_leave_a_path(beyond):
    X, y, weight = beyond
    with pytest.raises(ArithmeticError, match="gamma"):
        sparse_path(X, y, [1, 2], gammas=1e-300, sample_weight=weight)
    with pytest.raises(ArithmeticError, match="gamma"):
        SparseLinearRegressionCV([1, 2], gammas=1e-300, cv=2).fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("command", [("fit", "--kappa", 1, "--gamma", 1e-300), ("path", "--gammas", 1e-300)])
def test_commands_say_in_one_line_that_numbers_were_left(call, beyond, tmp_path, command):
    X, y, weight = beyond
    np.savez(tmp_path / "data.npz", X=X, y=y, w=weight)
    name, *options = command
    code, _, said = call(name, tmp_path / "data.npz", "--weight", "w", "--quiet", *options)
    assert code == 1
    assert said.startswith("psfit: error: the fit left the range")
    assert said.count("\n") == 1


def test_exact_mode_says_so_where_rounding_hides_the_proof():
    """With a very small ridge, the rounding error of a slope can lower the bound by any amount."""
    X, y = draw("logistic")
    y = y ^ (np.random.default_rng(1).random(40) < 0.3)
    model = SparseLogisticRegression(2, gamma=1e40, solver=BiCADMM(exact=True))
    with pytest.warns(ConvergenceWarning, match="ROUNDING"):
        model.fit(X, y)
    assert model.result_.status is Status.ROUNDING
    assert model.lower_bound_ <= model.objective_
    assert model.gap_ > 1e-4
