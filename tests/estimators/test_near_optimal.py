"""All near-optimal models against the enumeration of all supports."""

import itertools

import numpy as np
import pytest
import torch
from enumeration import best_objective
from problems import make_source

import psfit
from psfit import Problem, Source
from psfit.data import Dense
from psfit.estimators.results import NearOptimal
from psfit.losses import Hinge, Logistic, Poisson, Squared, SquaredHinge

MODELS = {
    "squared": (Squared(), psfit.SparseLinearRegression),
    "logistic": (Logistic(), psfit.SparseLogisticRegression),
    "squared_hinge": (SquaredHinge(), psfit.SparseSVC),
    "hinge": (Hinge(), lambda *rest, **more: psfit.SparseSVC(*rest, loss="hinge", **more)),
    "poisson": (Poisson(), psfit.SparsePoissonRegression),
}


def make(name, seed, *, features, kappa, gamma, intercept=True, samples=40):
    loss, kind = MODELS[name]
    source = make_source(loss, samples=samples, features=features, nonzeros=3, seed=seed, correlation=0.7)
    X, y = source.matrix.values.numpy(), source.target[:, 0].numpy()
    model = kind(kappa, gamma=gamma, fit_intercept=intercept).fit(X, y)
    return model, X, y, source, Problem(loss, (kappa,), gamma, fit_intercept=intercept)


def enumerate_supports(problem, source):
    """The objective of every support."""
    kappa, p = problem.kappa[0], source.matrix.shape[1]
    values = {}
    for chosen in itertools.combinations(range(p), kappa):
        part = Source(Dense(source.matrix.values[:, list(chosen)]), source.target, source.weight)
        values[chosen] = best_objective(problem, part)
    return values


# The oracle of the hinge takes long.
CASES = [(name, *shape) for name in MODELS for shape in ((9, 3), (6, 2)) if name != "hinge" or shape == (6, 2)]


@pytest.mark.parametrize(("name", "features", "kappa"), CASES)
@pytest.mark.parametrize(("seed", "gamma", "within"), [(0, 1.0, 0.1), (1, 30.0, 0.3), (2, 0.01, 0.02)])
def test_the_list_is_that_of_the_enumeration(name, features, kappa, seed, gamma, within):
    model, X, y, source, problem = make(name, seed, features=features, kappa=kappa, gamma=gamma, intercept=seed != 1)
    values = enumerate_supports(problem, source)
    best = min(values.values())
    found = psfit.near_optimal(model, X, y, within=within)
    assert found.complete
    listed = {
        tuple(np.flatnonzero(row).tolist()): value for row, value in zip(found.supports, found.objectives, strict=True)
    }
    limit = best + within * abs(best)
    surely = {chosen for chosen, value in values.items() if value <= limit - 1e-6 * abs(limit)}
    perhaps = {chosen for chosen, value in values.items() if value <= limit + 1e-6 * abs(limit)}
    assert surely <= set(listed) <= perhaps
    for chosen, value in listed.items():
        assert value == pytest.approx(values[chosen], rel=1e-6)
    assert (np.diff(found.objectives) >= 0).all()
    assert found.objectives[0] == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_a_list_that_is_cut_short_says_what_is_not_excluded(name):
    model, X, y, *_ = make(name, 3, features=9, kappa=3, gamma=1.0)
    whole = psfit.near_optimal(model, X, y, within=0.5)
    assert len(whole.supports) > 5
    some = psfit.near_optimal(model, X, y, within=0.5, at_most=4)
    assert not some.complete
    assert len(some.supports) == 4
    known = {row.tobytes() for row in some.supports}
    others = [value for row, value in zip(whole.supports, whole.objectives, strict=True) if row.tobytes() not in known]
    assert some.lower_bound <= min(others) * (1 + 1e-9)
    assert "others may be" in str(some)
    stopped = psfit.near_optimal(model, X, y, within=0.5, callback=lambda progress: True)
    assert not stopped.complete


def test_entries_of_softmax_are_named_by_feature_and_class():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.array(["a", "b", "c"])[np.argmax(X + 0.5 * rng.normal(size=(60, 3)), axis=1)]
    model = psfit.SparseSoftmaxRegression(3).fit(X, y)
    found = psfit.near_optimal(model, X, y, within=0.05)
    assert found.complete
    assert found.names[0] == "feature 0 [a]"
    assert found.supports.shape[1] == 9
    assert (found.supports.sum(axis=1) == 3).all()
    assert found.objectives[0] == pytest.approx(model.objective_, rel=1e-4)


def listing(supports):
    supports = np.array(supports, dtype=bool)
    return NearOptimal(supports, np.arange(1.0, len(supports) + 1), list("wxyz"), 0.1, 9.0, np.inf, 7, 0.5)


def test_frequencies_and_pairs_that_replace_each_other():
    found = listing([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]])
    np.testing.assert_allclose(found.frequencies, [2 / 3, 2 / 3, 1 / 3, 1 / 3])
    pairs = {(row["one"], row["other"]): row["times"] for row in found.replacements()}
    assert pairs == {("x", "y"): 1, ("w", "z"): 1}
    assert found.rows()[1] == {"objective": 2.0, "excess": 1.0, "features": ["w", "y"]}
    assert "no other support is" in str(found)
    assert "replace each other" in str(found)


def test_the_picture_has_a_bar_for_each_feature_that_occurs():
    found = listing([[1, 1, 0, 0], [1, 0, 1, 0]])
    axes = psfit.plots.plot_near_optimal(found)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["w", "x", "y"]
    assert [bar.get_width() for bar in axes.patches] == [1.0, 0.5, 0.5]
    assert "all of them" in axes.get_title()


def test_other_samples_and_senseless_arguments_are_refused():
    model, X, y, *_ = make("logistic", 0, features=6, kappa=2, gamma=1.0)
    with pytest.raises(ValueError, match="samples, weights and settings"):
        psfit.near_optimal(model, X[:20], y[:20])
    with pytest.raises(ValueError, match="within"):
        psfit.near_optimal(model, X, y, within=-1)
    with pytest.raises(ValueError, match="at_most"):
        psfit.near_optimal(model, X, y, at_most=0)
    both = psfit.SparseLinearRegression(2).fit(X, np.stack([y, X[:, 0]], axis=1))
    with pytest.raises(ValueError, match="independent targets"):
        psfit.near_optimal(both, X, np.stack([y, X[:, 0]], axis=1))


def test_weights_and_single_precision():
    model, X, y, *_ = make("squared", 0, features=6, kappa=2, gamma=1.0)
    weight = np.random.default_rng(0).uniform(0.5, 2, size=len(y))
    model = psfit.SparseLinearRegression(2).fit(torch.from_numpy(X).float(), y, sample_weight=weight)
    found = psfit.near_optimal(model, torch.from_numpy(X).float(), y, sample_weight=weight, within=0.2)
    assert found.complete
    assert tuple(np.flatnonzero(found.supports[0])) == tuple(model.support_)
