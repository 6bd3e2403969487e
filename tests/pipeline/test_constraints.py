"""Whole fits with demands on the coefficients, against the optimum over all supports and against each other."""

import numpy as np
import pytest
import torch
from constrained import check

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.losses import Logistic, Squared
from psfit.pipeline.path import solve_path
from psfit.problem import Constraints

SEEDS = range(12)
SIGNS = np.where(np.arange(30) % 2, 1.0, -1.0)[:, None]
DEMANDS = {
    "forced": Constraints(include=(3, 8), exclude=(0,)),
    "signs": Constraints(lower=np.where(SIGNS > 0, 0.0, -np.inf), upper=np.where(SIGNS < 0, 0.0, np.inf)),
    "box": Constraints(lower=np.full((30, 1), -0.2), upper=np.full((30, 1), 0.4)),
    "lags": Constraints(kind=np.arange(30) // 3, at_most=np.ones(10, dtype=int)),
    "parents": Constraints(parents=tuple((20 + j, (j, j + 1)) for j in range(10)), heredity="strong"),
}


# Columns that depend on each other, with heredity; intercepts without curvature; a model without variables.
@pytest.mark.parametrize("seed", [*SEEDS, 1185, 1311, 3363])
def test_the_default_never_proves_or_promises_too_much(seed):
    assert check(seed, exact=False) == ""


# A class without samples; items that must be in, and whose parents kappa does not allow.
@pytest.mark.parametrize("seed", [*SEEDS, 1041, 1068])
def test_exact_mode_finds_and_proves_the_optimum(seed):
    assert check(seed, exact=True) == ""


def make_source(loss, samples=120, features=30):
    rng = np.random.default_rng(5)
    A = rng.normal(size=(samples, features))
    A[:, 1:] += 0.6 * A[:, :-1]
    eta = A @ np.where(np.arange(features) % 6 == 1, 0.8, 0.0)
    b = eta + rng.normal(size=samples) if loss.quadratic else np.where(eta + rng.logistic(size=samples) > 0, 1.0, -1.0)
    target = torch.from_numpy(b).unsqueeze(1)
    return Source(Dense(torch.from_numpy(A)), target, torch.ones_like(target))


@pytest.mark.parametrize(
    ("demand", "loss"),
    [(demand, Squared()) for demand in DEMANDS] + [("signs", Logistic()), ("box", Logistic())],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_path_and_other_grids_have_the_answer_of_the_fit(demand, loss):
    source, constraints = make_source(loss), DEMANDS[demand]
    problem = Problem(loss, (4,), 1.0, constraints=constraints)
    control = solve(problem, source, grid=GridSpec(device="cpu", backend="serial"))
    for nodes, blocks in ((3, 1), (2, 2)):
        other = solve(problem, source, grid=GridSpec(nodes=nodes, blocks=blocks, device="cpu", backend="serial"))
        assert other.objective == pytest.approx(control.objective, rel=1e-6)
    (points,) = solve_path(problem, source, [2, 4, 6], [1.0], grid=GridSpec(device="cpu", backend="serial"))
    assert points.objectives[1] <= control.objective * (1 + 1e-3)
    assert (points.lower_bounds <= points.objectives).all()
    assert control.lower_bound <= points.objectives[1]
    low = -np.inf if constraints.lower is None else constraints.lower
    high = np.inf if constraints.upper is None else constraints.upper
    assert ((points.coefs >= low) & (points.coefs <= high)).all()
    assert (points.coefs[:, list(constraints.exclude)] == 0).all()
    assert (points.coefs[:, list(constraints.include)] != 0).all()


@pytest.mark.parametrize("demand", ["forced", "signs", "parents"])
def test_wide_data_in_candidates_have_an_allowed_answer(demand, monkeypatch):
    monkeypatch.setitem(__import__("psfit.problem.costs", fromlist=["x"]).CHEAP_PRODUCT, "cpu", 1e3)
    rng = np.random.default_rng(0)
    A = rng.normal(size=(60, 400))
    b = A[:, 31] + A[:, 3] - A[:, 20] + 0.1 * rng.normal(size=60)
    target = torch.from_numpy(b).unsqueeze(1)
    source = Source(Dense(torch.from_numpy(A)), target, torch.ones_like(target))
    wide = {
        "forced": Constraints(include=(7,), exclude=(3,)),
        "signs": Constraints(lower=np.zeros((400, 1))),
        "parents": Constraints(parents=((31, (100, 101)),)),
    }[demand]
    result = solve(Problem(Squared(), (5,), 10.0, constraints=wide), source, BiCADMM())
    support = set(result.support.tolist())
    assert result.candidates < 400
    assert result.lower_bound <= result.objective
    if demand == "forced":
        assert 7 in support
        assert 3 not in support
    if demand == "signs":
        assert (result.coef >= 0).all()
        assert {31, 3} <= support
    if demand == "parents":
        assert 31 not in support or {100, 101} <= support


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
def test_a_path_begins_where_forced_features_take_the_whole_limit(loss):
    source, counted = make_source(loss), Constraints(include=(3, 8), count_included=True)
    problem = Problem(loss, (4,), 1.0, fit_intercept=False, constraints=counted)
    (points,) = solve_path(problem, source, [2, 3, 4], [1.0], grid=GridSpec(device="cpu", backend="serial"))
    assert np.flatnonzero(points.coefs[0]).tolist() == [3, 8]
    assert (np.diff(points.objectives) < 0).all()
    assert (points.coefs[:, [3, 8]] != 0).all()
