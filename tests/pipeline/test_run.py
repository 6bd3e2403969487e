"""One pipeline: a fit is a path of one limit; a search goes on only where the proof leaves room."""

from itertools import groupby

import numpy as np
import pytest
import torch
from enumeration import best_objective
from problems import LOSSES, SPARSITIES, make_source

from psfit import BiCADMM, GridSpec, Problem, solve, sparse_path
from psfit import SparseLinearRegression as Linear
from psfit.losses import Squared
from psfit.pipeline.one_limit import OneLimitSearch
from psfit.pipeline.path import solve_path
from psfit.pipeline.run import solve_problem
from psfit.problem.pose import pose

CPU = torch.device("cpu")


def two_targets(source):
    return source.with_target(torch.cat([source.target, 3 * source.target.flip(0) + source.target], dim=1))


def same(points, result):
    assert points.objectives.tolist() == pytest.approx([result.objective], rel=1e-12)
    assert points.lower_bounds.tolist() == pytest.approx([result.lower_bound], rel=1e-12)
    np.testing.assert_array_equal(points.coefs[0] != 0, result.coef != 0)


@pytest.mark.parametrize("effort", ["low", "medium"])
@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_path_of_one_limit_is_a_fit(loss, sparsity, effort):
    source = make_source(loss, samples=60, features=14, nonzeros=4, seed=2, correlation=0.8)
    problem, solver = Problem(loss, (4,), 2.0, sparsity), BiCADMM(effort=effort)
    (points,) = solve_path(problem, source, [4], [2.0], solver)
    same(points, solve(problem, source, solver))


def test_each_gamma_of_a_path_of_one_limit_is_a_fit():
    source = two_targets(make_source(Squared(), samples=80, features=12, nonzeros=3, seed=1, correlation=0.8))
    gammas = [0.1, 10.0]
    for gamma, points in zip(gammas, solve_path(Problem(Squared(), (3, 3)), source, [3], gammas), strict=True):
        same(points, solve(Problem(Squared(), (3, 3), gamma), source))


@pytest.mark.parametrize("kappa", [1, 3])
def test_paths_look_at_candidates(kappa, monkeypatch):
    monkeypatch.setattr("psfit.problem.costs.MOST_NUMBERS", 1)
    source = make_source(Squared(), samples=100, features=150, nonzeros=3, seed=4)
    problem = Problem(Squared(), (kappa,), 0.1)
    result = solve(problem, source)
    assert result.candidates < 150
    (points,) = solve_path(problem, source, [kappa], [0.1])
    same(points, result)
    (several,) = solve_path(problem, source, [1, 3], [0.1])
    assert several.objectives[[1, 3].index(kappa)] == pytest.approx(result.objective, rel=1e-9)
    assert several.lower_bounds[[1, 3].index(kappa)] <= result.objective * (1 + 1e-9)


def test_sparse_path_and_estimator_agree_on_one_limit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 20))
    y = X[:, :4] @ [3.0, -2.0, 1.0, 0.5] + rng.normal(size=90)
    path, model = sparse_path(X, y, [5], gammas=3.0), Linear(5, gamma=3.0).fit(X, y)
    assert path.objectives[0, 0] == pytest.approx(model.objective_, rel=1e-12)
    np.testing.assert_array_equal(path.support(5), model.support_)


class NothingOpen:
    """A prover that is content with the first answer."""

    def __init__(self):
        self.asked = []

    def open_limits(self, number, fits):
        self.asked.append((number, fits[0].value, int((fits[0].Z[:12] != 0).sum())))
        return []


def test_a_proved_answer_ends_the_search():
    source = make_source(Squared(), samples=200, features=12, nonzeros=3, seed=0)
    problem = Problem(Squared(), (3,), gamma=10.0)
    inst = pose(problem, source, GridSpec().build(CPU))
    start, zero = torch.arange(12) < 3, torch.zeros(13, 1, dtype=torch.float64)
    prover = NothingOpen()
    ended, whole = (
        solve_problem(inst, 0, OneLimitSearch(inst, 0, [("start", start)], zero, "medium"), one)[0]
        for one in (prover, None)
    )
    assert prover.asked == [(0, ended.value, 3)]
    assert whole.value == pytest.approx(best_objective(problem, source), rel=1e-9)
    assert ended.value >= whole.value * (1 - 1e-12)


def test_phases_do_not_alternate_and_the_only_limit_is_counted():
    """Progress without a terminal prints a line for each new phase: many problems must not make many lines."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8))
    Y = X[:, :5] + rng.normal(size=(60, 5))
    seen = []
    Linear(2, callback=lambda progress: seen.append(progress)).fit(X, Y)
    phases = [name for name, _ in groupby(progress.phase for progress in seen)]
    assert len(phases) == len(set(phases))
    assert phases[-1] == "the proof"
    assert seen[-1].gap < 1
    seen.clear()
    sparse_path(X, Y, [3], callback=lambda progress: seen.append(progress))
    assert (seen[-1].done, seen[-1].total) == (1, 1)
