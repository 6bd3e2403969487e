"""An offset is added to the predictors: of the fit, of every search and proof, and of predictions and scores."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse
import sklearn
import torch
from enumeration import fit_hinge
from oracles import loss_gradient, loss_value
from scipy import optimize
from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import KFold, cross_validate

import psfit
from psfit.losses import Gamma, Hinge, Huber, Logistic, Poisson, Softmax, Squared, SquaredHinge, Tweedie

M, P, KAPPA, GAMMA = 60, 6, 2, 0.7
rng = np.random.default_rng(0)
X = rng.normal(size=(M, P)) * np.logspace(-0.3, 0.3, P)
OFFSET = 0.7 * rng.normal(size=M) + 2
WEIGHT = rng.integers(1, 4, size=M).astype(float)
ETA = X[:, 1] - 0.8 * X[:, 4] + 0.3 + OFFSET
MEAN = np.exp(ETA)
LABELS = (rng.random(M) < 1 / (1 + np.exp(2 - ETA))).astype(int)
SIGNS = 2.0 * LABELS - 1
NOISE = rng.normal(size=M)
COUNTS = rng.poisson(MEAN)
SIZES = rng.gamma(2, MEAN / 2)
TOTALS = rng.poisson(MEAN / 3) * rng.gamma(2, 1.5, size=M)
EXACT = psfit.BiCADMM(exact=True)
# The estimator, its options, y, and for the oracle the loss and the targets as it takes them.
CASES = {
    "squared": (psfit.SparseLinearRegression, {}, ETA + NOISE, Squared(), ETA + NOISE),
    "huber": (psfit.SparseLinearRegression, {"loss": "huber"}, ETA + NOISE, Huber(), ETA + NOISE),
    "logistic": (psfit.SparseLogisticRegression, {}, LABELS, Logistic(), SIGNS),
    "squared hinge": (psfit.SparseSVC, {}, LABELS, SquaredHinge(), SIGNS),
    "hinge": (psfit.SparseSVC, {"loss": "hinge"}, LABELS, Hinge(), SIGNS),
    "poisson": (psfit.SparsePoissonRegression, {}, COUNTS, Poisson(), COUNTS),
    "gamma": (psfit.SparseGammaRegression, {}, SIZES, Gamma(), np.log(SIZES)),
    "tweedie": (psfit.SparseTweedieRegression, {}, TOTALS, Tweedie(), TOTALS),
}


def enumerate_supports(loss, b, offset, intercept, scales):
    """The least objective over all supports, each minimised by SciPy (the hinge as a quadratic program)."""
    best = np.inf
    for support in map(list, combinations(range(P), KAPPA)):
        A = X[:, support] / scales[support]
        if loss.name == "hinge":
            repeated = np.repeat(np.arange(M), WEIGHT.astype(int))
            best = min(best, fit_hinge(A[repeated], b[repeated], GAMMA, intercept, offset[repeated]))
            continue

        def objective(z, A=A):
            eta = (A @ z[:KAPPA] + z[KAPPA] * intercept + offset)[:, None]
            slope = WEIGHT * loss_gradient(loss, eta, b[:, None])[:, 0]
            value = WEIGHT @ loss_value(loss, eta, b[:, None])[:, 0] + (z[:KAPPA] ** 2).sum() / (2 * GAMMA)
            return value, np.r_[A.T @ slope + z[:KAPPA] / GAMMA, slope.sum() * intercept]

        start = np.r_[np.zeros(KAPPA), -2.0 * intercept]
        best = min(best, optimize.minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-8}).fun)
    return best


@pytest.mark.parametrize(("intercept", "standardize"), [(True, True), (False, False)])
@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_the_best_of_all_supports_and_it_is_proved(name, intercept, standardize):
    kind, options, y, loss, b = CASES[name]
    options = options | {"fit_intercept": intercept, "standardize": standardize}
    centre = np.average(X, axis=0, weights=WEIGHT)
    scales = np.sqrt(np.average((X - centre) ** 2, axis=0, weights=WEIGHT)) if standardize else np.ones(P)
    best = enumerate_supports(loss, b, OFFSET, intercept, scales)
    proved = kind(KAPPA, gamma=GAMMA, solver=EXACT, **options).fit(X, y, WEIGHT, offset=OFFSET)
    assert proved.objective_ == pytest.approx(best, rel=1e-7)
    assert proved.lower_bound_ <= best + 1e-7 * abs(best)
    assert proved.gap_ <= 1e-4
    order = np.random.default_rng(1).permutation(M)
    grid = psfit.GridSpec(nodes=3, blocks=2)
    again = kind(KAPPA, gamma=GAMMA, grid=grid, **options)
    again.fit(X[order], y[order], WEIGHT[order], offset=OFFSET[order])
    assert again.objective_ == pytest.approx(best, rel=1e-7)
    assert again.lower_bound_ <= best + 1e-7 * abs(best)
    np.testing.assert_allclose(again.result_.intercept, proved.result_.intercept, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sparsity", ["element", "feature"])
def test_softmax_has_an_offset_for_each_class(sparsity):
    offset = np.random.default_rng(3).normal(size=(M, 3))
    y = np.argmax(X[:, 1:4] + offset + 0.5 * rng.gumbel(size=(M, 3)), axis=1)
    model = psfit.SparseSoftmaxRegression(3, gamma=GAMMA, sparsity=sparsity).fit(X, y, WEIGHT, offset=offset)
    used, b = model.coef_.T != 0, np.eye(3)[y]
    if sparsity == "feature":
        used = used.any(axis=1, keepdims=True) & np.ones(3, bool)

    def objective(z):
        coef = np.zeros((P, 3))
        coef[used] = z[3:]
        eta = X @ coef + z[:3] + offset
        slope = WEIGHT[:, None] * loss_gradient(Softmax(), eta, b)
        value = WEIGHT @ loss_value(Softmax(), eta, b)[:, 0] + (coef**2).sum() / (2 * GAMMA)
        return value, np.r_[slope.sum(axis=0), (X.T @ slope + coef / GAMMA)[used]]

    best = optimize.minimize(objective, np.zeros(3 + used.sum()), jac=True, options={"gtol": 1e-9}).fun
    assert model.objective_ == pytest.approx(best, rel=1e-8)
    assert model.lower_bound_ <= best
    eta = X @ model.coef_.T + model.intercept_ + offset
    np.testing.assert_allclose(
        model.predict_proba(X, offset=offset), np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True), rtol=1e-9
    )
    assert model.score(X, y, offset=offset) == np.mean(eta.argmax(axis=1) == y)
    with pytest.raises(ValueError, match=r"3 classes: pass an array of shape \(60, 3\).*would not change"):
        model.fit(X, y, offset=OFFSET)


THEIRS = [
    (psfit.SparsePoissonRegression, {}, PoissonRegressor, {}, COUNTS, 1.0),
    (psfit.SparseGammaRegression, {}, GammaRegressor, {}, SIZES, 2.0),
    (psfit.SparseTweedieRegression, {}, TweedieRegressor, {"power": 1.5, "link": "log"}, TOTALS, 1.5),
    (psfit.SparseTweedieRegression, {"power": 1}, PoissonRegressor, {}, COUNTS, 1.0),
    (psfit.SparseTweedieRegression, {"power": 2.0}, GammaRegressor, {}, SIZES, 2.0),
]


@pytest.mark.parametrize(("kind", "options", "theirs", "setting", "y", "power"), THEIRS)
def test_dense_models_with_exposure_are_scikit_learns_of_rates(kind, options, theirs, setting, y, power):
    """A sum with exposure e and offset log(e) is a rate y / e with the weight e^(2 - power)."""
    exposure = np.exp(OFFSET)
    weight = WEIGHT * exposure ** (2 - power)
    expected = theirs(alpha=1 / (GAMMA * weight.sum()), tol=1e-10, max_iter=10_000, **setting)
    expected.fit(X, y / exposure, sample_weight=weight)
    model = kind(P, gamma=GAMMA, **options).fit(X, y, WEIGHT, offset=OFFSET)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=2e-5)
    assert model.intercept_ == pytest.approx(expected.intercept_, abs=2e-5)
    np.testing.assert_allclose(model.predict(X, offset=OFFSET), exposure * expected.predict(X), rtol=1e-4)
    plain = kind(P, gamma=GAMMA, **options).fit(X, y, WEIGHT)
    alone = theirs(alpha=1 / (GAMMA * WEIGHT.sum()), tol=1e-10, max_iter=10_000, **setting).fit(X, y, WEIGHT)
    assert plain.score(X, y, WEIGHT) == pytest.approx(alone.score(X, y, WEIGHT), abs=1e-6)
    assert type(plain.to_sklearn()) is (TweedieRegressor if "power" in options or setting else theirs)
    np.testing.assert_allclose(plain.to_sklearn().predict(X), plain.predict(X), rtol=1e-12)


def test_an_offset_of_a_linear_model_is_taken_from_the_targets():
    y = ETA + NOISE
    model = psfit.SparseLinearRegression(2).fit(X, y, offset=OFFSET)
    other = psfit.SparseLinearRegression(2).fit(X, y - OFFSET)
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=1e-12)
    np.testing.assert_allclose(model.predict(X, offset=OFFSET), other.predict(X) + OFFSET, rtol=1e-12)
    pair = psfit.SparseLinearRegression(2).fit(X, np.column_stack([y, -y]), offset=OFFSET)
    several = np.column_stack([OFFSET, OFFSET])
    np.testing.assert_array_equal(pair.predict(X, offset=several), pair.predict(X, offset=OFFSET))


def test_every_form_of_the_data_gives_the_same_answer(tmp_path):
    y = COUNTS
    expected = psfit.SparsePoissonRegression(2, standardize=True).fit(X, y, WEIGHT, offset=OFFSET)
    np.savez(tmp_path / "data.npz", X=X, y=y, e=OFFSET, w=WEIGHT)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "e.npy", OFFSET)
    streamed = psfit.FileSource(tmp_path / "X.npy", target="y.npy", offset="e.npy", memory=64 * P)
    forms = {
        "tensors": ((torch.tensor(X), torch.tensor(y), torch.tensor(WEIGHT)), {"offset": torch.tensor(OFFSET)}),
        "sparse": ((scipy.sparse.csr_array(X), y, WEIGHT), {"offset": OFFSET}),
        "archive": ((tmp_path / "data.npz", None, "w"), {"offset": "e"}),
        "streamed": ((streamed, None, WEIGHT), {}),
        "array beside a file": ((psfit.FileSource(tmp_path / "X.npy", "y.npy"), None, WEIGHT), {"offset": OFFSET}),
    }
    for name, (given, extra) in forms.items():
        model = psfit.SparsePoissonRegression(2, standardize=True).fit(*given, **extra)
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-6, err_msg=name)
        assert model.objective_ == pytest.approx(expected.objective_, rel=1e-9), name
    single = psfit.SparsePoissonRegression(2, standardize=True).fit(X.astype("f4"), y, WEIGHT, offset=OFFSET)
    assert single.objective_ == pytest.approx(expected.objective_, rel=1e-5)


def test_a_large_common_offset_only_moves_the_intercept():
    expected = psfit.SparsePoissonRegression(2).fit(X, COUNTS, offset=OFFSET)
    moved = psfit.SparsePoissonRegression(2).fit(X, COUNTS, offset=OFFSET + 1e4)
    np.testing.assert_allclose(moved.coef_, expected.coef_, rtol=1e-7)
    assert moved.intercept_ == pytest.approx(expected.intercept_ - 1e4, rel=1e-9)


def test_folds_and_scorers_use_the_offsets_of_their_samples():
    cv = KFold(3, shuffle=True, random_state=0)
    options = {"gammas": 10.0, "cv": cv, "certify": False}
    model = psfit.SparsePoissonRegressionCV([1, 3], scoring="neg_mean_poisson_deviance", **options)
    model.fit(X, COUNTS, offset=OFFSET)
    plain = psfit.SparsePoissonRegressionCV([1, 3], **options).fit(X, COUNTS, offset=OFFSET)
    for split, (train, test) in enumerate(cv.split(X)):
        for place, kappa in enumerate((1, 3)):
            one = psfit.SparsePoissonRegression(kappa, gamma=10.0).fit(X[train], COUNTS[train], offset=OFFSET[train])
            expected = mean_poisson_deviance(COUNTS[test], one.predict(X[test], offset=OFFSET[test]))
            assert model.cv_results_[f"split{split}_test_score"][place] == pytest.approx(-expected, rel=1e-6)
            eta = X[test] @ one.coef_ + one.intercept_ + OFFSET[test]
            loss = np.mean(np.exp(eta) - COUNTS[test] * eta)
            assert plain.cv_results_[f"split{split}_test_score"][place] == pytest.approx(-loss, rel=1e-6)
    assert model.score(X, COUNTS, offset=OFFSET) > 0.5


def test_scikit_learn_passes_offsets_on_where_it_is_asked_to():
    with sklearn.config_context(enable_metadata_routing=True):
        asked = psfit.SparsePoissonRegression(2).set_fit_request(offset=True).set_score_request(offset=True)
        found = cross_validate(asked, X, COUNTS, params={"offset": OFFSET}, cv=KFold(2))["test_score"]
    for score, (train, test) in zip(found, KFold(2).split(X), strict=True):
        one = psfit.SparsePoissonRegression(2).fit(X[train], COUNTS[train], offset=OFFSET[train])
        assert score == pytest.approx(one.score(X[test], COUNTS[test], offset=OFFSET[test]))


def test_a_checkpoint_of_other_offsets_is_refused(tmp_path):
    solver = psfit.BiCADMM(checkpoint=tmp_path, checkpoint_every=2)
    plain = psfit.SparsePoissonRegression(2).fit(X, COUNTS, offset=OFFSET)
    kept = psfit.SparsePoissonRegression(2, solver=solver).fit(X, COUNTS, offset=OFFSET)
    assert kept.objective_ == plain.objective_
    with pytest.raises(psfit.CheckpointError, match="other targets y or offsets"):
        psfit.SparsePoissonRegression(2, solver=solver).fit(X, COUNTS, offset=OFFSET[::-1])


def test_paths_halves_and_near_optimal_models_take_offsets():
    path = psfit.sparse_path(X, COUNTS, [1, 2], loss="poisson", offset=OFFSET, gammas=GAMMA)
    model = psfit.SparsePoissonRegression(2, gamma=GAMMA).fit(X, COUNTS, offset=OFFSET)
    np.testing.assert_allclose(path.coef(2)[:, 0], model.coef_, rtol=1e-6)
    stable = psfit.stability_selection(X, COUNTS, [2], loss="poisson", offset=OFFSET, resamples=10, random_state=0)
    assert set(stable.support) == {1, 4}
    near = psfit.near_optimal(model, X, COUNTS, within=0.5, offset=OFFSET)
    assert near.complete
    assert near.objectives[0] == pytest.approx(model.objective_)
    with pytest.raises(ValueError, match="fitted with an offset"):
        psfit.near_optimal(model, X, COUNTS)


def test_predictions_need_the_offset_of_the_fit_and_no_other():
    model = psfit.SparseLogisticRegression(2).fit(X, LABELS, offset=OFFSET)
    eta = X @ model.coef_[0] + model.intercept_ + OFFSET
    np.testing.assert_allclose(model.decision_function(X, offset=OFFSET), eta, rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X, offset=OFFSET)[:, 1], 1 / (1 + np.exp(-eta)), rtol=1e-9)
    np.testing.assert_allclose(model.predict_log_proba(X, offset=OFFSET)[:, 1], -np.log1p(np.exp(-eta)), rtol=1e-9)
    assert model.score(X, LABELS, WEIGHT, offset=OFFSET) == pytest.approx(
        np.average((eta > 0) == LABELS, weights=WEIGHT)
    )
    for call in (model.predict, model.decision_function, model.predict_proba, model.predict_log_proba):
        with pytest.raises(ValueError, match="fitted with an offset, so new samples need one"):
            call(X)
    with pytest.raises(ValueError, match="offset, which scikit-learn's models"):
        model.to_sklearn()
    plain = psfit.SparseLogisticRegression(2).fit(X, LABELS)
    with pytest.raises(ValueError, match="fitted without one"):
        plain.predict(X, offset=OFFSET)


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (OFFSET[:-1], "inconsistent numbers of samples"),
        (np.where(np.arange(M) == 3, np.nan, OFFSET), "offset contains NaN"),
        (np.where(np.arange(M) == 3, -np.inf, OFFSET), "offset contains infinity"),
        (OFFSET.astype(str), "offset is not numeric"),
        (np.column_stack([OFFSET, OFFSET]), "2 number"),
        (OFFSET * 1e120, "pass its logarithm"),
        (np.linspace(1, 3650, M), "values from 1 to 3650 are too far apart for a log link.*pass its logarithm"),
        ("exposure", "names a column of a file"),
    ],
    ids=["short", "NaN", "infinity", "text", "columns", "large", "days", "name"],
)
def test_bad_offsets_are_refused_by_name(offset, said):
    with pytest.raises((ValueError, TypeError), match=said):
        psfit.SparsePoissonRegression(2).fit(X, COUNTS, offset=offset)


@pytest.mark.parametrize(
    ("model", "y", "said"),
    [
        (psfit.SparseGammaRegression(2), np.r_[0.0, SIZES[1:]], "must be positive.*it is 0 in row 0"),
        (psfit.SparseGammaRegression(2), -SIZES, "must not be negative"),
        (psfit.SparseTweedieRegression(2), -SIZES, "must not be negative"),
        (psfit.SparseTweedieRegression(2, power=2), np.r_[0.0, SIZES[1:]], "positive with power=2, but 1 entries"),
        (psfit.SparseTweedieRegression(2, power=0), SIZES, "power=0 must be a number from 1 to 2"),
        (psfit.SparseTweedieRegression(2, power=3), SIZES, "no convex loss"),
        (psfit.SparseTweedieRegressionCV([1], criterion="bic"), SIZES, "needs a likelihood"),
    ],
)
def test_targets_and_powers_without_a_convex_problem_are_refused(model, y, said):
    with pytest.raises(ValueError, match=said):
        model.fit(X, y)
