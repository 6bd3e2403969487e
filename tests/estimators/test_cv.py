"""Models that choose their limit: against scikit-learn's own search, likelihoods by hand, and folds made by hand."""

from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import scipy.stats
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
)

import psfit
from psfit import BiCADMM, GridSpec, Problem
from psfit.comm import build_grid
from psfit.data import Source, Streamed
from psfit.data.streamed import ArrayRows
from psfit.estimators.posing import Given, pose_samples
from psfit.estimators.settings import Settings
from psfit.estimators.stability import draw_halves
from psfit.losses import Squared
from psfit.pipeline.subsamples import Subsamples

# As many as there are true features: then the best support is clear in every fold.
KAPPAS = [1, 2, 3]


def regression(seed=0, samples=90, features=6, shift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, features)) + shift
    return X, 2 * X[:, 0] - X[:, 3] + 0.7 * X[:, 4] + rng.normal(size=samples)


def labels(y, classes):
    return np.array(["a", "b", "c"])[np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))]


def negative_mean_loss(loss):
    """Minus the mean of a loss, as a scorer on predictors, written out by hand."""

    def score(model, X, y):
        eta = model.predict(X) if hasattr(model, "loss") and loss in ("squared", "huber") else None
        if loss == "squared":
            return -np.mean((y - eta) ** 2)
        if loss == "huber":
            size = np.abs(y - eta)
            return -np.mean(np.where(size <= 1.35, size**2, 1.35 * (2 * size - 1.35)))
        if loss == "poisson":
            mean = model.predict(X)
            return -np.mean(mean - y * np.log(mean))
        if loss in ("hinge", "squared_hinge"):
            margin = np.where(y == model.classes_[1], 1, -1) * model.decision_function(X)
            return -np.mean(np.maximum(0, 1 - margin) ** (2 if loss == "squared_hinge" else 1))
        place = np.searchsorted(model.classes_, y)
        return np.mean(np.log(model.predict_proba(X)[np.arange(len(y)), place]))

    return score


CASES = {
    "squared": ("SparseLinearRegression", {}, lambda y: y),
    "huber": ("SparseLinearRegression", {"loss": "huber"}, lambda y: y),
    "poisson": ("SparsePoissonRegression", {}, lambda y: np.floor(np.exp(y / 4))),
    "logistic": ("SparseLogisticRegression", {}, lambda y: labels(y, 2)),
    "softmax": ("SparseSoftmaxRegression", {}, lambda y: labels(y, 3)),
    "squared_hinge": ("SparseSVC", {}, lambda y: labels(y, 2)),
    "hinge": ("SparseSVC", {"loss": "hinge"}, lambda y: labels(y, 2)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_scores_are_those_of_separate_fits_to_every_fold(name):
    model, options, target = CASES[name]
    X, y = regression()
    y = target(y)
    # A table of limits and gammas is the same for all losses; the losses themselves need less.
    kappas, gammas = (KAPPAS, [0.3, 5.0]) if name in ("squared", "logistic") else (KAPPAS[:2], [0.3])
    chosen = getattr(psfit, model + "CV")(kappas, gammas=gammas, cv=3, **options).fit(X, y)
    control = GridSearchCV(
        getattr(psfit, model)(certify=False, **options),
        {"gamma": gammas, "kappa": kappas},
        cv=3,
        scoring=negative_mean_loss(name),
    ).fit(X, y)
    for key, value in control.cv_results_.items():
        if "test_score" in key and "std" not in key:
            np.testing.assert_allclose(chosen.cv_results_[key], value, rtol=2e-4, atol=1e-6, err_msg=key)
    np.testing.assert_allclose(chosen.cv_results_["std_test_score"], control.cv_results_["std_test_score"], rtol=1e-2)
    assert set(chosen.cv_results_) == set(control.cv_results_)
    assert chosen.cv_results_["params"] == control.cv_results_["params"]
    assert {"kappa": chosen.kappa_, "gamma": chosen.gamma_} == control.best_params_
    np.testing.assert_allclose(chosen.coef_, control.best_estimator_.coef_, atol=1e-4)
    assert np.isfinite(chosen.lower_bound_)


@pytest.mark.parametrize(
    ("model", "scoring"),
    [
        ("SparseLinearRegression", "r2"),
        ("SparseLinearRegression", make_scorer(mean_absolute_error, greater_is_better=False)),
        ("SparseLogisticRegression", "roc_auc"),
        ("SparseLogisticRegression", "neg_log_loss"),
        ("SparseLogisticRegression", "accuracy"),
        ("SparseSVC", "roc_auc"),
    ],
    ids=str,
)
def test_scorers_of_scikit_learn(model, scoring):
    X, y = regression(1)
    y = y if model == "SparseLinearRegression" else labels(y, 2)
    # By default the folds are scikit-learn's; one test checks this.
    kappas, folds = (KAPPAS, {}) if scoring == "r2" else (KAPPAS[1:], {"cv": 2})
    chosen = getattr(psfit, model + "CV")(kappas, gammas=1.0, scoring=scoring, **folds).fit(X, y)
    plain = getattr(psfit, model)(gamma=1.0, certify=False)
    control = GridSearchCV(plain, {"kappa": kappas}, scoring=scoring, **folds).fit(X, y)
    np.testing.assert_allclose(chosen.cv_results_["mean_test_score"], control.cv_results_["mean_test_score"], rtol=1e-6)


SPLITTERS = {
    "k folds": KFold(4, shuffle=True, random_state=3),
    "repeated": RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
    "rising": TimeSeriesSplit(4),
    "random": ShuffleSplit(4, test_size=0.3, random_state=0),
    "given": PredefinedSplit(np.arange(90) % 3 - 1),
    "groups": GroupKFold(3),
}


@pytest.mark.usefixtures("stays_sparse")
@pytest.mark.parametrize(
    ("name", "form"),
    [
        *((name, "dense") for name in SPLITTERS),
        # Folds that share no sample, that share some, and that leave some out.
        *((name, form) for name in ("k folds", "random", "rising") for form in ("sparse", "float32")),
    ],
)
def test_all_kinds_of_folds(name, form):
    # Means that predictions in float32 would not survive.
    X, y = regression(2, shift=1e4 if form == "float32" else 0.0)
    X = {"dense": X, "sparse": scipy.sparse.csr_array(X), "float32": X.astype(np.float32)}[form]
    cv, groups = SPLITTERS[name], np.arange(90) // 5 if name == "groups" else None
    chosen = psfit.SparseLinearRegressionCV(KAPPAS, gammas=1.0, cv=cv).fit(X, y, groups=groups)
    plain = psfit.SparseLinearRegression(gamma=1.0, certify=False)
    control = GridSearchCV(plain, {"kappa": KAPPAS}, cv=cv, scoring="neg_mean_squared_error").fit(X, y, groups=groups)
    for split in range(control.n_splits_):
        key = f"split{split}_test_score"
        np.testing.assert_allclose(chosen.cv_results_[key], control.cv_results_[key], rtol=1e-5)


def test_folds_are_drawn_inside_the_nodes():
    X, y = regression(3)
    nodes = [slice(30 * k, 30 * k + 30) for k in range(3)]
    by_node = [list(KFold(5).split(X[at])) for at in nodes]
    offsets = [at.start for at in nodes]
    by_hand = [
        tuple(np.concatenate([o + part[k][side] for o, part in zip(offsets, by_node, strict=True)]) for side in (0, 1))
        for k in range(5)
    ]
    spread = psfit.SparseLinearRegressionCV(KAPPAS, gammas=1.0, grid=GridSpec(nodes=3)).fit(X, y)
    control = psfit.SparseLinearRegressionCV(KAPPAS, gammas=1.0, cv=by_hand).fit(X, y)
    for key in (f"split{k}_test_score" for k in range(5)):
        np.testing.assert_allclose(spread.cv_results_[key], control.cv_results_[key], rtol=1e-7)
    assert spread.kappa_ == control.kappa_


def test_scores_of_nodes_are_averaged_by_their_weights():
    X, y = regression(4)
    weight = np.random.default_rng(0).uniform(size=len(y))
    options = {"kappas": KAPPAS, "gammas": 1.0, "grid": GridSpec(nodes=3)}
    loss = psfit.SparseLinearRegressionCV(**options).fit(X, y, weight)
    scorer = psfit.SparseLinearRegressionCV(scoring="neg_mean_squared_error", **options).fit(X, y, weight)
    np.testing.assert_allclose(loss.cv_results_["mean_test_score"], scorer.cv_results_["mean_test_score"], rtol=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_the_simplest_model_within_one_standard_error(seed):
    X, y = regression(seed, features=8)
    options = {"kappas": range(1, 9), "gammas": [0.5, 5.0], "cv": 6}
    best = psfit.SparseLinearRegressionCV(**options).fit(X, y)
    simple = psfit.SparseLinearRegressionCV(one_standard_error=True, **options).fit(X, y)
    results = pd.DataFrame(best.cv_results_)
    splits = results[[f"split{k}_test_score" for k in range(6)]].to_numpy()
    error = splits.std(axis=1, ddof=1) / np.sqrt(6)
    winner = results["mean_test_score"].idxmax()
    assert (best.kappa_, best.gamma_) == tuple(results.loc[winner, ["param_kappa", "param_gamma"]])
    near = results[results["mean_test_score"] >= results["mean_test_score"][winner] - error[winner]]
    first = near.sort_values(["param_kappa", "param_gamma"]).iloc[0]
    assert (simple.kappa_, simple.gamma_) == (first["param_kappa"], first["param_gamma"])
    assert simple.selection_.best_kappa == best.kappa_
    assert simple.kappa_ <= best.kappa_


def loglikelihood(name, model, X, y):
    """The logarithm of the likelihood at a fitted model, from SciPy's distributions."""
    if name == "squared":
        left = y - model.predict(X)
        return scipy.stats.norm(scale=left.std()).logpdf(left - left.mean()).sum()
    if name == "poisson":
        return scipy.stats.poisson(model.predict(X)).logpmf(y).sum()
    return np.log(model.predict_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]).sum()


@lru_cache
def fits_of_all_limits(name):
    """The data of a case, and a model for each limit."""
    model, options, target = CASES[name]
    X, y = regression(5)
    y = target(y)
    return X, y, [getattr(psfit, model)(kappa, certify=False, **options).fit(X, y) for kappa in KAPPAS]


@pytest.mark.parametrize("criterion", ["aic", "bic", "ebic", "gic"])
@pytest.mark.parametrize("name", ["squared", "poisson", "logistic", "softmax"])
def test_information_criteria(name, criterion):
    model, options, _ = CASES[name]
    X, y, fits = fits_of_all_limits(name)
    m, p = X.shape
    chosen = getattr(psfit, model + "CV")(KAPPAS, criterion=criterion, **options).fit(X, y)
    values = []
    for kappa, fit in zip(KAPPAS, fits, strict=True):
        free = np.count_nonzero(fit.coef_) + np.size(fit.intercept_)
        size = p * (3 if name == "softmax" else 1)
        price = {
            "aic": 2 * free,
            "bic": np.log(m) * free,
            "ebic": np.log(m) * free + 2 * np.log(scipy.special.comb(size, kappa)),
            "gic": np.log(size) * np.log(np.log(m)) * free,
        }[criterion]
        values.append(price - 2 * loglikelihood(name, fit, X, y))
    # Constants of the likelihood do not matter.
    np.testing.assert_allclose(np.diff(-chosen.selection_.scores[0]), np.diff(values), rtol=1e-4, atol=1e-4)
    assert chosen.kappa_ == KAPPAS[int(np.argmin(values))]
    assert not hasattr(chosen, "cv_results_")


def test_one_pass_serves_all_folds():
    X, y = regression(6, samples=300, features=12)
    stream = Streamed(ArrayRows(X), torch.device("cpu"), torch.float64, 0)
    source = Source(stream, torch.tensor(y).unsqueeze(1), torch.ones(300, 1, dtype=torch.float64))
    grid = GridSpec(backend="serial", device="cpu").build()
    masks = torch.arange(300) % 5 != torch.arange(5).unsqueeze(1)
    parts = Subsamples.of(Problem(Squared(), (1,)), source, grid, masks, None)
    # One look at the first rows, and one pass for the moments.
    assert stream.rows_read <= 300 + 256
    parts.path(0, [1, 2, 3], [1.0])
    assert stream.rows_read <= 300 + 256


def test_several_targets_and_feature_sparsity():
    X, y = regression(7)
    Y = np.column_stack([y, -y + 0.5 * X[:, 1]])
    chosen = psfit.SparseLinearRegressionCV(KAPPAS, gammas=1.0, sparsity="feature").fit(X, Y)
    control = GridSearchCV(
        psfit.SparseLinearRegression(gamma=1.0, sparsity="feature", certify=False),
        {"kappa": KAPPAS},
        scoring="neg_mean_squared_error",
    ).fit(X, Y)
    np.testing.assert_allclose(chosen.cv_results_["mean_test_score"], control.cv_results_["mean_test_score"], rtol=1e-6)
    assert chosen.predict(X).shape == Y.shape


def test_real_data_and_names():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = psfit.SparseLinearRegressionCV(one_standard_error=True, standardize=True).fit(X, y)
    assert 1 <= model.kappa_ <= model.selection_.best_kappa <= 10
    assert "bmi" in X.columns[model.support_]
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    model = psfit.SparseLogisticRegressionCV([1, 2, 4, 8], gammas=1.0, standardize=True, scoring="roc_auc").fit(X, y)
    assert model.cv_results_["mean_test_score"].max() > 0.98
    X, y = load_iris(return_X_y=True)
    assert psfit.SparseSVCCV([1, 2], gammas=1.0, scoring="accuracy").fit(X, y).score(X, y) > 0.9
    with pytest.raises(ValueError, match=r"'acuracy' is not a scorer of scikit-learn \(did you mean 'accuracy'"):
        psfit.SparseSVCCV([1, 2], scoring="acuracy").fit(X, y)


def test_high_effort_searches_folds_further():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 6))
    X[:, 1] = X[:, 0] + 1e-3 * rng.normal(size=90)
    y = (X[:, 0] - X[:, 1]) / 1e-3 + 0.1 * rng.normal(size=90)
    high = psfit.SparseLinearRegressionCV([2], gammas=1e9, solver=BiCADMM(effort="high")).fit(X, y)
    control = GridSearchCV(
        psfit.SparseLinearRegression(gamma=1e9, certify=False), {"kappa": [2]}, scoring="neg_mean_squared_error"
    ).fit(X, y)
    assert high.cv_results_["mean_test_score"][0] == pytest.approx(control.best_score_, rel=1e-4)


def test_weights_in_a_file_reach_the_scorer(tmp_path):
    X, y = regression(4)
    weight = np.random.default_rng(0).uniform(size=90)
    frame = pd.DataFrame(X).add_prefix("x").assign(w=weight, y=y)
    frame.to_csv(tmp_path / "data.csv", index=False)
    model = psfit.SparseLinearRegressionCV(KAPPAS, gammas=1.0, scoring="neg_mean_squared_error")
    control = model.fit(X, y, weight).cv_results_["mean_test_score"]
    source = psfit.FileSource(tmp_path / "data.csv", "y", "w")
    np.testing.assert_allclose(model.fit(source).cv_results_["mean_test_score"], control, rtol=1e-6)


def test_another_search_forgets_the_last_one():
    X, y = regression()
    model = psfit.SparseLinearRegressionCV(KAPPAS, gammas=1.0).fit(X, y)
    assert hasattr(model, "cv_results_")
    model.set_params(criterion="aic").fit(X, y)
    assert not hasattr(model, "cv_results_")
    assert model.selection_.label == "AIC"


class TestBadInput:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"criterion": "cp"}, "criterion='cp' must be"),
            ({"criterion": "bic", "one_standard_error": True}, "one_standard_error needs folds"),
            ({"kappas": [0]}, "integers of at least 1"),
            ({"gammas": []}, "gammas"),
            ({"cv": 1}, "cv=1 must be an integer of at least 2"),
            ({"cv": 91}, "samples of a node"),
            ({"cv": "many"}, "cv"),
            ({"cv": [([0, 1], [200])]}, "numbers from 0 to 89"),
            ({"cv": [([0, 0, 1], [2])]}, "names a sample twice"),
            ({"cv": [([], [2])]}, "part 0 trains on no sample"),
            ({"cv": [(np.arange(50), [])]}, "part 0 tests on no sample"),
            ({"cv": [([0, 1, -1], [2])]}, "numbers from 0 to 89"),
            ({"cv": []}, "holds no splits"),
            ({"scoring": "nonsense"}, "nonsense"),
            ({"scoring": ["r2"]}, "name of a scorer"),
            ({"scoring": lambda model, X, y: X.sum()}, "scorers see predictions"),
            ({"scoring": lambda model, X, y: len(model.support_)}, "scorers see predictions"),
            ({"loss": "huber", "criterion": "aic"}, "needs a likelihood"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, given, message):
        X, y = regression()
        with pytest.raises(ValueError, match=message):
            psfit.SparseLinearRegressionCV(**({"kappas": KAPPAS} | given)).fit(X, y)

    def test_scorers_without_weights(self):
        X, y = regression()
        with pytest.raises(ValueError, match="sample_weight"):
            psfit.SparseLinearRegressionCV(KAPPAS, scoring="neg_max_error").fit(X, y, np.arange(1, 91))

    def test_weights_that_are_no_counts(self):
        X, y = regression()
        with pytest.raises(ValueError, match="sample_weight sums to 1"):
            psfit.SparseLinearRegressionCV(KAPPAS, criterion="bic").fit(X, y, np.full(90, 1 / 90))

    def test_folds_without_a_count(self):
        X = regression()[0]
        with pytest.raises(ValueError, match="no finite optimum"):
            psfit.SparsePoissonRegressionCV(KAPPAS, cv=2).fit(X, np.arange(90) > 80)

    def test_folds_without_a_class(self):
        X = regression()[0]
        with pytest.raises(ValueError, match="holds none of class a"):
            psfit.SparseLogisticRegressionCV(KAPPAS, cv=KFold(2)).fit(X, np.where(np.arange(90) < 45, "a", "b"))

    def test_groups_of_another_length(self):
        X, y = regression()
        with pytest.raises(ValueError, match="groups has shape"):
            psfit.SparseLinearRegressionCV(KAPPAS, cv=GroupKFold(2)).fit(X, y, groups=[1, 2])


class TestStability:
    def test_frequencies_are_those_of_separate_fits(self):
        X, y = regression(8, features=8)
        found = psfit.stability_selection(X, y, [2, 3], gamma=1.0, resamples=6, random_state=1)
        posed = pose_samples(Settings("squared"), "the test", Given(X, y), build_grid(None))
        halves = list(draw_halves(posed, 3, 1))
        counts = np.zeros((2, 8))
        for half in [side for one in halves for side in (one, ~one)]:
            assert half.sum() == 45
            for k, kappa in enumerate((2, 3)):
                counts[k, psfit.SparseLinearRegression(kappa, gamma=1.0).fit(X[half], y[half]).support_] += 1
        np.testing.assert_allclose(found.frequencies, counts / 6)
        assert found.average_size == pytest.approx(3, abs=1)

    def test_true_features_are_stable(self):
        X, y = regression(9, samples=300, features=30)
        found = psfit.stability_selection(X, y, [3], resamples=20, random_state=0)
        assert found.support.tolist() == [0, 3, 4]
        assert found.expected_false == pytest.approx(3**2 / (0.5 * 30))
        assert [row["feature"] for row in found.rows()[:3]] == [0, 3, 4]
        assert "20 resamples" in str(found)

    def test_classes_names_and_nodes(self):
        X, y = load_iris(return_X_y=True, as_frame=True)
        rare = np.array(["x", "y"])[(y > 1).astype(int)]
        options = {"loss": "logistic", "resamples": 4, "random_state": 0}
        found = psfit.stability_selection(X, rare, [1], **options)
        assert found.rows()[0]["feature"].startswith("petal")
        assert (
            psfit.stability_selection(X, rare, [1], grid=GridSpec(nodes=3), **options).frequencies.sum()
            == found.frequencies.sum()
        )

    def test_without_a_seed(self):
        X, y = regression()
        found = psfit.stability_selection(X, y, [1], resamples=2, solver=BiCADMM(effort="low"))
        assert found.frequencies.sum() == pytest.approx(1)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"resamples": 3}, "even integer"),
            ({"threshold": 0.5}, "above 0.5"),
            ({"loss": "cubic"}, "loss='cubic' must be"),
            ({"gamma": -1}, "positive"),
            ({"gamma": [1.0, 2.0]}, "a positive number"),
            ({"sample_weight": np.arange(90) == 0}, "no sample whose weight"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, given, message):
        X, y = regression()
        with pytest.raises(ValueError, match=message):
            psfit.stability_selection(X, y, [1], **given)

    def test_a_class_that_is_too_rare(self):
        X = regression()[0]
        with pytest.raises(ValueError, match="too rare"):
            psfit.stability_selection(X, np.where(np.arange(90) == 0, "b", "a"), [1], loss="logistic")


def test_stratified_folds_are_the_default_for_classes():
    X, y = regression(2)
    y = np.sort(labels(y, 2))
    chosen = psfit.SparseLogisticRegressionCV([1, 2], gammas=1.0).fit(X, y)
    control = psfit.SparseLogisticRegressionCV([1, 2], gammas=1.0, cv=StratifiedKFold(5)).fit(X, y)
    np.testing.assert_array_equal(chosen.cv_results_["mean_test_score"], control.cv_results_["mean_test_score"])


@pytest.mark.parametrize("features", [5, 60])
def test_pictures_of_a_choice(features):
    import matplotlib

    matplotlib.use("Agg")
    from psfit.plots import plot_selection, plot_stability

    X, y = regression(0, features=features)
    kappas = list(range(1, 6))
    model = psfit.SparseLinearRegressionCV(kappas, gammas=[0.1, 1.0]).fit(X, y)
    axes = plot_selection(model.selection_)
    for g in range(2):
        drawn = axes.containers[g].lines[0].get_ydata()
        np.testing.assert_allclose(drawn, -model.cv_results_["mean_test_score"][5 * g : 5 * g + 5])
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert f"chosen: kappa = {model.kappa_}" in named
    informed = psfit.SparseLinearRegressionCV(kappas, criterion="ebic").fit(X, y)
    axes = plot_selection(informed.selection_)
    assert axes.get_ylabel() == "EBIC"
    grouped = plot_selection(informed.selection_, counted="groups")
    assert [one.get_xlabel().split(" on ")[1] for one in (axes, grouped)] == ["nonzero coefficients", "groups"]
    assert int(np.argmin(axes.containers[0].lines[0].get_ydata())) + 1 == informed.kappa_
    found = psfit.stability_selection(X, y, [3], resamples=10, random_state=0)
    bars = plot_stability(found, most=20)
    shown = min(20, int((found.scores > 0).sum()))
    np.testing.assert_allclose(
        [bar.get_width() for bar in bars.patches], np.sort(found.scores)[::-1][:shown], rtol=1e-12
    )
