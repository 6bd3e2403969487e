"""Paths over kappa and gamma: against enumeration, separate fits, other grids and forms of data."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from enumeration import best_objective
from problems import LOSSES, make_source
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

import psfit
from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve, sparse_path
from psfit.data import Streamed
from psfit.data.streamed import ArrayRows
from psfit.losses import Hinge, Logistic, Softmax, Squared
from psfit.pipeline.path import solve_path
from psfit.problem import costs

KAPPAS = [1, 2, 3, 5, 8]


# All supports of all classes together are too many; softmax has a test of its own.
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if not loss.joint], ids=lambda loss: loss.name)
def test_every_limit_has_the_best_support(loss):
    source = make_source(loss, samples=70, features=8, nonzeros=3, seed=4)
    problem = Problem(loss, (1,), gamma=2.0)
    (path,) = solve_path(problem, source, KAPPAS, [2.0])
    for k, kappa in enumerate(KAPPAS):
        best = best_objective(Problem(loss, (kappa,), gamma=2.0), source)
        assert path.objectives[k] == pytest.approx(best, rel=1e-6)
        assert path.lower_bounds[k] <= best + 1e-9 * abs(best)
        assert np.count_nonzero(path.coefs[k]) <= kappa
    assert (np.diff(path.objectives) <= 0).all()


@pytest.mark.parametrize("sparsity", ["element", "feature"])
def test_softmax_paths_count_what_they_should(sparsity):
    source = make_source(Softmax(), samples=80, features=5, nonzeros=2, seed=1)
    problem = Problem(Softmax(), (1,), gamma=2.0, sparsity=sparsity)
    (path,) = solve_path(problem, source, [1, 2, 4], [2.0])
    for k, kappa in enumerate([1, 2, 4]):
        best = best_objective(Problem(Softmax(), (kappa,), gamma=2.0, sparsity=sparsity), source)
        assert path.objectives[k] == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_path_is_as_good_as_separate_fits(seed):
    source = make_source(Squared(), samples=120, features=30, nonzeros=8, seed=seed, correlation=0.8)
    kappas = list(range(1, 21))
    (path,) = solve_path(Problem(Squared(), (1,), 5.0), source, kappas, [5.0])
    separate = np.array([solve(Problem(Squared(), (kappa,), 5.0), source).objective for kappa in kappas])
    excess = path.objectives / separate - 1
    assert excess.max() <= 1e-3
    assert excess.mean() <= 1e-6


@pytest.mark.parametrize("nodes", [2, 5])
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
def test_nodes_do_not_matter(loss, nodes):
    source = make_source(loss, samples=90, features=10, nonzeros=3, seed=7)
    problem = Problem(loss, (1,), gamma=3.0)
    one, many = (solve_path(problem, source, KAPPAS, [3.0], grid=GridSpec(nodes=k))[0] for k in (1, nodes))
    np.testing.assert_allclose(many.objectives, one.objectives, rtol=1e-8)
    np.testing.assert_allclose(many.coefs, one.coefs, atol=1e-5)


def test_rows_that_pass_by():
    source = make_source(Squared(), samples=300, features=12, nonzeros=3, seed=2)
    stream = Streamed(ArrayRows(source.matrix.values.numpy()), torch.device("cpu"), torch.float64, 0)
    problem = Problem(Squared(), (1,), gamma=3.0)
    (control,) = solve_path(problem, source, KAPPAS, [3.0])
    (passing,) = solve_path(problem, Source(stream, source.target, source.weight), KAPPAS, [3.0])
    np.testing.assert_allclose(passing.objectives, control.objectives, rtol=1e-9)
    # The moments, the joint refits and the bounds: not a pass for each of the limits.
    assert stream.rows_read <= 8 * 300


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
def test_a_path_on_candidate_columns(loss, monkeypatch):
    source = make_source(loss, samples=100, features=300, nonzeros=3, seed=2)
    problem = Problem(loss, (1,), gamma=3.0)
    (whole,) = solve_path(problem, source, [1, 2, 4], [3.0])
    monkeypatch.setattr(costs, "MOST_NUMBERS", 1)
    (part,) = solve_path(problem, source, [1, 2, 4], [3.0])
    np.testing.assert_allclose(part.objectives, whole.objectives, rtol=1e-6)
    assert (part.lower_bounds <= part.objectives).all()


def test_several_gammas_and_targets():
    source = make_source(Squared(), samples=100, features=9, nonzeros=3, seed=3)
    two = Source(source.matrix, torch.cat([source.target, source.target.flip(0)], dim=1), source.weight)
    paths = solve_path(Problem(Squared(), (1, 1)), two, [1, 3], [0.5, 20.0])
    for path, gamma in zip(paths, (0.5, 20.0), strict=True):
        for k, kappa in enumerate((1, 3)):
            fit = solve(Problem(Squared(), (kappa, kappa), gamma), two)
            assert path.objectives[k] == pytest.approx(fit.objective, rel=1e-9)
            assert path.lower_bounds[k] <= fit.objective


def test_a_path_without_a_certificate_or_with_low_effort():
    source = make_source(Squared(), samples=100, features=9, nonzeros=3, seed=3)
    problem = Problem(Squared(), (1,), gamma=3.0)
    (bare,) = solve_path(problem, source, [1, 4], [3.0], certify=False)
    assert np.isneginf(bare.lower_bounds).all()
    (low,) = solve_path(problem, source, [1, 4], [3.0], BiCADMM(effort="low"))
    assert (low.objectives >= bare.objectives * (1 - 1e-9)).all()


class TestSparsePath:
    def test_a_table_with_names(self):
        X, y = load_diabetes(return_X_y=True, as_frame=True)
        path = sparse_path(X, y, [3, 1, 2])
        assert path.kappas.tolist() == [1, 2, 3]
        frame = path.to_frame()
        assert frame["features"].tolist()[0] == ["bmi"]
        assert frame.columns.tolist() == ["gamma", "kappa", "objective", "lower_bound", "gap", "features"]
        assert frame["gap"].between(0, 1).all()
        for kappa in (1, 2, 3):
            model = psfit.SparseLinearRegression(kappa).fit(X, y)
            assert path.support(kappa).tolist() == model.support_.tolist()
            np.testing.assert_allclose(path.coef(kappa)[:, 0], model.coef_, rtol=1e-6)
            np.testing.assert_allclose(path.intercept(kappa), model.intercept_, rtol=1e-9)
        assert "3 limits" in str(path)

    def test_all_limits_by_default(self):
        X, y = load_diabetes(return_X_y=True)
        assert sparse_path(X, y).kappas.tolist() == list(range(1, 11))

    @pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "hinge"])
    def test_classes(self, loss):
        X, y = load_breast_cancer(return_X_y=True)
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        path = sparse_path(X[:, :8], y, [1, 3], loss=loss, gammas=[0.1, 1.0])
        assert path.objectives.shape == (2, 2)
        assert (np.diff(path.objectives, axis=1) < 0).all()
        assert len(path.support(3, gamma=1.0)) == 3

    def test_more_than_two_classes_and_counts(self):
        X, y = load_iris(return_X_y=True)
        assert sparse_path(X, y, [2, 6], loss="logistic").coefs.shape == (1, 2, 4, 3)
        assert sparse_path(X, y, [1, 2], loss="poisson").coefs.shape == (1, 2, 4, 1)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"kappas": []}, "kappas"),
            ({"kappas": [0, 2]}, "integers of at least 1"),
            ({"kappas": [1.5]}, "integers"),
            ({"kappas": 3}, "sequence of integers"),
            ({"kappas": ["a"]}, "sequence of integers"),
            ({"kappas": [11]}, "between 1 and 10"),
            ({"loss": "cubic"}, "loss='cubic' must be"),
            ({"gammas": [1.0, -1.0]}, "gammas"),
            ({"gammas": []}, "gammas"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, given, message):
        X, y = load_diabetes(return_X_y=True)
        with pytest.raises(ValueError, match=message):
            sparse_path(X, y, **given)

    def test_what_is_not_on_the_path(self):
        X, y = load_diabetes(return_X_y=True)
        path = sparse_path(X, y, [1, 2], gammas=[1.0, 2.0])
        with pytest.raises(ValueError, match="pass one of"):
            path.coef(1)
        with pytest.raises(ValueError, match="kappa=3 is not on the path"):
            path.coef(3, 1.0)
        with pytest.raises(ValueError, match=r"gamma=5.0 is not on the path"):
            path.support(1, 5.0)


def test_hinge_paths_need_no_second_derivatives():
    source = make_source(Hinge(), samples=60, features=6, nonzeros=2, seed=0)
    values = Dense(source.matrix.values.float())
    (path,) = solve_path(
        Problem(Hinge(), (1,), 1.0), Source(values, source.target.float(), source.weight.float()), [2, 6], [1.0]
    )
    assert path.objectives[1] <= path.objectives[0]


@pytest.mark.parametrize("features", [5, 60])
def test_pictures_of_a_path(features):
    import matplotlib

    matplotlib.use("Agg")
    from psfit.plots import MOST_NAMED, plot_gaps, plot_path

    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, features))
    y = X @ rng.normal(size=features)
    path = sparse_path(X, y, range(1, min(features, 20) + 1), gammas=[1.0, 10.0])
    axes = plot_path(path, 10.0)
    used = np.flatnonzero((path.coefs[1] != 0).any(axis=(0, 2)))
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(named) == min(len(used), MOST_NAMED)
    # A line for each feature in use, and the axis.
    assert len(axes.lines) == len(used) + 1
    assert f"feature {path.support(1, 10.0)[0]}" in named
    assert axes.get_xlabel() == "kappa, the limit on nonzero coefficients"
    assert plot_gaps(replace(path, counted="groups")).get_xlabel() == "kappa, the limit on groups"
    gaps = plot_gaps(path)
    np.testing.assert_allclose(gaps.lines[0].get_ydata(), np.maximum(path.gaps[0], 1e-16))
