"""The judge of the quality benchmark against scikit-learn and SciPy; and what benchmarks import of PsFiT."""

import ast
import re
from importlib import import_module
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

FOLDER = Path(__file__).parents[2] / "benchmarks/quality"


@pytest.fixture
def quality(monkeypatch):
    """The benchmark's modules, which find each other by their folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    from judge import Judge
    from search import best_known
    from suite import Case, Spec, draw

    return SimpleNamespace(Judge=Judge, best_known=best_known, Case=Case, Spec=Spec, draw=draw)


def small(quality, model, sparsity="element", kappa=3):
    spec = quality.Spec("small", model, samples=60, features=7, kappa=kappa, gamma=0.5, sparsity=sparsity)
    return quality.draw(spec, 0)


MODELS = {
    "linear": Ridge(alpha=1.0),
    "logistic": LogisticRegression(C=0.5, tol=1e-12, max_iter=10_000),
    "softmax": LogisticRegression(C=0.5, tol=1e-12, max_iter=10_000),
    # Its intercept pays a ridge, too, which is very small at this scale.
    "svm": LinearSVC(C=0.5, dual=False, tol=1e-12, max_iter=10_000, intercept_scaling=1e3),
}


@pytest.mark.parametrize("model", MODELS)
def test_a_refit_is_scikit_learns(quality, model):
    case = small(quality, model, "feature")
    judge, support = quality.Judge(case), np.array([1, 4, 6])
    fitted = MODELS[model].fit(case.X[:, support], case.y)
    coef = np.zeros((7, judge.outputs))
    coef[support] = np.atleast_2d(fitted.coef_).T
    expected = judge.value(coef, np.ravel(fitted.intercept_))
    assert judge.objective(support) == pytest.approx(expected, rel=1e-6)
    assert judge.objective(support) <= expected * (1 + 1e-12)
    assert judge.objective(np.arange(4)) == np.inf


def test_single_coefficients_of_softmax(quality):
    case = small(quality, "softmax")
    judge, support = quality.Judge(case), np.array([2, 9, 21])

    def value(theta):
        coef = np.zeros(7 * 4)
        coef[support] = theta[:3]
        return judge.value(coef.reshape(7, 4), theta[3:])

    expected = minimize(value, np.zeros(7), tol=1e-12, method="BFGS").fun
    assert judge.objective(support) == pytest.approx(expected, rel=1e-9)


def dependent(quality, model):
    """A repeated column, one that nearly is its copy, a constant one, one of zeros and one of other units."""
    spec = quality.Spec("dependent", model, samples=40, features=8, kappa=8, gamma=0.5)
    case = quality.draw(spec, 3)
    X = case.X.copy()
    X[:, 1], X[:, 2], X[:, 3], X[:, 4] = X[:, 0], X[:, 0] + 1e-7 * X[:, 2], 1.0, 0.0
    X[:, 5] *= 100
    return quality.Case(spec, 3, X, case.y)


@pytest.mark.parametrize("support", [[], [0], [0, 1, 2, 6], list(range(8))], ids=len)
@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_a_refit_on_dependent_columns_is_scipys(quality, model, support):
    """The problem is smooth and strongly convex in all but the intercept: a trust region gets to its minimum."""
    case = dependent(quality, model)
    A = np.column_stack([case.X[:, support], np.ones(len(case.X))])
    ridge = np.append(np.full(len(support), 1 / 0.5), 0.0)
    sign = np.where(case.y > 0, 1.0, -1.0)

    def value(theta):
        eta = A @ theta
        losses = np.square(eta - case.y) if model == "linear" else np.log1p(np.exp(-sign * eta))
        return losses.sum() + 0.5 * ridge @ np.square(theta)

    def gradient(theta):
        eta = A @ theta
        slope = 2 * (eta - case.y) if model == "linear" else -sign / (1 + np.exp(sign * eta))
        return A.T @ slope + ridge * theta

    def hessian(theta):
        share = 1 / (1 + np.exp(-A @ theta))
        bend = np.full(len(A), 2.0) if model == "linear" else share * (1 - share)
        return A.T @ (bend[:, None] * A) + np.diag(ridge)

    start = np.zeros(len(support) + 1)
    expected = minimize(value, start, jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-9})
    judge = quality.Judge(case)
    assert judge.objective(np.array(support, dtype=int)) == pytest.approx(expected.fun, rel=1e-10)
    theta, least = judge.refit(judge.unknowns(np.array(support, dtype=int)))
    assert value(theta) == pytest.approx(least, rel=1e-10)


def test_a_refit_with_more_features_than_samples(quality):
    """The normal equations of the samples, which are few, give the same number by another way."""
    case = quality.draw(quality.Spec("wide", samples=20, features=50, kappa=50, gamma=2.0), 0)
    X, y = case.X - case.X.mean(axis=0), case.y - case.y.mean()
    # min ||Xx - y||^2 + ||x||^2 / (2 gamma) = y'(I + 2 gamma XX')^-1 y.
    expected = y @ np.linalg.solve(np.eye(20) + 4.0 * X @ X.T, y)
    assert quality.Judge(case).objective(np.arange(50)) == pytest.approx(expected, rel=1e-10)


def test_a_refit_that_is_no_minimum_is_refused(quality, monkeypatch):
    monkeypatch.setattr("judge.MOST_STEPS", 1)
    with pytest.raises(ArithmeticError, match="found no minimum"):
        quality.Judge(small(quality, "logistic")).objective(np.arange(3))


@pytest.mark.parametrize("model", ["linear", "logistic", "svm"])
def test_the_best_known_objective_is_that_of_all_supports(quality, model):
    judge = quality.Judge(small(quality, model, kappa=2))
    expected = min(judge.objective(np.array(pair)) for pair in combinations(range(7), 2))
    assert quality.best_known(judge, 5) == pytest.approx(expected, rel=1e-9)


def test_the_value_is_the_formula(quality):
    case = small(quality, "logistic")
    coef, intercept = np.linspace(-1, 1, 7)[:, None], np.array([0.3])
    margin = np.where(case.y == 1, 1, -1) * (case.X @ coef[:, 0] + 0.3)
    expected = np.log(1 + np.exp(-margin)).sum() + np.square(coef).sum()
    assert quality.Judge(case).value(coef, intercept) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["basis", "judge", "formulas", "search", "suite"])
def test_the_judge_uses_nothing_of_psfit(name):
    imported = re.findall(r"^(?:from|import) (\w+)", (FOLDER / f"{name}.py").read_text(), re.MULTILINE)
    assert {"psfit", "torch"}.isdisjoint(imported)


@pytest.mark.parametrize(
    "path", sorted(FOLDER.parent.rglob("*.py")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_what_a_benchmark_imports_of_psfit_is_there(path):
    """Benchmarks run rarely; this test finds names that have moved."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "psfit":
            module = import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name), (node.module, name.name)
