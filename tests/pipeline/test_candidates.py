"""Fits that look closely at a few candidate columns only: as good as fits on all of them."""

from functools import cache

import numpy as np
import pytest
import torch
from enumeration import best_objective
from problems import LOSSES, SPARSITIES, make_source

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.data import streamed
from psfit.data.streamed import ArrayRows
from psfit.losses import Logistic, Softmax, Squared
from psfit.pipeline import candidates as working
from psfit.problem import costs
from psfit.problem.pose import pose

CPU = torch.device("cpu")
MUCH = 1 << 40


@pytest.fixture
def too_large(monkeypatch):
    """No square matrix over the columns has room."""
    monkeypatch.setattr(costs, "MOST_NUMBERS", 1)


@pytest.fixture
def few(too_large, monkeypatch):
    """Candidates are so few that problems small enough for enumeration have many features that are none."""
    monkeypatch.setattr(costs.Costs, "first_candidates", property(lambda self: 2 * sum(self.problem.kappa)))


def streams(source, budget=MUCH):
    rows = ArrayRows(source.matrix.values.numpy())
    return Source(streamed.Streamed(rows, CPU, torch.float64, budget), source.target, source.weight, source.bounds)


def two_targets(source):
    return source.with_target(torch.cat([source.target, 3 * source.target.flip(0) + source.target], dim=1))


def no_worse(actual, expected, share=1e-6):
    assert actual <= expected + share * abs(expected)


@pytest.mark.parametrize("grid", [{}, {"nodes": 3}, {"blocks": 2}], ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_candidates_reach_objective_and_bound_of_the_full_fit(loss, grid, monkeypatch):
    source = make_source(loss, samples=150, features=130, nonzeros=3, seed=1)
    problem = Problem(loss, (3,), gamma=0.2)
    solver, spec = BiCADMM(effort="low"), GridSpec(device="cpu", **grid)
    full = solve(problem, source, solver, spec)
    monkeypatch.setattr(costs, "MOST_NUMBERS", 1)
    part = solve(problem, source, solver, spec)
    no_worse(part.objective, full.objective)
    assert full.candidates == 130
    assert part.candidates < 80
    assert part.lower_bound <= full.objective
    # The squared loss in memory has a stronger bound, from its eigenvalues.
    no_worse(full.lower_bound, part.lower_bound, 0.2 if loss.quadratic else 2e-2)


@pytest.mark.parametrize("loss", [Squared(), Softmax()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("sparsity", SPARSITIES)
def test_several_outputs(loss, sparsity, monkeypatch):
    source = make_source(loss, samples=150, features=150, nonzeros=4, seed=2)
    source = source if loss.joint else two_targets(source)
    kappa = (3,) if loss.joint or sparsity == "feature" else (3, 2)
    problem = Problem(loss, kappa, 0.02, sparsity)
    full = solve(problem, source)
    monkeypatch.setattr(costs, "MOST_NUMBERS", 1)
    part = solve(problem, source)
    assert part.candidates < 150
    np.testing.assert_allclose(part.objectives, full.objectives, rtol=1e-6)
    assert (part.lower_bounds <= part.objectives).all()
    assert (part.lower_bounds > 0.6 * part.objectives).all()


CASES = [(loss, "element") for loss in LOSSES] + [(Softmax(), "feature")]


ROOMS = {"in memory": None, "streamed": MUCH, "streamed, nothing held": 0}


@cache
def best_of_few(problem):
    return best_objective(problem, few_columns(problem.loss))


def few_columns(loss):
    return make_source(loss, samples=60, features=9 if loss.joint else 12, nonzeros=2, seed=3)


# Data in memory and one way of streaming for each loss; both ways for some of them.
@pytest.mark.parametrize(
    ("loss", "sparsity", "room"),
    [
        pytest.param(loss, sparsity, ROOMS[name], id=f"{loss.name}-{sparsity}-{name}")
        for k, (loss, sparsity) in enumerate(CASES)
        for place, name in enumerate(ROOMS)
        if place in (0, 1 + k % 2) or loss.name in ("squared", "logistic")
    ],
)
def test_few_candidates_reach_the_enumerated_optimum(loss, sparsity, room, few):
    source, problem = few_columns(loss), Problem(loss, (2,), 5.0, sparsity)
    features, best = source.matrix.shape[1], best_of_few(problem)
    effort = "low" if loss.name == "hinge" else "medium"
    result = solve(problem, source if room is None else streams(source, room), BiCADMM(effort=effort))
    # Without room for candidates all columns pass by again and again.
    assert (result.candidates < features) == (room != 0)
    assert result.objective >= best - 1e-6 * abs(best)
    assert result.objective == pytest.approx(best, rel=1e-5)
    assert result.lower_bound <= best + 1e-7 * abs(best)


@pytest.mark.parametrize(("gamma", "nodes"), [(0.01, 1), (10.0, 3)])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_bounds_by_candidates_never_exceed_the_optimum(loss, gamma, nodes, few):
    source = make_source(loss, samples=40, features=9, nonzeros=3, seed=4, correlation=0.9)
    problem = Problem(loss, (2,), gamma, "feature")
    best = best_objective(problem, source)
    result = solve(problem, source, BiCADMM(effort="low"), GridSpec(device="cpu", nodes=nodes))
    assert result.lower_bound <= best + 1e-7 * abs(best)
    if gamma < 1:
        assert result.gap < 0.2


def masked(loss, samples=400, features=300):
    """Features 3 and 7 count, but hide behind 0 and 1: in this sample, neither is correlated with the signal."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(samples, features))
    X = X - X.mean(0)
    X[:, [0, 1, 3, 7]] = np.linalg.qr(X[:, [0, 1, 3, 7]])[0] * np.sqrt(samples)
    for visible, hidden in ((0, 3), (1, 7)):
        X[:, hidden] = -0.8 * X[:, visible] + 0.6 * X[:, hidden]
    signal = 2 * X[:, 0] - 3 * X[:, 1] + 0.8 * (2 * X[:, 3] - 3 * X[:, 7])
    assert np.abs(X[:, [3, 7]].T @ signal).max() < 1e-9
    y = signal + 0.3 * rng.normal(size=samples)
    y = torch.tensor(y if loss.name == "squared" else np.sign(y)).reshape(-1, 1)
    return Source(Dense(torch.tensor(X)), y, torch.ones(samples, 1, dtype=torch.float64))


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
def test_newcomers_join_where_true_features_are_hidden(loss, too_large):
    source, problem = masked(loss), Problem(loss, (4,), 1.0)
    inst = pose(problem, source, GridSpec(device="cpu").build())
    first = working.rank_features(inst, None)[: inst.costs.first_candidates].tolist()
    assert {3, 7}.isdisjoint(first)
    result = solve(problem, source)
    assert result.support.tolist() == [0, 1, 3, 7]
    assert len(first) < result.candidates < 300


@pytest.mark.parametrize("numbers", [1, 500])
def test_newcomers_are_found_block_by_block(numbers, too_large, monkeypatch):
    monkeypatch.setattr(working, "BLOCK_NUMBERS", numbers)
    result = solve(Problem(Squared(), (4,), 1.0), masked(Squared()), BiCADMM(effort="low"))
    assert result.support.tolist() == [0, 1, 3, 7]


def test_a_warm_start_is_among_the_candidates(too_large):
    source, problem = masked(Squared()), Problem(Squared(), (4,), 1.0)
    inst = pose(problem, source, GridSpec(device="cpu").build())
    start = torch.zeros(301, 1, dtype=torch.float64)
    start[[3, 7, 299]] = 1e-3
    assert {3, 7, 299} <= set(working.rank_features(inst, start).tolist())


@pytest.mark.parametrize(("loss", "most"), [(Squared(), 6), (Logistic(), 25)], ids=["squared", "logistic"])
def test_passes_over_distant_data_are_few(loss, most, monkeypatch):
    monkeypatch.setattr(streamed, "BLOCK_BYTES", 100 * 150 * 8)
    source = make_source(loss, samples=1000, features=150, nonzeros=4, seed=5)
    problem = Problem(loss, (4,), 5.0)
    control = solve(problem, source)
    result = solve(problem, streams(source))
    assert control.passes == 0
    assert 1 < result.passes <= most
    assert result.support.tolist() == control.support.tolist()
    assert result.objective == pytest.approx(control.objective, rel=1e-6)
    assert f"data read {result.passes:.1f} times" in str(result)


@pytest.mark.parametrize("nodes", [1, 5, 20])
@pytest.mark.parametrize("place", [lambda source: source, streams], ids=["in memory", "distant"])
def test_the_proof_does_not_depend_on_how_many_nodes_share_the_rows(nodes, place):
    """Twenty nodes have fewer rows than columns each, but all together have more."""
    source = make_source(Squared(), samples=400, features=60, nonzeros=4, seed=7, correlation=0.5)
    problem = Problem(Squared(), (4,), 5.0)
    control = solve(problem, source, grid=GridSpec(device="cpu"))
    result = solve(problem, place(source), grid=GridSpec(nodes=nodes, device="cpu"))
    assert result.support.tolist() == control.support.tolist()
    assert result.objective == pytest.approx(control.objective, rel=1e-9)
    assert result.lower_bound == pytest.approx(control.lower_bound, rel=1e-6)
    assert result.gap < 1e-3
    assert result.passes <= 6


def test_wide_distant_data_with_a_squared_loss():
    """More columns than rows: no moments, so candidates."""
    source = make_source(Squared(), samples=200, features=400, nonzeros=3, seed=6)
    problem = Problem(Squared(), (3,), 0.05)
    control, result = solve(problem, source), solve(problem, streams(source))
    assert result.candidates < 400
    assert result.passes <= 25
    assert result.support.tolist() == control.support.tolist()
    assert result.objective == pytest.approx(control.objective, rel=1e-6)
    assert control.objective * 0.5 < result.lower_bound <= control.objective
