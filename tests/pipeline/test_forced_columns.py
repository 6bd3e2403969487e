"""Forced columns of wide problems are eliminated once: against least squares in NumPy, and enumeration."""

import numpy as np
import pytest
import torch
from scipy import optimize, special

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.losses import Logistic, Squared
from psfit.pipeline import forced_columns
from psfit.pipeline.answers import Answers, Iteration
from psfit.pipeline.forced_columns import shorten_forced_columns
from psfit.problem import Constraints
from psfit.problem.pose import pose
from psfit.search.refit import refit

SAMPLES, FEATURES, GAMMA = 25, 2200, 4.0
FORCED = tuple(range(3, FEATURES, 70))
SQUARED = Squared()
GRID = GridSpec(device="cpu", backend="serial")


def draw(targets=1, dtype=torch.float64):
    rng = np.random.default_rng(1)
    A = rng.normal(size=(SAMPLES, FEATURES)) * rng.uniform(0.5, 2.0, FEATURES) + rng.normal(size=FEATURES)
    B = A[:, [5, 6][:targets]] + A[:, FORCED] @ (0.1 * rng.normal(size=(len(FORCED), targets)))
    B = B + 0.1 * rng.normal(size=B.shape)
    weight = rng.integers(1, 4, size=(SAMPLES, 1)).astype(float)
    return Source(Dense(torch.from_numpy(A).to(dtype)), torch.from_numpy(B), torch.from_numpy(weight))


def make_problem(loss=SQUARED, kappa=(1,), intercept=True, **rules):
    return Problem(loss, kappa, GAMMA, "element", intercept, constraints=Constraints(FORCED, **rules))


def minimise(A, b, weight, ridge):
    """The least weighted squares with a ridge, by the equations for each coefficient; zero is no ridge."""
    x = np.linalg.solve(2 * A.T @ (weight * A) + np.diag(ridge), 2 * A.T @ (weight * b))
    return (weight * (b - A @ x) ** 2).sum() + 0.5 * ridge @ x[:, 0] ** 2


def best_objective(source, intercept=True):
    """The least objective with the forced columns and any other one."""
    A, b, weight = source.matrix.values.numpy(), source.target.numpy(), source.weight.numpy()
    one, best = np.ones((SAMPLES, int(intercept))), np.inf
    for j in set(range(FEATURES)) - set(FORCED):
        ridge = np.r_[np.full(len(FORCED) + 1, 1 / GAMMA), np.zeros(int(intercept))]
        best = min(best, minimise(np.hstack([A[:, [*FORCED, j]], one]), b, weight, ridge))
    return best


@pytest.mark.parametrize("spread", [np.inf, 0.0], ids=["by a factor", "by singular values"])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_problem_without_forced_columns_has_the_objective_of_the_best_coefficients(intercept, spread, monkeypatch):
    monkeypatch.setattr(forced_columns, "MOST_SPREAD", spread)
    inst = pose(make_problem(intercept=intercept), draw(), GRID.build(torch.device("cpu")))
    short = shorten_forced_columns(inst)
    assert short.rest.problem.kappa == (1,)
    assert not bool(short.rest.domain.inside.any())
    rng = np.random.default_rng(2)
    Z = torch.from_numpy(0.1 * rng.normal(size=(len(inst.ridge) - len(FORCED), 1)))
    A, weight = inst.source.matrix.chunk(0, SAMPLES, torch.float64).numpy(), inst.source.weight.numpy()
    at = [*short.kept.tolist(), *range(FEATURES, A.shape[1])]
    left = inst.source.target.numpy() - A[:, at] @ Z.numpy()
    ridge = inst.ridge[:, 0].numpy()
    expected = minimise(A[:, FORCED], left, weight, ridge[list(FORCED)]) + 0.5 * ridge[at] @ Z[:, 0].numpy() ** 2
    assert float(short.rest.objective(Z)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_fit_has_the_optimum_over_all_supports(exact, dtype):
    source = draw(dtype=dtype)
    result = solve(make_problem(), source, BiCADMM(exact=exact), GRID)
    double = Source(Dense(source.matrix.values.double()), source.target, source.weight)
    assert result.objective == pytest.approx(best_objective(double), rel=1e-5 if dtype == torch.float32 else 1e-8)
    assert result.lower_bound <= result.objective
    assert set(FORCED) < set(result.support.tolist())
    assert len(result.support) == len(FORCED) + 1


@pytest.mark.parametrize("gamma", [1e13, 1e16, np.inf])
def test_hardly_any_ridge_leaves_least_squares(gamma):
    source, forced = draw(), FORCED[:12]
    A, b, root = source.matrix.values.numpy(), source.target.numpy(), source.weight.sqrt().numpy()
    best = np.inf
    for j in set(range(FEATURES)) - set(forced):
        columns = root * np.hstack([A[:, [*forced, j]], np.ones((SAMPLES, 1))])
        x = np.linalg.lstsq(columns, root * b)[0]
        best = min(best, float(((root * b - columns @ x) ** 2).sum()))
    result = solve(Problem(SQUARED, (1,), gamma, constraints=Constraints(forced)), source, grid=GRID)
    assert result.objective == pytest.approx(best, rel=1e-7)
    assert set(forced) < set(result.support.tolist())


def test_targets_have_answers_of_their_own():
    both = draw(targets=2)
    single = [best_objective(Source(both.matrix, both.target[:, k : k + 1], both.weight)) for k in range(2)]
    assert solve(make_problem(kappa=(1, 1)), both, grid=GRID).objective == pytest.approx(sum(single), rel=1e-8)


def test_bounds_of_other_columns_hold():
    others = np.full((FEATURES, 1), -0.05)
    others[list(FORCED)] = -np.inf
    result = solve(make_problem(kappa=(3,), lower=others, upper=-others), draw(), grid=GRID)
    free = np.delete(result.coef, FORCED)
    assert np.count_nonzero(free) == 3
    assert np.abs(free).max() <= 0.05


def minimise_logistic(A, b, weight, ridge):
    """The least logistic losses with a ridge, by SciPy."""

    def evaluate(x):
        margin = b[:, 0] * (A @ x)
        slope = -weight[:, 0] * b[:, 0] * special.expit(-margin)
        value = (weight[:, 0] * np.logaddexp(0, -margin)).sum() + 0.5 * ridge @ x**2
        return value, A.T @ slope + ridge * x

    options = {"maxiter": 5000, "gtol": 1e-11, "ftol": 1e-15}
    return optimize.minimize(evaluate, np.zeros(A.shape[1]), jac=True, method="L-BFGS-B", options=options).fun


def test_other_losses_have_as_many_forced_columns_as_samples():
    source = draw()
    source = Source(source.matrix, (source.target - source.target.mean()).sign(), source.weight)
    inst = pose(make_problem(Logistic()), source, GRID.build(torch.device("cpu")))
    short = shorten_forced_columns(inst)
    assert short.rest.problem.kappa == (1 + SAMPLES,)
    carriers = [short.kept.tolist().index(feature) for feature in FORCED[:SAMPLES]]
    chosen = torch.zeros(len(short.kept), dtype=torch.bool)
    chosen[[*carriers, short.kept.tolist().index(5)]] = True
    fit = refit(short.rest, 0, chosen, torch.zeros(len(short.rest.ridge), 1, dtype=torch.float64))
    A, ridge = inst.source.matrix.chunk(0, SAMPLES, torch.float64).numpy(), inst.ridge[:, 0].numpy()
    at = [*FORCED, 5, FEATURES]
    expected = minimise_logistic(A[:, at], source.target.numpy(), source.weight.numpy(), ridge[at])
    assert fit.value == pytest.approx(expected, rel=1e-8)
    result = solve(make_problem(Logistic()), source, grid=GRID)
    assert len(result.support) == len(FORCED) + 1
    assert result.lower_bound <= result.objective <= expected * (1 + 1e-8)
    back = Answers.of(short.rest, [[fit]], Iteration.none())
    assert short.restore(back).objectives.item() == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    "problem",
    [
        Problem(Logistic(), (1,), GAMMA, constraints=Constraints(FORCED[:SAMPLES])),
        make_problem(lower=np.full((FEATURES, 1), -1.0)),
        make_problem(kind=np.zeros(FEATURES, dtype=int), at_most=np.array([FEATURES])),
        make_problem(parents=((FORCED[1], (FORCED[0],)),)),
    ],
    ids=["another loss with few of them", "bounds of forced columns", "kinds", "parents"],
)
def test_other_problems_keep_their_forced_columns(problem):
    source = draw()
    if not problem.loss.quadratic:
        source = Source(source.matrix, source.target.sign(), source.weight)
    assert shorten_forced_columns(pose(problem, source, GRID.build(torch.device("cpu")))) is None
