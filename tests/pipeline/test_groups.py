"""Whole groups of features as items, against the best of all supports by other solvers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from enumeration import best_objective, quick_best_objective
from problems import LOSSES, make_source

from psfit import BiCADMM, GridSpec, Problem, solve
from psfit.data import Dense, Source
from psfit.losses import Hinge, Huber, Logistic, Squared
from psfit.pipeline.near_optimal import find_close_supports
from psfit.pipeline.path import solve_path
from psfit.problem import Constraints
from psfit.search.model_form import make_form

# Features that follow each other belong to different groups of one to three features.
GROUP = np.array([3, 0, 1, 5, 0, 2, 4, 1, 6, 2, 7, 4, 0, 8, 5, 9, 10, 6, 10, 11])
FEW = np.array([3, 0, 1, 0, 2, 3, 1, 4, 2, 5, 0])


def pose_groups(loss, kappa, *, group=GROUP, gamma=1.0, seed=0, dtype=torch.float64, **settings):
    """A problem and its samples; columns have different scales, and some samples weigh twice as much."""
    source = make_source(loss, samples=90, features=len(group), nonzeros=7, seed=seed, correlation=0.6)
    generator = np.random.default_rng(seed)
    source.matrix.values.mul_(torch.tensor(generator.uniform(0.3, 3.0, len(group))))
    weight = torch.tensor(generator.integers(1, 3, (90, 1)), dtype=torch.float64)
    sample = Source(Dense(source.matrix.values.to(dtype)), source.target.to(dtype), weight.to(dtype))
    return Problem(loss, (kappa,), gamma, constraints=Constraints(group=group), **settings), sample


def find_best(problem, source):
    """The optimum by enumeration."""
    slow = problem.loss.name in ("squared", "hinge") or not problem.fit_intercept
    return (best_objective if slow else quick_best_objective)(problem, source)


def require_whole_groups(coef, group, kappa):
    chosen = np.unique(group[(coef != 0).any(axis=1)])
    assert len(chosen) <= kappa
    np.testing.assert_array_equal((coef != 0).any(axis=1), np.isin(group, chosen))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_answers_and_proofs_are_those_of_enumeration(loss):
    small = loss.joint or loss.name == "hinge"
    problem, source = pose_groups(loss, 2 if small else 4, group=FEW if small else GROUP)
    best = find_best(problem, source)
    default, exact = solve(problem, source), solve(problem, source, BiCADMM(exact=True))
    for found in (default, exact):
        require_whole_groups(found.coef, problem.constraints.group, problem.kappa[0])
        assert found.objective == pytest.approx(best, rel=1e-7)
        assert found.lower_bound <= best + 1e-8 * abs(best)
    assert exact.lower_bound == pytest.approx(best, rel=2e-4)


def count_features(problem, kappa):
    """The problem with a limit on the features of the chosen groups."""
    return replace(problem, kappa=(kappa,), constraints=replace(problem.constraints, counts_features=True))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("loss", [Squared(), Logistic(), Hinge()], ids=lambda loss: loss.name)
def test_a_limit_on_the_features_of_groups(loss, seed):
    problem, source = pose_groups(loss, 1, group=FEW if loss.name == "hinge" else GROUP, seed=seed)
    problem = count_features(problem, 4 + seed)
    group, best = problem.constraints.group, find_best(problem, source)
    default, exact = solve(problem, source), solve(problem, source, BiCADMM(exact=True))
    (points,) = solve_path(problem, source, [2, *problem.kappa], [problem.gamma])
    for coef in (default.coef, exact.coef, points.coefs[1]):
        assert np.isin(group, group[(coef != 0).any(axis=1)]).sum() <= problem.kappa[0]
    assert default.objective == pytest.approx(best, rel=1e-7)
    assert exact.objective == pytest.approx(best, rel=1e-7)
    assert exact.lower_bound == pytest.approx(best, rel=2e-4)
    assert best * (1 - 1e-8) <= points.objectives[1]
    for lower in (default.lower_bound, exact.lower_bound, points.lower_bounds[1]):
        assert lower <= best * (1 + 1e-8)


def test_a_limit_on_features_that_nothing_meets_is_refused():
    problem, source = pose_groups(Squared(), 1, group=np.repeat(np.arange(5), 3))
    with pytest.raises(ValueError, match="less than the 3 features"):
        solve(count_features(problem, 2), source)
    with pytest.raises(ValueError, match="from 1 to 15"):
        solve(count_features(problem, 16), source)


@pytest.mark.parametrize(
    "loss", [loss for loss in LOSSES if loss.name not in ("squared", "hinge")], ids=lambda loss: loss.name
)
def test_models_of_some_groups(loss, monkeypatch):
    """Where the products of all columns would cost much, models have the groups that promise most."""
    monkeypatch.setattr("psfit.search.model_form.CHEAP_PRODUCT", {"cpu": 0.0})
    monkeypatch.setattr("psfit.search.model_form.LEAST_OTHERS", 1)
    picked = []
    monkeypatch.setattr("psfit.search.objective.make_form", lambda *given: picked.append(given[3]) or make_form(*given))
    problem, source = pose_groups(loss, 1 if loss.joint else 3, group=FEW if loss.joint else GROUP)
    found = solve(problem, source)
    assert picked
    assert all(index is not None for index in picked)
    require_whole_groups(found.coef, problem.constraints.group, problem.kappa[0])
    assert found.objective == pytest.approx(find_best(problem, source), rel=1e-6)


@pytest.mark.parametrize("changes", [{"fit_intercept": False}, {"dtype": torch.float32}, {"gamma": 1e7}], ids=str)
@pytest.mark.parametrize("loss", [Squared(), Huber(), Logistic()], ids=lambda loss: loss.name)
def test_other_settings(loss, changes):
    problem, source = pose_groups(loss, 3, seed=1, **changes)
    best, found = find_best(problem, source), solve(problem, source)
    assert found.objective == pytest.approx(best, rel=1e-5)
    assert found.lower_bound <= best + 1e-6 * abs(best)


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
def test_a_standardised_ridge_keeps_its_meaning(loss):
    """The answer is that for columns that were divided by their own standard deviations."""
    problem, source = pose_groups(loss, 3, seed=2, standardize=True, gamma=0.05)
    weight, A = source.weight, source.matrix.values
    mean = (weight * A).sum(dim=0) / weight.sum()
    deviation = ((weight * (A - mean).square()).sum(dim=0) / weight.sum()).sqrt()
    scaled = replace(source, matrix=Dense(A / deviation))
    best, found = find_best(problem, scaled), solve(problem, source)
    assert found.objective == pytest.approx(best, rel=1e-7)
    plain = solve(replace(problem, standardize=False), scaled)
    np.testing.assert_allclose(found.coef * deviation.numpy()[:, None], plain.coef, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Hinge()], ids=lambda loss: loss.name)
def test_nodes_and_blocks_do_not_change_the_answer(loss):
    problem, source = pose_groups(loss, 2, group=FEW, seed=3)
    one = solve(problem, source)
    for grid in (GridSpec(nodes=3), GridSpec(nodes=2, blocks=2)):
        several = solve(problem, source, grid=grid)
        assert several.objective == pytest.approx(one.objective, rel=1e-9)
        np.testing.assert_allclose(several.coef, one.coef, rtol=1e-4, atol=1e-6)
        assert several.lower_bound <= one.objective * (1 + 1e-9)


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
def test_every_limit_of_a_path(loss):
    problem, source = pose_groups(loss, 1, seed=4)
    (points,) = solve_path(problem, source, [1, 2, 3, 12], [problem.gamma])
    for kappa, coef, value, lower in zip([1, 2, 3], points.coefs, points.objectives, points.lower_bounds, strict=False):
        best = find_best(replace(problem, kappa=(kappa,)), source)
        require_whole_groups(coef, GROUP, kappa)
        assert value == pytest.approx(best, rel=1e-7)
        assert lower <= best + 1e-8 * abs(best)


@pytest.mark.parametrize(("sparsity", "kappa"), [("feature", (3,)), ("element", (3, 3))])
def test_groups_of_several_outputs(sparsity, kappa):
    """Either the outputs share their groups, or each has its own."""
    problem, source = pose_groups(Squared(), 3, seed=5)
    other = make_source(Squared(), samples=90, features=len(GROUP), nonzeros=5, seed=9).target
    both = replace(source, target=torch.cat([source.target, other], dim=1))
    problem = replace(problem, sparsity=sparsity, kappa=kappa)
    found, exact = solve(problem, both), solve(problem, both, BiCADMM(exact=True))
    singles = [replace(source, target=both.target[:, [k]]) for k in range(2)]
    if sparsity == "element":
        best = sum(find_best(replace(problem, kappa=(3,)), one) for one in singles)
    else:
        # The ridge of both outputs is the same, so the objectives of a support add up.
        rows = [list(_all_ridges(problem, one)) for one in singles]
        best = min(a + b for a, b in zip(*rows, strict=True))
    assert found.objective == pytest.approx(best, rel=1e-8)
    assert exact.objective == pytest.approx(best, rel=1e-8)
    assert best * (1 - 2e-4) <= exact.lower_bound <= best * (1 + 1e-9)


def _all_ridges(problem, source):
    """The objectives of all supports for one output of the squared loss."""
    from enumeration import _fit, _masks

    times = source.weight[:, 0].long().numpy()
    A, b = (np.repeat(part.numpy(), times, axis=0) for part in (source.matrix.values, source.target))
    return (_fit(problem, A, b, mask) for mask in _masks(replace(problem, kappa=(3,)), A.shape[1], 1))


@pytest.mark.parametrize("gamma", [1.0, 1e9])
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
def test_all_levels_of_categories(loss, gamma):
    """The columns of a category add up to one: with an intercept they depend on each other, up to the ridge."""
    generator = np.random.default_rng(0)
    levels = [generator.integers(0, count, 400) for count in (3, 4, 5, 2, 3, 4, 6, 3, 4, 5, 3, 4)]
    columns = [np.eye(one.max() + 1)[one] for one in levels]
    effects = [generator.normal(size=one.shape[1]) * (k in (2, 6, 8, 10)) for k, one in enumerate(columns)]
    eta = sum(one @ effect for one, effect in zip(columns, effects, strict=True)) + 0.8 * generator.normal(size=400)
    b = eta if loss.name == "squared" else np.where(eta > np.median(eta), 1.0, -1.0)
    group = np.repeat(np.arange(12), [one.shape[1] for one in columns])
    source = Source(Dense(torch.tensor(np.hstack(columns))), torch.tensor(b)[:, None], torch.ones(400, 1).double())
    found = solve(Problem(loss, (4,), gamma, constraints=Constraints(group=group)), source)
    assert np.unique(group[found.support]).tolist() == [2, 6, 8, 10]


def test_supports_close_to_the_best():
    problem, source = pose_groups(Squared(), 3, seed=6)
    found = solve(problem, source)
    answer = torch.tensor(found.coef), torch.tensor(found.intercept)
    solver, grid = BiCADMM(exact=True), GridSpec().build(torch.device("cpu"))
    listed = find_close_supports(problem, source, solver, grid, answer, found.objective, 0.3, 100)
    values = np.sort(list(_all_ridges(problem, source)))
    np.testing.assert_allclose(listed.objectives, values[values <= 1.3 * values[0]], rtol=1e-8)


def test_a_few_of_many_groups():
    """With more columns than can be multiplied, candidates are whole groups."""
    generator = np.random.default_rng(7)
    lengths = generator.integers(1, 7, 1200)
    group = generator.permutation(np.repeat(np.arange(1200), lengths))
    true = np.isin(group, [5, 77, 900, 1100])
    A = generator.normal(size=(250, len(group)))
    b = A[:, true] @ generator.choice([-1.5, 1.5], true.sum()) + generator.normal(size=250)
    source = Source(Dense(torch.tensor(A)), torch.tensor(b)[:, None], torch.ones(250, 1).double())
    problem = Problem(Squared(), (4,), constraints=Constraints(group=group))
    found = solve(problem, source)
    assert found.candidates < len(group)
    assert set(found.support) == set(np.flatnonzero(true))


def test_a_limit_above_the_number_of_groups_is_refused():
    problem, source = pose_groups(Squared(), 13)
    with pytest.raises(ValueError, match="from 1 to 12"):
        solve(problem, source)
