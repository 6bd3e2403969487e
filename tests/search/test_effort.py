"""The search for supports: efforts, scale, determinism."""

import numpy as np
import pytest
import torch
from enumeration import best_objective
from problems import LOSSES, make_source

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, solve
from psfit.losses import Hinge, Logistic, Softmax, Squared

CPU = torch.device("cpu")


def scaled(source, columns, target=1.0):
    values = source.matrix.values * columns
    return Source(Dense(values), source.target * target, source.weight)


def hard_source(seed):
    """Few samples, strong correlation, many candidates: a single descent often ends in a local minimum."""
    return make_source(Squared(), samples=60, features=16, nonzeros=5, seed=seed, correlation=0.9)


@pytest.mark.parametrize("seed", range(6))
def test_medium_reaches_the_optimum_where_low_need_not(seed):
    source = hard_source(seed)
    problem = Problem(Squared(), (4,), gamma=10.0)
    best = best_objective(problem, source)
    objectives = [solve(problem, source, BiCADMM(effort=effort)).objective for effort in ("low", "medium", "high")]
    assert objectives[0] >= best * (1 - 1e-9)
    assert objectives[1] == pytest.approx(best, rel=1e-9)
    assert objectives[2] == pytest.approx(best, rel=1e-9)


def test_low_is_the_plain_algorithm_with_a_refit():
    """Its support is that of the last iterate, even if swaps would improve it."""
    from psfit.problem.pose import pose

    worse = 0
    for seed in range(6):
        source = hard_source(seed)
        problem = Problem(Squared(), (4,), gamma=10.0)
        solver = BiCADMM(effort="low")
        result = solve(problem, source, solver)
        setup, state = solver.init(pose(problem, source, GridSpec().build(CPU)))
        for _ in range(result.n_iter):
            state = solver.step(setup, state)
        z = state.bilinear.z[:16, 0].abs()
        # Fewer than four may be left; the limit is then filled up with items of no weight.
        chosen = [j for j in z.topk(4).indices.tolist() if z[j] > 0]
        assert set(chosen) <= set(result.support.tolist())
        worse += result.objective > solve(problem, source).objective * (1 + 1e-9)
    assert worse > 0


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_same_input_has_the_same_answer(loss):
    source = make_source(loss, samples=70, features=9, nonzeros=3, seed=3)
    problem = Problem(loss, (3,), gamma=5.0)
    one, two = solve(problem, source), solve(problem, source)
    np.testing.assert_array_equal(one.coef, two.coef)
    assert one.objective == two.objective
    assert one.history[-1].primal == two.history[-1].primal


@pytest.mark.parametrize(("loss", "nodes"), [(Squared(), 2), (Logistic(), 5), (Softmax(), 2), (Hinge(), 5)], ids=str)
def test_nodes_change_the_answer_only_by_rounding(loss, nodes):
    source = make_source(loss, samples=100, features=10, nonzeros=3, seed=2)
    problem = Problem(loss, (3,), gamma=5.0)
    control = solve(problem, source)
    many = solve(problem, source, grid=GridSpec(nodes=nodes))
    assert many.support.tolist() == control.support.tolist()
    np.testing.assert_allclose(many.coef, control.coef, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
@pytest.mark.parametrize("effort", ["low", "medium"])
def test_scaling_the_target_scales_the_answer(factor, effort):
    source = make_source(Squared(), samples=100, features=30, nonzeros=5, seed=4)
    problem, solver = Problem(Squared(), (5,), gamma=10.0), BiCADMM(effort=effort)
    control = solve(problem, source, solver)
    moved = solve(problem, scaled(source, 1.0, factor), solver)
    assert moved.support.tolist() == control.support.tolist()
    assert moved.n_iter == control.n_iter
    np.testing.assert_allclose(moved.coef, factor * control.coef, rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
@pytest.mark.parametrize("effort", ["low", "medium"])
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
def test_scaling_the_data_with_its_ridge_changes_nothing(loss, factor, effort):
    """With gamma divided by the square of the factor it is the same problem in other units."""
    source = make_source(loss, samples=100, features=30, nonzeros=5, seed=4)
    solver = BiCADMM(effort=effort)
    control = solve(Problem(loss, (5,), gamma=10.0), source, solver)
    moved = solve(Problem(loss, (5,), gamma=10.0 / factor**2), scaled(source, factor), solver)
    assert moved.support.tolist() == control.support.tolist()
    assert moved.n_iter == control.n_iter
    np.testing.assert_allclose(moved.coef * factor, control.coef, rtol=1e-5)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Hinge()], ids=lambda loss: loss.name)
def test_columns_of_very_different_scale(loss):
    """With a very small ridge, the unit of a column must not matter."""
    source = make_source(loss, samples=120, features=12, nonzeros=3, seed=5)
    units = (
        10.0
        ** torch.linspace(-4, 4, 12, dtype=torch.float64)[
            torch.randperm(12, generator=torch.Generator().manual_seed(0))
        ]
    )
    problem = Problem(loss, (3,), gamma=1e12)
    control, moved = solve(problem, source), solve(problem, scaled(source, units))
    assert moved.support.tolist() == control.support.tolist()
    assert moved.objective == pytest.approx(control.objective, rel=1e-4)


def test_gamma_times_a_thousand_keeps_the_support_of_a_clear_signal():
    source = make_source(Squared(), samples=200, features=40, nonzeros=4, seed=6)
    supports = [solve(Problem(Squared(), (4,), gamma), source).support.tolist() for gamma in (1.0, 1e3, 1e6)]
    assert supports[0] == supports[1] == supports[2]


def test_unknown_effort():
    with pytest.raises(ValueError, match="effort"):
        BiCADMM(effort="heroic")


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("kappa", [1, 5])
def test_without_an_intercept(loss, kappa):
    """The empty support then has no variable at all, and the full one nothing to swap."""
    source = make_source(loss, samples=50, features=5, nonzeros=2, seed=1)
    limit = kappa * (3 if loss.joint and kappa == 5 else 1)
    result = solve(Problem(loss, (limit,), gamma=2.0, fit_intercept=False), source)
    assert (result.coef != 0).sum() == limit
    assert (result.intercept == 0).all()


@pytest.mark.parametrize(("effort", "gap"), [("medium", 1e-4), ("high", 1e-9)])
def test_what_a_certificate_must_prove_to_end_a_search(effort, gap):
    assert BiCADMM(effort=effort).certified_gap == gap
    assert BiCADMM(effort=effort, gap_tol=0.0).certified_gap == 0.0


def test_precision_is_checked():
    with pytest.raises(ValueError, match=r"precision='half' .* 'auto' or 'highest'"):
        BiCADMM(precision="half")


def test_the_portfolio_can_be_left_out():
    from psfit.problem.pose import pose

    source = make_source(Squared(), samples=60, features=9, nonzeros=3, seed=0)
    inst = pose(Problem(Squared(), (3,), 10.0), source, GridSpec().build(CPU))
    assert BiCADMM().init(inst)[0].copies == 3
    assert BiCADMM(portfolio=False).init(inst)[0].copies == 1
