"""The models against scikit-learn's own, and the behaviour of classifiers."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.metrics import accuracy_score, d2_tweedie_score, r2_score
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_sample_weight

from psfit import (
    BiCADMM,
    GridSpec,
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
    SparseSoftmaxRegression,
    SparseSVC,
)

# For what does not depend on the search.
SHORT = {"solver": BiCADMM(effort="low"), "certify": False}


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X[:, :10]), y


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_dense_linear_regression_is_ridge(cancer, fit_intercept):
    X, y = cancer
    ours = SparseLinearRegression(10, gamma=0.2, fit_intercept=fit_intercept).fit(X, y)
    theirs = Ridge(alpha=1 / (2 * 0.2), fit_intercept=fit_intercept).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_dense_logistic_regression_is_scikit_learns(cancer, fit_intercept):
    X, y = cancer
    ours = SparseLogisticRegression(10, gamma=0.5, fit_intercept=fit_intercept).fit(X, y)
    theirs = LogisticRegression(C=0.5, fit_intercept=fit_intercept, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(np.exp(ours.predict_log_proba(X)), theirs.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize("model", [SparseLogisticRegression, SparseSoftmaxRegression])
def test_dense_softmax_regression_is_scikit_learns(wine, model):
    X, y = wine
    ours = model(39, gamma=0.3).fit(X, y)
    theirs = LogisticRegression(C=0.3, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_dense_svm_is_scikit_learns(cancer, loss):
    X, y = cancer
    ours = SparseSVC(10, gamma=0.1, loss=loss, fit_intercept=False).fit(X, y)
    theirs = LinearSVC(C=0.1, loss=loss, fit_intercept=False, tol=1e-8, max_iter=10**6).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-3)


def test_dense_poisson_regression_is_scikit_learns(cancer):
    X, _ = cancer
    y = np.random.default_rng(0).poisson(np.exp(0.3 * X[:, 0] - 0.2 * X[:, 3]))
    ours = SparsePoissonRegression(10, gamma=2.0).fit(X, y)
    # Theirs is the mean deviance with alpha / 2 ||x||^2: alpha = 1 / (gamma m).
    theirs = PoissonRegressor(alpha=1 / (2.0 * len(y)), tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-3)


def test_huber_shrugs_off_outliers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 20))
    y = X[:, 3] - X[:, 7] + 0.1 * rng.normal(size=200)
    y[:20] += 500
    robust = SparseLinearRegression(2, gamma=10.0, loss="huber", huber_delta=0.3).fit(X, y)
    assert robust.support_.tolist() == [3, 7]
    np.testing.assert_allclose(robust.coef_[[3, 7]], [1, -1], atol=0.1)
    assert SparseLinearRegression(2, gamma=10.0).fit(X, y).support_.tolist() != [3, 7]


@pytest.mark.parametrize("kind", [SparseLogisticRegression, SparseSVC, SparseSoftmaxRegression])
def test_labels_of_any_type(cancer, kind):
    X, y = cancer
    model = kind(2, **SHORT).fit(X, y)
    plain = model.predict(X)
    for labels in (np.array(["benign", "malignant"]), np.array([-1.0, 1.0]), np.array([False, True])):
        model.fit(X, labels[y])
        np.testing.assert_array_equal(model.classes_, labels)
        np.testing.assert_array_equal(model.predict(X), labels[plain])


def test_several_classes_one_against_the_rest(wine):
    X, y = wine
    model = SparseSVC(2).fit(X, y)
    assert model.coef_.shape == (3, 13)
    assert ((model.coef_ != 0).sum(axis=1) == 2).all()
    for k in range(3):
        alone = SparseSVC(2).fit(X, y == k)
        np.testing.assert_allclose(model.coef_[k], alone.coef_[0], atol=1e-6)
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("sparsity", ["element", "feature"])
def test_what_kappa_counts_for_softmax(wine, sparsity):
    model = SparseSoftmaxRegression(4, sparsity=sparsity).fit(*wine)
    counted = (model.coef_ != 0).sum() if sparsity == "element" else (model.coef_ != 0).any(axis=0).sum()
    assert counted == 4
    assert len(model.support_) <= 4


def test_several_targets():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100, 12))
    Y = X[:, [1, 5]] @ np.array([[1.0, 0, 2], [0, 1, 1]]) + 0.01 * rng.normal(size=(100, 3))
    model = SparseLinearRegression(2, gamma=100.0).fit(X, Y)
    assert model.coef_.shape == (3, 12)
    assert model.intercept_.shape == (3,)
    assert model.predict(X).shape == (100, 3)
    assert model.score(X, Y) > 0.99
    rows = SparseLinearRegression(2, gamma=100.0, sparsity="feature").fit(X, Y)
    assert rows.support_.tolist() == [1, 5]


@pytest.mark.parametrize(
    "model",
    [SparseLogisticRegression(3, **SHORT), SparseSVC(3, **SHORT), SparseSVC(3, loss="hinge", **SHORT)],
    ids=["logistic", "squared hinge", "hinge"],
)
def test_class_weights_are_sample_weights(cancer, model):
    X, y = cancer
    for class_weight in ("balanced", {0: 3.0, 1: 0.5}):
        by_class = model.set_params(class_weight=class_weight).fit(X, y).coef_
        weights = compute_sample_weight(class_weight, y)
        by_sample = model.set_params(class_weight=None).fit(X, y, sample_weight=weights).coef_
        np.testing.assert_allclose(by_class, by_sample, rtol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        SparseLinearRegression(3),
        SparseLogisticRegression(3),
        SparseSVC(3, loss="hinge", **SHORT),
        SparsePoissonRegression(3),
    ],
    ids=["squared", "logistic", "hinge", "poisson"],
)
def test_integer_weights_repeat_samples(cancer, model):
    X, y = cancer
    repeat = np.random.default_rng(0).integers(0, 3, len(y))
    weighted = model.fit(X, y, sample_weight=repeat).coef_
    repeated = model.fit(np.repeat(X, repeat, axis=0), np.repeat(y, repeat)).coef_
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)


def test_separable_data_and_a_class_with_one_sample():
    X, y = load_iris(return_X_y=True)
    separable = SparseLogisticRegression(2, gamma=1e6).fit(X[:100], y[:100])
    assert np.isfinite(separable.coef_).all()
    assert separable.score(X[:100], y[:100]) == 1.0
    assert np.isfinite(separable.predict_log_proba(X)).all()
    rare = SparseSoftmaxRegression(4).fit(X[:101], y[:101])
    assert rare.classes_.tolist() == [0, 1, 2]
    np.testing.assert_allclose(rare.predict_proba(X).sum(axis=1), 1)


@pytest.mark.parametrize("model", [SparseLogisticRegression(3), SparseSVC(3), SparseLinearRegression(3)])
def test_nodes_and_blocks_do_not_change_the_answer(cancer, model):
    X, y = cancer
    one = model.fit(X, y).coef_
    many = model.set_params(grid=GridSpec(nodes=4, blocks=3)).fit(X, y).coef_
    np.testing.assert_allclose(one, many, atol=1e-6)


def test_targets_of_the_other_kind_are_refused():
    X = np.random.default_rng(0).normal(size=(300, 4))
    for labels in (["a", 1] * 60, [1, "a"] * 60):
        with pytest.raises(ValueError, match="labels that are text and labels that are not; write all of them as text"):
            SparseLogisticRegression(2).fit(np.ones((120, 3)), np.array(labels, dtype=object))
    with pytest.raises(ValueError, match="120 different numbers, which looks like regression"):
        SparseLogisticRegression(2).fit(X, np.arange(300) % 120)
    with pytest.raises(ValueError, match=r"y is not numeric: it holds text, such as 'a'.*use the logistic loss"):
        SparseLinearRegression(2).fit(X, np.array(["a", "b"] * 150))


@pytest.mark.parametrize("weight", [None, "random"])
def test_scores_are_those_of_scikit_learns_models(weight):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(80, 4))
    counts = rng.poisson(np.exp(0.5 * X[:, 0] - 0.3 * X[:, 1]))
    weight = None if weight is None else rng.uniform(0.1, 3, size=80)
    poisson = SparsePoissonRegression(4, gamma=1e3).fit(X, counts, weight)
    expected = d2_tweedie_score(counts, poisson.predict(X), power=1, sample_weight=weight)
    assert poisson.score(X, counts, weight) == pytest.approx(expected, rel=1e-12)
    # Its ridge is weighed against the mean loss.
    total = 80 if weight is None else weight.sum()
    theirs = PoissonRegressor(alpha=1e-3 / total, tol=1e-10, max_iter=10_000)
    assert poisson.score(X, counts, weight) == pytest.approx(
        theirs.fit(X, counts, weight).score(X, counts, weight), abs=1e-6
    )
    Y = np.column_stack([X[:, 0] + 1, 3 * X[:, 1] + rng.normal(size=80)])
    linear = SparseLinearRegression(2).fit(X, Y, weight)
    assert linear.score(X, Y, weight) == pytest.approx(r2_score(Y, linear.predict(X), sample_weight=weight), rel=1e-12)
    labels = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + X[:, 1], [-0.5, 0.5])]
    for model in (SparseLogisticRegression, SparseSoftmaxRegression, SparseSVC):
        found = model(2, solver=BiCADMM(effort="low"), certify=False).fit(X, labels, weight)
        accuracy = accuracy_score(labels, found.predict(X), sample_weight=weight)
        assert found.score(X, labels, weight) == pytest.approx(accuracy, rel=1e-12)


def test_counts_that_round_to_zero_have_a_score():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    model = SparsePoissonRegression(1).fit(X, [1, 2, 4, 9])
    assert np.isfinite(model.score(-1e4 * X, [1, 0, 0, 0]))
