"""The automatic gamma, gammas up to infinity, and the gammas that cross-validation tries."""

import pickle
from itertools import combinations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, PoissonRegressor

import psfit
from psfit import (
    BiCADMM,
    GridSpec,
    SparseGammaRegression,
    SparseLinearRegression,
    SparseLinearRegressionCV,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
    SparsePoissonRegression,
    SparseSoftmaxRegression,
    SparseSVC,
    SparseTweedieRegression,
    sparse_path,
    stability_selection,
)

RNG = np.random.default_rng(5)
X = RNG.normal(size=(80, 6)) + 2
SIGNAL = X[:, 0] - X[:, 3]
NUMBERS = SIGNAL + RNG.normal(size=80)
KINDS = (SIGNAL + RNG.normal(size=80) > 0).astype(int)
THREE = np.digitize(NUMBERS, [-0.5, 1.0])
COUNTS = RNG.poisson(np.exp(SIGNAL / 3))
LOW = BiCADMM(effort="low")
MODELS = {
    "squared": (SparseLinearRegression(2), NUMBERS),
    "two targets": (SparseLinearRegression(2), np.column_stack([NUMBERS, -2 * NUMBERS])),
    "no intercept": (SparseLinearRegression(2, fit_intercept=False), NUMBERS),
    "huber": (SparseLinearRegression(2, loss="huber"), NUMBERS),
    "logistic": (SparseLogisticRegression(2), KINDS),
    "softmax": (SparseSoftmaxRegression(3), THREE),
    "squared hinge": (SparseSVC(2), KINDS),
    "hinge": (SparseSVC(2, loss="hinge"), KINDS),
    "poisson": (SparsePoissonRegression(2), COUNTS),
    "gamma": (SparseGammaRegression(2), np.exp(NUMBERS)),
    "tweedie": (SparseTweedieRegression(2), np.maximum(NUMBERS, 0)),
}


@pytest.mark.parametrize("name", MODELS)
def test_units_of_columns_change_nothing(name):
    """Neither the support, nor the gamma, nor predictions."""
    model, y = MODELS[name]
    model.set_params(solver=LOW, certify=False)
    units = 10.0 ** np.array([-3, 3, 0, -2, 1, 2])
    expected = model.fit(X, y)
    support, gamma, objective, predicted = expected.support_, expected.gamma_, expected.objective_, expected.predict(X)
    got = model.fit(X * units, y)
    assert got.support_.tolist() == support.tolist()
    assert got.gamma_ == gamma
    assert got.objective_ == pytest.approx(objective, rel=1e-8)
    np.testing.assert_allclose(got.predict(X * units), predicted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_the_number_gives_the_same_model(name, tmp_path):
    model, y = MODELS[name]
    model.set_params(solver=LOW, certify=False, gamma="auto", standardize=False).fit(X, y)
    assert model.result_.standardize
    psfit.save(model, tmp_path / "model.psfit")
    for kept in (psfit.load(tmp_path / "model.psfit"), pickle.loads(pickle.dumps(model))):
        assert (kept.gamma, kept.gamma_, kept.result_.standardize) == ("auto", model.gamma_, True)
    coef = model.result_.coef
    given = model.set_params(gamma=model.gamma_, standardize=True).fit(X, y)
    np.testing.assert_array_equal(given.result_.coef, coef)


def test_the_ridge_is_a_share_of_the_curvature():
    """By hand: a thousandth of 2 per sample for the square, a ten-thousandth of p (1 - p) for logistic regression."""
    weight = RNG.uniform(0.5, 2, size=80)
    squared = SparseLinearRegression(2, solver=LOW).fit(X, NUMBERS, weight)
    assert squared.gamma_ == pytest.approx(1 / (1e-3 * 2 * weight.sum()), rel=1e-5)
    share = np.average(KINDS, weights=weight)
    logistic = SparseLogisticRegression(2, solver=LOW).fit(X, KINDS, weight)
    assert logistic.gamma_ == pytest.approx(1 / (1e-4 * share * (1 - share) * weight.sum()), rel=1e-5)
    poisson = SparsePoissonRegression(2, solver=LOW).fit(X, COUNTS, offset=np.full(80, 0.7))
    assert poisson.gamma_ == pytest.approx(1 / (1e-4 * COUNTS.sum()), rel=1e-5)


@pytest.mark.parametrize("name", ["squared", "huber", "logistic", "softmax", "squared hinge", "poisson", "tweedie"])
def test_it_costs_less_than_a_thousandth_of_the_loss(name):
    """The loss on the support, beside that of a fit to these columns with hardly any ridge."""
    model, y = MODELS[name]
    model.set_params(solver=LOW, certify=False, gamma="auto", standardize=False).fit(X, y)
    squares = np.square(model.result_.coef * X.std(axis=0)[:, None]).sum()
    loss = model.objective_ - squares / (2 * model.gamma_)
    least = model.set_params(gamma=1e9).fit(X[:, model.support_], y).objective_
    assert least * (1 - 1e-9) <= loss <= least * 1.001


@pytest.mark.parametrize("grid", [GridSpec(nodes=3), GridSpec(nodes=2, blocks=2)])
def test_all_grids_choose_the_same_gamma(grid):
    expected = SparseLogisticRegression(2, solver=LOW).fit(X, KINDS)
    model = SparseLogisticRegression(2, solver=LOW, grid=grid).fit(X, KINDS)
    assert model.gamma_ == expected.gamma_
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)


def test_paths_and_halves_use_it():
    model = SparseLinearRegression(2, solver=LOW).fit(X, NUMBERS)
    path = sparse_path(X, NUMBERS, [1, 2])
    assert path.gammas.tolist() == [model.gamma_]
    assert path.settings["standardize"]
    assert path.objectives[0, 1] == pytest.approx(model.objective_, rel=1e-9)
    stable = stability_selection(X * np.array([1e-6, 1, 1, 1, 1, 1]), NUMBERS, [2], resamples=6, random_state=0)
    assert 0 in stable.support


def test_cross_validation_tunes_gamma():
    """Three ridges, 0.1 %, 1 % and 10 % of the curvature; one without folds. Scores are those of these gammas."""
    for model, y, curvature in (
        (SparseLinearRegressionCV([1, 2]), NUMBERS, 2 * 80),
        (SparseLogisticRegressionCV([1, 2], solver=LOW), KINDS, 80 * KINDS.mean() * (1 - KINDS.mean())),
    ):
        model.set_params(certify=False).fit(X, y)
        np.testing.assert_allclose(model.selection_.gammas, 1 / (np.array([1e-3, 1e-2, 1e-1]) * curvature), rtol=1e-5)
        scores, gamma, coef = model.selection_.scores, model.gamma_, model.coef_
        chosen = model.set_params(gammas=model.selection_.gammas.tolist(), standardize=True).fit(X, y)
        np.testing.assert_allclose(chosen.selection_.scores, scores, rtol=1e-9)
        if chosen.gamma_ == gamma:
            np.testing.assert_array_equal(chosen.coef_, coef)
    plain = SparseLinearRegression(2, solver=LOW).fit(X, NUMBERS)
    assert SparseLinearRegressionCV([1, 2], criterion="bic").fit(X, NUMBERS).selection_.gammas.tolist() == [
        plain.gamma_
    ]


def enumerate_supports(kappa, value):
    """The least value over all supports of the columns, with the support."""
    return min((value(list(support)), list(support)) for support in combinations(range(X.shape[1]), kappa))


def residuals(support):
    A = np.column_stack([X[:, support], np.ones(len(X))])
    return float(np.square(A @ np.linalg.lstsq(A, NUMBERS, rcond=None)[0] - NUMBERS).sum())


def log_loss(support):
    fitted = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(X[:, support], KINDS)
    probability = expit(fitted.decision_function(X[:, support]))
    return float(-np.log(np.where(KINDS == 1, probability, 1 - probability)).sum())


def poisson_loss(support):
    fitted = PoissonRegressor(alpha=0, tol=1e-12, max_iter=10_000).fit(X[:, support], COUNTS)
    mean = fitted.predict(X[:, support])
    return float((mean - COUNTS * np.log(mean)).sum())


@pytest.mark.parametrize("solver", [None, BiCADMM(exact=True)], ids=["default", "exact"])
@pytest.mark.parametrize(
    ("model", "y", "oracle"),
    [
        (SparseLinearRegression(2), NUMBERS, residuals),
        (SparseLogisticRegression(2), KINDS, log_loss),
        (SparsePoissonRegression(2), COUNTS, poisson_loss),
    ],
    ids=["squared", "logistic", "poisson"],
)
def test_without_a_ridge_it_is_the_best_of_all_supports(model, y, oracle, solver):
    best, support = enumerate_supports(2, oracle)
    model.set_params(gamma=float("inf"), solver=solver).fit(X, y)
    assert model.gamma_ == np.inf
    assert model.objective_ == pytest.approx(best, rel=1e-6)
    assert model.support_.tolist() == support
    assert model.lower_bound_ <= best + 1e-9 * abs(best)
    if solver is not None or oracle is residuals:
        assert model.gap_ <= 1e-4


def test_equal_columns_without_a_ridge():
    """Rounding must not decide: the loss is that of the columns without their copies."""
    twice = np.column_stack([X, X[:, 0], X[:, 3]])
    model = SparseLinearRegression(4, gamma=float("inf")).fit(twice, NUMBERS)
    assert model.objective_ == pytest.approx(enumerate_supports(4, residuals)[0], rel=1e-9)
    assert np.abs(model.coef_).max() < 10


@pytest.mark.parametrize("model", [SparseLogisticRegression(2), SparseSoftmaxRegression(4)])
def test_separable_classes_without_a_ridge_are_reported(model):
    model.set_params(gamma=float("inf"), solver=LOW, certify=False)
    with pytest.warns(ConvergenceWarning, match=r"separate the classes perfectly.*gamma='auto'"):
        model.fit(X, SIGNAL > 0)
    assert np.isfinite(model.coef_).all()
    assert model.score(X, SIGNAL > 0) == 1
    assert model.set_params(gamma="auto").fit(X, SIGNAL > 0).score(X, SIGNAL > 0) > 0.95


def test_paths_and_files_without_a_ridge(tmp_path):
    path = sparse_path(X, NUMBERS, [2], gammas=[float("inf"), 1e-3, 1e300])
    assert path.objectives[0, 0] == pytest.approx(enumerate_supports(2, residuals)[0], rel=1e-9)
    # An infinite gamma leaves a ridge of 1e-12 of the curvature.
    assert path.objectives[2, 0] == pytest.approx(path.objectives[0, 0], rel=1e-10)
    assert path.objectives[1, 0] > 1.01 * path.objectives[0, 0]
    model = SparseLinearRegressionCV([1, 2], gammas=[1.0, float("inf")]).fit(X, NUMBERS)
    psfit.save(model, tmp_path / "model.psfit")
    loaded = psfit.load(tmp_path / "model.psfit")
    assert loaded.gammas == [1.0, float("inf")]
    assert loaded.gamma_ == model.gamma_
