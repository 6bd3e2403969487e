"""The whole path against enumeration of all supports, over grids, precisions and devices."""

import numpy as np
import pytest
import torch
from enumeration import best_objective
from problems import LOSSES, SPARSITIES, make_source, paper_source

from psfit import BiCADMM, GridSpec, Problem, SparseLinearRegression, Status, solve
from psfit.losses import Logistic, Softmax, Squared

CPU = torch.device("cpu")
GRIDS = [(1, 1), (3, 1), (4, 3)]


def grid(nodes=1, blocks=1, **options):
    return GridSpec(nodes=nodes, blocks=blocks, **options).build(CPU)


@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_small_problems_reach_the_enumerated_optimum(loss, sparsity):
    source = make_source(loss, samples=90, features=6, nonzeros=3, seed=1)
    problem = Problem(loss, (3,), gamma=5.0, sparsity=sparsity)
    result = solve(problem, source)
    best = best_objective(problem, source)
    assert result.objective >= best - 1e-6 * abs(best)
    assert result.objective == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_fourteen_features_match_enumeration(seed):
    source = make_source(Squared(), samples=60, features=14, nonzeros=4, seed=seed)
    problem = Problem(Squared(), (4,), gamma=10.0)
    assert solve(problem, source).objective == pytest.approx(best_objective(problem, source), rel=1e-6)


@pytest.mark.parametrize("nodes", [1, 2, 3, 7])
def test_any_number_of_nodes_gives_the_same_objective(nodes):
    source = make_source(Squared(), samples=200, features=30, nonzeros=5, seed=3)
    problem = Problem(Squared(), (5,), gamma=10.0)
    control = solve(problem, source).objective
    assert solve(problem, source, grid=grid(nodes)).objective == pytest.approx(control, rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_every_grid_reproduces_the_control_run(loss):
    source = make_source(loss, samples=101, features=9, nonzeros=3, seed=5)
    problem = Problem(loss, (3,), gamma=5.0)
    objectives = [solve(problem, source, grid=grid(N, M)).objective for N, M in GRIDS]
    np.testing.assert_allclose(objectives, objectives[0], rtol=1e-5)


@pytest.mark.parametrize("nodes", [1, 4])
def test_wide_data_through_the_woodbury_form(nodes):
    source = make_source(Squared(), samples=40, features=70, nonzeros=2, seed=2)
    problem = Problem(Squared(), (2,), gamma=10.0)
    result = solve(problem, source, grid=grid(nodes))
    assert result.objective == pytest.approx(best_objective(problem, source), rel=1e-6)


def test_nodes_of_very_uneven_size():
    source = make_source(Squared(), samples=200, features=12, nonzeros=3, seed=6)
    problem = Problem(Squared(), (3,), gamma=10.0)
    uneven = source.with_bounds((0, 3, 150, 151, 200))
    assert solve(problem, uneven, grid=grid(4)).objective == pytest.approx(solve(problem, source).objective, rel=1e-6)


@pytest.mark.parametrize(("level", "dtype"), [(0.8, torch.float32), (0.9, torch.float64)])
def test_paper_recipe_is_no_worse_than_the_truth(level, dtype):
    source, truth = paper_source(20_000, 1_000, level, nodes=4, dtype=dtype)
    result = solve(Problem(Squared(), (truth.kappa,), 10.0, fit_intercept=False), source, grid=grid(4))
    assert len(result.support) <= truth.kappa
    assert result.objective <= truth.objective(10.0) * (1 + 1e-9)


def test_columns_are_independent_problems():
    source = make_source(Squared(), samples=80, features=10, nonzeros=3, seed=1)
    other = make_source(Squared(), samples=80, features=10, nonzeros=3, seed=2)
    both = source.with_target(torch.cat([source.target, 3 * other.target], dim=1))
    kappa = (3, 2)
    together = solve(Problem(Squared(), kappa, 10.0), both)
    for k in range(2):
        alone = solve(Problem(Squared(), kappa[k : k + 1], 10.0), source.with_target(both.target[:, k : k + 1]))
        assert together.objectives[k] == pytest.approx(alone.objective, rel=1e-9)
        np.testing.assert_allclose(together.coef[:, k], alone.coef[:, 0], rtol=1e-6)


@pytest.mark.parametrize("loss", [Squared(), Softmax()], ids=lambda loss: loss.name)
def test_feature_sparsity_limits_rows(loss):
    source = make_source(loss, samples=120, features=8, nonzeros=4, seed=4)
    if not loss.joint:
        source = source.with_target(torch.cat([source.target, -source.target.flip(0)], dim=1))
    result = solve(Problem(loss, (2,), 5.0, sparsity="feature"), source)
    assert (result.coef != 0).any(axis=1).sum() == 2
    assert (result.coef[result.support] != 0).all()


def test_warm_start_from_the_answer_keeps_it():
    source = make_source(Logistic(), samples=150, features=12, nonzeros=4, seed=7)
    problem = Problem(Logistic(), (4,), gamma=2.0)
    first = solve(problem, source)
    again = solve(problem, source, start=(torch.tensor(first.coef), torch.tensor(first.intercept)))
    assert again.objective <= first.objective * (1 + 1e-9)


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("nodes", [1, 3])
def test_large_means_of_targets_use_up_no_digits_of_float32(loss, nodes):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 6)).astype(np.float32)
    y = 2 * X[:, 0] - X[:, 3] + 0.7 * X[:, 4] + rng.normal(size=90)
    settings = {"kappa": 3, "loss": loss, "grid": GridSpec(nodes=nodes)}
    near = SparseLinearRegression(**settings).fit(X, y)
    far = SparseLinearRegression(**settings).fit(X, y + 1e6)
    np.testing.assert_array_equal(far.support_, [0, 3, 4])
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-5)
    np.testing.assert_allclose(far.intercept_ - 1e6, near.intercept_, atol=1e-5)
    assert far.objective_ == pytest.approx(near.objective_, rel=1e-5)
    again = SparseLinearRegression(**settings, warm_start=True).fit(X, y + 1e6).fit(X, y + 1e6)
    np.testing.assert_allclose(again.coef_, far.coef_, rtol=1e-5)


def test_zero_target_has_the_zero_answer():
    source = make_source(Squared(), samples=50, features=8, nonzeros=2, seed=0)
    result = solve(Problem(Squared(), (2,), 1.0), source.with_target(torch.zeros(50, 1, dtype=torch.float64)))
    assert result.objective == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(result.coef, 0, atol=1e-10)


def test_the_limits_end_a_run_with_advice():
    source = make_source(Squared(), samples=100, features=20, nonzeros=5, seed=8)
    problem = Problem(Squared(), (5,), 10.0)
    few = solve(problem, source, BiCADMM(max_iter=3))
    assert (few.status, few.n_iter) == (Status.MAX_ITER, 3)
    assert "max_iter" in str(few)
    late = solve(problem, source, BiCADMM(time_limit=1e-9))
    assert (late.status, late.n_iter) == (Status.TIME_LIMIT, 1)
    assert np.isfinite(late.coef).all()


def test_divergence_is_reported_and_leaves_no_nan():
    source = make_source(Squared(), samples=30, features=5, nonzeros=2, seed=0)
    huge = source.with_target(source.target * 1e90)
    result = solve(Problem(Squared(), (2,), 1.0), huge, BiCADMM(rho_c=1e-300, rho_b=1e290))
    assert result.status is Status.DIVERGED
    assert np.isfinite(result.coef).all()


def test_what_solve_refuses():
    source = make_source(Squared(), samples=30, features=5, nonzeros=2, seed=0)
    for kappa in [(0,), (6,), (2, 2)]:
        with pytest.raises(ValueError, match="kappa"):
            solve(Problem(Squared(), kappa), source)
    with pytest.raises(ValueError, match="dtype"):
        solve(Problem(Squared(), (2,)), source, grid=GridSpec(dtype="float32"))
    with pytest.raises(ValueError, match="nodes"):
        solve(Problem(Squared(), (2,)), source, grid=GridSpec(nodes=31))


def test_history_has_a_record_an_iteration():
    source = make_source(Squared(), samples=100, features=20, nonzeros=5, seed=8)
    result = solve(Problem(Squared(), (5,), 10.0), source, BiCADMM(record_objective=True))
    assert [record.iteration for record in result.history] == list(range(1, result.n_iter + 1))
    seconds = [record.seconds for record in result.history]
    assert seconds == sorted(seconds)
    last = result.history[-1]
    assert last.nonzeros >= 5
    assert last.objective == pytest.approx(result.objective, rel=1e-2)
    assert result.status is Status.SETTLED
    assert last.bilinear <= 1e-4


def test_residuals_are_those_of_the_paper():
    """Recompute p, d and b of an iteration from the iterates themselves."""
    from psfit.problem.pose import pose

    source = make_source(Squared(), samples=60, features=10, nonzeros=3, seed=9)
    inst = pose(Problem(Squared(), (3,), 10.0), source, grid(3))
    solver = BiCADMM(effort="low")
    setup, before = solver.init(inst)
    for _ in range(5):
        before = solver.step(setup, before)
    after = solver.step(setup, before)
    late = solver.step(setup, after)
    z, x = after.bilinear.z, after.local.x
    primal = sum((x[i] - z).norm() for i in range(3))
    dual = 3**0.5 * setup.rho_c * (z - before.bilinear.z).norm()
    bilinear = abs(float((after.bilinear.s * z[:10].T).sum() - after.bilinear.t))
    expected = torch.stack([primal, dual, torch.tensor(bilinear)])
    torch.testing.assert_close(solver.residuals(setup, late.measured)[0][:, 0], expected, rtol=1e-9, atol=1e-12)
