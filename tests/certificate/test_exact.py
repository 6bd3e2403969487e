"""Certificates and exact mode through the public interface."""

import itertools

import numpy as np
import pytest
import torch
from enumeration import best_objective
from problems import SPARSITIES, make_source

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, SparseLinearRegression, solve
from psfit.common.status import Status
from psfit.data.synthetic import paper_recipe
from psfit.losses import Hinge, Logistic, Softmax, Squared, SquaredHinge

POOR = BiCADMM(effort="low", exact=True, max_iter=5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("loss", [Squared(), Logistic(), SquaredHinge(), Hinge()], ids=lambda loss: loss.name)
def test_exact_mode_repairs_a_poor_start(loss, seed):
    source = make_source(loss, samples=50, features=10, nonzeros=3, seed=seed, correlation=0.8)
    problem = Problem(loss, (3,), gamma=1.0)
    result = solve(problem, source, POOR)
    assert result.objective == pytest.approx(best_objective(problem, source), rel=1e-4)
    assert result.status is Status.PROVED
    assert result.gap <= 1e-4


@pytest.mark.parametrize("sparsity", SPARSITIES)
def test_exact_mode_for_softmax(sparsity):
    source = make_source(Softmax(), samples=40, features=4, nonzeros=3, seed=1)
    problem = Problem(Softmax(), (2,), 1.0, sparsity)
    result = solve(problem, source, POOR)
    assert result.objective == pytest.approx(best_objective(problem, source), rel=1e-4)
    assert result.gap <= 1e-4


def test_what_is_certain_is_true_of_the_optimum():
    decided = 0
    for seed in range(6):
        source = make_source(Squared(), samples=120, features=8, nonzeros=3, seed=seed, correlation=0.3)
        problem = Problem(Squared(), (3,), gamma=10.0)
        result = solve(problem, source)
        best = min(
            itertools.combinations(range(8), 3),
            key=lambda s: best_objective(Problem(Squared(), (3,), 10.0), _columns(source, s)),
        )
        assert result.certain_in <= 3
        assert result.certain_out <= 5
        if result.certain_in == 3 or result.certain_out == 5:
            decided += 1
            assert set(result.support.tolist()) == set(best)
    assert decided


def _columns(source, chosen):
    return Source(Dense(source.matrix.values[:, list(chosen)]), source.target, source.weight)


@pytest.mark.parametrize(("noise", "goal"), [(0.01, 1e-3), (0.001, 1e-5)])
def test_the_papers_recipe_is_certified_without_branching(noise, goal):
    data = paper_recipe(4000, 100, 0.8, 4, noise=noise, seed=3)
    source = Source(Dense(data.A), data.b, torch.ones(4000, 1, dtype=torch.float64))
    problem = Problem(Squared(), (data.kappa,), 10.0, fit_intercept=False)
    for blocks in (1, 2):
        result = solve(problem, source, grid=GridSpec(nodes=4, blocks=blocks, device="cpu"))
        # Without the pooled form there is one gradient and no ascent.
        assert 0 <= result.gap <= goal * (1 if blocks == 1 else 10)
        assert result.tree_nodes == 0


def test_float32_data_are_bounded_in_float64():
    data = paper_recipe(4000, 100, 0.8, 4, seed=3, dtype=torch.float32)
    source = Source(Dense(data.A), data.b, torch.ones(4000, 1))
    result = solve(Problem(Squared(), (data.kappa,), 10.0, fit_intercept=False), source)
    assert 0 <= result.gap <= 1e-3
    double = Source(Dense(data.A.double()), data.b.double(), torch.ones(4000, 1, dtype=torch.float64))
    again = solve(Problem(Squared(), (data.kappa,), 10.0, fit_intercept=False), double)
    assert result.lower_bound <= again.objective


def hard():
    """Too much for a tenth of a second: many correlated features, a very weak signal."""
    source = make_source(Squared(), samples=150, features=80, nonzeros=8, seed=0, correlation=0.9)
    noise = torch.randn(150, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return source.with_target(source.target + 20 * noise)


def test_a_time_limit_leaves_an_honest_gap():
    heard = []
    problem = Problem(Squared(), (8,), gamma=10.0)
    # The kernels are compiled before the time counts.
    solve(problem, hard(), BiCADMM(exact=True, time_limit=0.1))
    result = solve(problem, hard(), BiCADMM(exact=True, time_limit=1.0), callback=heard.append)
    assert result.status is Status.TIME_LIMIT
    assert 1e-4 < result.gap < 1
    heard = [state for state in heard if state.explored]
    lowers, uppers = [state.lower_bound for state in heard], [state.objective for state in heard]
    assert max(np.diff(uppers), default=0) <= 0
    assert result.lower_bound >= max(lowers[:1])
    assert heard[-1].open > 0
    # Another, better informed run finds nothing below the bound.
    assert solve(problem, hard(), BiCADMM(effort="high")).objective >= result.lower_bound


def test_several_targets_are_proved_one_by_one():
    source = make_source(Squared(), samples=60, features=8, nonzeros=3, seed=2)
    both = source.with_target(torch.cat([source.target, source.target.flip(0)], dim=1))
    problem = Problem(Squared(), (2, 3), gamma=1.0)
    result = solve(problem, both, POOR)
    for k in range(2):
        alone = source.with_target(both.target[:, k : k + 1])
        best = best_objective(Problem(Squared(), (problem.kappa[k],), 1.0), alone)
        assert result.objectives[k] == pytest.approx(best, rel=1e-4)
        assert result.lower_bounds[k] <= best * (1 + 1e-9)


def test_the_result_says_what_was_proved():
    source = make_source(Squared(), samples=60, features=8, nonzeros=3, seed=2)
    problem = Problem(Squared(), (3,), gamma=1.0)
    assert "no model within the limit has an objective below" in str(solve(problem, source))
    silent = solve(problem, source, certify=False)
    assert "none was asked for" in str(silent)
    assert silent.lower_bound == -np.inf
    assert silent.gap == np.inf


def test_estimators_carry_the_certificate(capsys):
    source = make_source(Squared(), samples=60, features=12, nonzeros=3, seed=2, correlation=0.9)
    X, y = source.matrix.values.numpy(), source.target[:, 0].numpy()
    model = SparseLinearRegression(4, solver=BiCADMM(exact=True), verbose=1).fit(X, y)
    assert model.lower_bound_ <= model.objective_
    assert model.gap_ <= 1e-4
    said, told = capsys.readouterr()
    assert "PROVED" in said
    assert "proving how good the answer is" in told
    assert f"best {model.objective_:.8g}" in told
    assert SparseLinearRegression(4, certify=False).fit(X, y).gap_ == np.inf


@pytest.mark.parametrize("gap_tol", [-1e-3, 1.0, float("nan")])
def test_a_senseless_gap_is_refused(gap_tol):
    with pytest.raises(ValueError, match="gap_tol"):
        BiCADMM(gap_tol=gap_tol)


def test_exact_mode_for_features_shared_by_two_targets():
    source = make_source(Squared(), samples=40, features=9, nonzeros=3, seed=4, correlation=0.9)
    noise = torch.randn(40, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    both = source.with_target(torch.cat([source.target, source.target.flip(0) + noise], dim=1))
    problem = Problem(Squared(), (3,), 1.0, "feature")
    best = best_objective(problem, both)
    result = solve(problem, both, POOR)
    assert result.objective == pytest.approx(best, rel=1e-4)
    assert result.gap <= 1e-4
    assert solve(problem, both).lower_bound <= best * (1 + 1e-9)
