"""The extensions in the documentation work; expected values come from independent code."""

import copy
import importlib.util
import itertools
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from launch import command, run
from scipy.optimize import minimize, minimize_scalar

import psfit
from psfit import BiCADMM, GridSpec, SparseLinearRegression, losses
from psfit.admm.local import Subproblem
from psfit.comm import Axis, Serial
from psfit.data import Dense, Source
from psfit.estimators import registry
from psfit.estimators.persistence.archive import ModelFileError
from psfit.estimators.targets import Numbers
from psfit.losses import Logistic, Squared

FOLDER = Path(__file__).parents[2] / "examples/extending"


def module(name: str):
    """An example as a module; dataclasses look for it among the loaded ones."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def pseudo_huber(r, delta):
    """The formula of the loss, written a second time."""
    return 2 * delta**2 * (np.sqrt(1 + (r / delta) ** 2) - 1)


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(3)
    eta, b = torch.tensor(3 * rng.normal(size=(40, 2))), torch.tensor(rng.normal(size=(40, 2)))
    return eta, b


@pytest.mark.parametrize("delta", [0.3, 1.35])
def test_the_loss_and_its_derivatives(samples, delta):
    loss = module("pseudo_huber").PseudoHuber(delta)
    eta, b = samples
    np.testing.assert_allclose(loss.value(eta, b), pseudo_huber((eta - b).numpy(), delta), rtol=1e-12, atol=1e-14)
    moving = eta.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss.value(moving, b).sum(), moving, create_graph=True)
    np.testing.assert_allclose(loss.gradient(eta, b), slope.detach(), rtol=1e-9)
    (bend,) = torch.autograd.grad(slope.sum(), moving)
    np.testing.assert_allclose(loss.curvature(eta, b), bend, rtol=1e-9)


@pytest.mark.parametrize("step", [0.01, 1.0, 100.0])
def test_the_prox_and_the_conjugate_of_the_loss(samples, step):
    loss = module("pseudo_huber").PseudoHuber(0.5)
    v, b = samples
    w = loss.prox(v, b, step)
    np.testing.assert_allclose(w + step * loss.gradient(w, b), v, rtol=1e-12, atol=1e-12)
    slopes = torch.linspace(-0.99, 0.99, 9, dtype=torch.float64).reshape(-1, 1)
    target = torch.full_like(slopes, 0.7)
    for a, found in zip(slopes[:, 0].tolist(), loss.conjugate(slopes, target)[:, 0].tolist(), strict=True):
        best = minimize_scalar(lambda eta, a=a: pseudo_huber(eta - 0.7, 0.5) - a * eta, bounds=(-50, 50))
        assert found == pytest.approx(-best.fun, rel=1e-6, abs=1e-9)
    assert loss.conjugate(torch.tensor([[1.01]]), torch.tensor([[0.0]])).item() == np.inf


def test_a_fit_with_the_loss_is_the_best_of_all_supports():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 6))
    y = X[:, 1] - X[:, 4] + 0.2 * rng.normal(size=60)
    y[::9] += 20
    result = module("pseudo_huber").fit(X, y, kappa=2, gamma=0.5)
    best = best_objective(X, y, 2, 0.5, 1.35)
    assert result.objective == pytest.approx(best, rel=1e-8)
    assert result.lower_bound <= best * (1 + 1e-8)
    assert result.gap < 0.05


def test_conjugate_gradients_solve_the_nodes_systems():
    rng = np.random.default_rng(7)
    A, b, sample = rng.normal(size=(30, 5)), rng.normal(size=(30, 2)), rng.uniform(0.5, 2, size=(30, 1))
    w, v = rng.uniform(0.5, 2, size=(5, 1)), rng.normal(size=(2, 5, 2))
    source = Source(Dense(torch.tensor(A)), torch.tensor(b), torch.tensor(sample))
    sub = Subproblem(Squared(), source.split(2), torch.tensor(w), (slice(0, 5),), Axis(1, Serial()), 1.0)
    solver = module("conjugate_gradient").ConjugateGradient()
    state = solver.prox(sub, solver.init(sub, torch.zeros(2, 5, 2, dtype=torch.float64)), torch.tensor(v), 0.0)
    for node, rows in enumerate([slice(0, 15), slice(15, 30)]):
        D = np.diag(sample[rows, 0])
        system = np.diag(w[:, 0]) + 2 * A[rows].T @ D @ A[rows]
        expected = np.linalg.solve(system, w * v[node] + 2 * A[rows].T @ D @ b[rows])
        np.testing.assert_allclose(state.x[node], expected, rtol=1e-9, atol=1e-10)
    assert "newton" in solver.objection(Logistic(), 1)
    assert "feature_split" in solver.objection(Squared(), 2)


def test_an_estimator_takes_the_local_solver():
    rng = np.random.default_rng(9)
    X = rng.normal(size=(120, 25))
    y = X[:, [2, 11, 19]] @ [1.0, -2.0, 1.5] + 0.5 * rng.normal(size=120)
    own = BiCADMM(local=module("conjugate_gradient").ConjugateGradient())
    usual = SparseLinearRegression(3, gamma=10.0).fit(X, y)
    model = SparseLinearRegression(3, gamma=10.0, solver=own, grid=GridSpec(nodes=3)).fit(X, y)
    assert model.result_.local == "conjugate_gradient"
    np.testing.assert_allclose(model.coef_, usual.coef_, rtol=1e-8)


def test_a_communicator_hears_everything_and_no_sample():
    done = run(command("torch", 2, str(FOLDER / "listening.py")))
    assert done.returncode == 0, done.stderr
    assert "features [ 3 11]; this rank holds 2000 samples" in done.stdout
    said = re.findall(r"(\S.*): +(\d+) messages, the longest of (\d+) numbers", done.stdout)
    assert [phase for phase, _, _ in said][-3:] == ["the iteration", "the polish", "the proof"]
    # The longest is the Gram matrix of 20 features and the intercept.
    assert max(int(longest) for _, _, longest in said) == 21**2


@pytest.mark.parametrize("name", ["pseudo_huber", "conjugate_gradient"])
def test_the_programs_run(name, capsys):
    module(name).main()
    registry.LOSSES.pop(name, None)
    said = capsys.readouterr().out
    assert "2, 7, 13" in said if name == "pseudo_huber" else said.count("support [0 1 2 3]") == 2


@pytest.fixture
def example():
    """The example, registered by its one line; forgotten afterwards."""
    loaded = module("pseudo_huber")
    registry.register(loaded.ENTRY)
    yield loaded
    registry.LOSSES.pop("pseudo_huber")


@pytest.fixture(scope="module")
def few():
    """Samples with outliers, few enough to try all supports."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(60, 5))
    y = X[:, 0] - X[:, 3] + 0.2 * rng.normal(size=60)
    y[::10] += 15
    return X, y


def best_objective(X, y, kappa, gamma, delta):
    """The least objective over all supports, by a minimiser of SciPy and the formula of this file."""

    def objective(support):
        def value(x):
            return pseudo_huber(X[:, support] @ x[1:] + x[0] - y, delta).sum() + x[1:] @ x[1:] / (2 * gamma)

        return minimize(value, np.zeros(1 + kappa), tol=1e-12).fun

    return min(objective(list(support)) for support in itertools.combinations(range(X.shape[1]), kappa))


def test_a_registered_loss_is_fitted_by_everything_that_takes_losses(example, few):
    X, y = few
    best = best_objective(X, y, 2, 0.5, 0.8)
    settings = {"loss": "pseudo_huber", "huber_delta": 0.8}
    model = SparseLinearRegression(2, gamma=0.5, **settings).fit(X, y)
    assert model.objective_ == pytest.approx(best, rel=1e-8)
    assert model.lower_bound_ <= best
    chosen = psfit.SparseLinearRegressionCV([2], gammas=0.5, cv=3, **settings).fit(X, y)
    assert chosen.objective_ == pytest.approx(best, rel=1e-8)
    # Without an estimator the field has the default of the class.
    path = psfit.sparse_path(X, y, [1, 2], gammas=0.5, loss="pseudo_huber")
    assert path.objectives[0, 1] == pytest.approx(best_objective(X, y, 2, 0.5, 1.35), rel=1e-8)
    stable = psfit.stability_selection(X, y, [2], gamma=0.5, loss="pseudo_huber", resamples=4, random_state=0)
    assert stable.frequencies.sum() == pytest.approx(2)


def test_a_registered_loss_reports_exports_and_saves(example, few, tmp_path):
    X, y = few
    model = SparseLinearRegression(2, loss="pseudo_huber", huber_delta=0.8).fit(X, y)
    page = psfit.report(model, X=X, y=y)
    assert "Sparse robust linear regression" in page
    assert "0.8: much larger residuals count linearly" in page
    mean_loss = pseudo_huber(X @ model.coef_ + model.intercept_ - y, 0.8).mean()
    assert f"{mean_loss:.4g}" in page
    # Nobody has said whether its curvature vanishes.
    assert "can be close to zero" not in psfit.report(with_a_wide_gap(model))
    model.to_csv(tmp_path / "coefficients.csv")
    np.testing.assert_allclose(model.to_sklearn().predict(X), X @ model.coef_ + model.intercept_, rtol=1e-12)
    psfit.save(model, tmp_path / "model.psfit")
    np.testing.assert_array_equal(psfit.load(tmp_path / "model.psfit").predict(X), model.predict(X))


def test_what_a_registered_loss_lacks_is_said(example, few, tmp_path, monkeypatch):
    X, y = few
    model = SparseLinearRegression(2, loss="pseudo_huber").fit(X, y)
    psfit.save(model, tmp_path / "model.psfit")
    with pytest.raises(ValueError, match="needs a likelihood, and the pseudo_huber loss is not one"):
        psfit.SparseLinearRegressionCV([1, 2], loss="pseudo_huber", criterion="bic").fit(X, y)
    with pytest.raises(ValueError, match="loss='pseudo_huber' must be 'squared_hinge' or 'hinge'"):
        psfit.SparseSVC(2, loss="pseudo_huber").fit(X, y > 0)
    with pytest.raises(ValueError, match="'squared' is the name of a built-in loss"):
        registry.register(registry.LOSSES["squared"])
    # A program that has not registered the loss.
    monkeypatch.delitem(registry.LOSSES, "pseudo_huber")
    with pytest.raises(ModelFileError, match="no loss 'pseudo_huber'; if it is a loss of your own, register it"):
        psfit.load(tmp_path / "model.psfit")
    with pytest.raises(ValueError, match="loss='pseudo_huber' must be 'squared' or 'huber'"):
        SparseLinearRegression(2, loss="pseudo_huber").fit(X, y)


def test_attributes_of_a_loss_say_what_others_need(few, monkeypatch):
    """The same loss with a likelihood and without texts: criteria work, and reports use its name."""
    X, y = few
    plain = module("pseudo_huber").PseudoHuber

    @dataclass(frozen=True)
    class Likely(plain):
        name = "likely"
        fits = formula = None
        likelihood = True
        curvature_vanishes = True

    monkeypatch.setitem(registry.LOSSES, "likely", registry.Entry(Likely, Numbers, "SparseLinearRegression"))
    chosen = psfit.SparseLinearRegressionCV([1, 2, 3], gammas=0.5, loss="likely", criterion="bic").fit(X, y)
    # Twice the losses, and the logarithm of the samples for every coefficient and the intercept.
    losses = [pseudo_huber(X @ c[:, 0] + i[0] - y, 1.35).sum() for c, i in zip(*path_models(X, y), strict=True)]
    expected = [2 * loss + np.log(60) * (kappa + 1) for kappa, loss in enumerate(losses, 1)]
    np.testing.assert_allclose(-chosen.selection_.scores[0], expected, rtol=1e-6)
    page = psfit.report(with_a_wide_gap(chosen))
    assert "Sparse model with the likely loss" in page
    assert "The curvature of the likely loss can be close to zero" in page


def with_a_wide_gap(model):
    """A copy whose proof is as bad as it can be: reports then give advice."""
    changed = copy.copy(model)
    changed.result_ = replace(model.result_, lower_bounds=np.zeros(1), certain_in=0)
    return changed


def path_models(X, y):
    path = psfit.sparse_path(X, y, [1, 2, 3], gammas=0.5, loss="likely")
    return path.coefs[0], path.intercepts[0]


def test_only_models_and_paths_are_reported(few):
    model = SparseLinearRegression(2).fit(*few)
    with pytest.raises(TypeError, match="model is a Result, but must be a fitted PsFiT model"):
        psfit.report(model.result_)


class OwnRegression(SparseLinearRegression):
    """An estimator from outside."""


def test_an_estimator_from_outside_reports_but_has_no_file(few, tmp_path):
    model = OwnRegression(2).fit(*few)
    assert f"from {__name__} import OwnRegression" in psfit.report(model)
    with pytest.raises(ModelFileError, match="OwnRegression is not one of PsFiT's own models"):
        psfit.save(model, tmp_path / "model.psfit")


def test_every_built_in_loss_is_registered_and_explained():
    kinds = {kind for kind in vars(losses).values() if isinstance(kind, type) and issubclass(kind, losses.Loss)}
    assert kinds - {losses.Loss} == {registry.LOSSES[name].loss for name in registry.BUILT_IN}
    for kind in kinds - {losses.Loss}:
        assert kind.fits
        assert kind.formula
        assert kind.curvature_vanishes is not None


def test_a_storage_from_outside_has_the_products_and_the_answer_of_a_tensor():
    bits = module("bits")
    rng = np.random.default_rng(2)
    values = rng.random((150, 13)) < 0.4
    matrix = bits.Bits.pack(values)
    X, R = torch.tensor(rng.normal(size=(13, 2))).float(), torch.tensor(rng.normal(size=(150, 2))).float()
    np.testing.assert_allclose(matrix.mv(X), values @ X.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(matrix.rmv(R), values.T @ R.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(matrix.rows(40, 90).columns(torch.tensor([2, 11])).values, values[40:90, [2, 11]])
    labels = np.where(rng.random(150) < 1 / (1 + np.exp(-3.0 * values[:, 4] + 1)), 1, -1)
    result = bits.fit(matrix, labels, 2)

    def objective(support):
        columns = values[:, support].astype(float)

        def value(x):
            return np.logaddexp(0, -labels * (columns @ x[1:] + x[0])).sum() + x[1:] @ x[1:] / 0.2

        return minimize(value, np.zeros(3), tol=1e-12).fun

    best = min(objective(list(pair)) for pair in itertools.combinations(range(13), 2))
    assert result.objective == pytest.approx(best, rel=1e-7)
    assert result.lower_bound <= best * (1 + 1e-9)


@pytest.mark.parametrize(("variables", "kappa"), [(3, 2), (6, 4)])
def test_a_constraint_from_outside_is_kept_and_the_best_support_within_it_is_found(variables, kappa):
    """Few supports are all tried; more of them are searched."""
    example = module("one_of_each")
    rng = np.random.default_rng(variables)
    base = rng.normal(size=(80, variables))
    X = np.concatenate([base + 0.3 * rng.normal(size=base.shape) for _ in range(3)], axis=1)
    y = X @ rng.normal(size=X.shape[1]) + rng.normal(size=80)
    groups = tuple(range(variables)) * 3
    result = example.fit(X, y, groups, kappa)
    assert len({groups[j] for j in result.support}) == len(result.support) == kappa

    def objective(support):
        A = np.column_stack([X[:, support], np.ones(80)])
        ridge = np.diag([0.5] * len(support) + [0.0])
        x = np.linalg.solve(A.T @ A + ridge, A.T @ y)
        return ((A @ x - y) ** 2).sum() + x @ ridge @ x

    supports = itertools.combinations(range(X.shape[1]), kappa)
    allowed = [list(s) for s in supports if len({groups[j] for j in s}) == kappa]
    best = min(map(objective, allowed))
    assert result.objective == pytest.approx(best, rel=1e-9)
    assert result.lower_bound <= best * (1 + 1e-9)


def test_exact_mode_proves_a_constraint_on_supports():
    example = module("one_of_each")
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(40, 6)), rng.normal(size=40)
    source = Source(Dense(torch.tensor(A)), torch.tensor(b).unsqueeze(1), torch.ones(40, 1))
    problem = example.GroupedProblem(Squared(), (2,), groups=(0, 0, 1, 1, 2, 2))
    result = psfit.solve(problem, source, BiCADMM(exact=True))

    def objective(pair):
        X, y = A[:, pair] - A[:, pair].mean(axis=0), b - b.mean()
        x = np.linalg.solve(2 * X.T @ X + np.eye(2), 2 * X.T @ y)
        return np.square(X @ x - y).sum() + 0.5 * x @ x

    pairs = [pair for pair in itertools.combinations(range(6), 2) if pair[0] // 2 != pair[1] // 2]
    assert result.objective == pytest.approx(min(objective(list(pair)) for pair in pairs), rel=1e-9)
    assert result.objective - result.lower_bound <= 1e-4 * result.objective
    domain = problem.domain(problem.items(6, 1), 2, torch.device("cpu"))
    assert not domain.counts_only
    assert domain.allows(torch.tensor([True, False, False, True, False, False]))
    assert not domain.allows(torch.tensor([True, True, False, False, False, False]))
