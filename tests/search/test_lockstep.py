"""Supports of many limits in lockstep: against enumeration, single searches and factors made anew."""

import numpy as np
import pytest
import torch
from enumeration import best_objective
from problems import make_source

from psfit import Dense, GridSpec, Problem, Source, sparse_path
from psfit.losses import Squared
from psfit.problem import largest
from psfit.problem.pose import pose
from psfit.search.inverses import SupportBatch
from psfit.search.joint_refit import refit_together
from psfit.search.lockstep import Lockstep, search_in_lockstep
from psfit.search.neighbours import search_limits
from psfit.search.objective import objective_of

GAMMA = 3.0


def posed(features=8, samples=70, seed=4, correlation=0.7, intercept=True):
    source = make_source(Squared(), samples=samples, features=features, nonzeros=3, seed=seed, correlation=correlation)
    problem = Problem(Squared(), (1,), GAMMA, fit_intercept=intercept)
    return source, pose(problem, source, GridSpec(nodes=2).build(torch.device("cpu")))


def starts_of(inst, kappas, wanted):
    """Supports of the largest correlations, good enough to begin with."""
    size = inst.items.features
    scores = inst.form.Q[:size].T.abs()
    return {kappa: largest(scores, torch.tensor([[kappa]]))[0] for kappa in kappas if kappa in wanted}


def zero(inst):
    return torch.zeros(inst.source.matrix.shape[1], inst.items.outputs, dtype=torch.float64)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_every_limit_has_the_best_support(seed, intercept):
    source, inst = posed(seed=seed, intercept=intercept)
    kappas = list(range(1, 9))
    path = search_in_lockstep(
        objective_of(inst, 0), kappas, starts_of(inst, kappas, {1, 4, 8}), zero(inst), inst.resolution
    )
    fits = refit_together(inst, 0, list(path.found.values()), path.steps)
    for kappa, fit in zip(kappas, fits, strict=True):
        assert int(path.found[kappa].chosen.sum()) == kappa
        best = best_objective(Problem(Squared(), (kappa,), GAMMA, fit_intercept=intercept), source)
        assert fit.value == pytest.approx(best, rel=1e-9)
        assert path.found[kappa].fit.value == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("kappas", [[5], [1, 30], [2, 3, 11, 12, 13, 29], list(range(1, 31))])
def test_as_good_as_limit_by_limit(kappas):
    _, inst = posed(features=30, samples=120, seed=1, correlation=0.95)
    starts = starts_of(inst, kappas, {kappas[0], kappas[-1], 12, 20})
    objective = objective_of(inst, 0)
    path = search_in_lockstep(objective, kappas, starts, zero(inst), inst.resolution)
    control = search_limits(objective, kappas, starts, zero(inst), inst.resolution)
    for kappa in kappas:
        assert path.found[kappa].fit.value <= control[kappa].fit.value * (1 + 1e-3)
    values = [path.found[kappa].fit.value for kappa in kappas]
    assert values == sorted(values, reverse=True)


def test_inverses_stay_inverses():
    _, inst = posed(features=20, samples=100, seed=2, correlation=0.9)
    step = Lockstep(objective_of(inst, 0), 9, inst.resolution)
    chosen = torch.zeros(20, dtype=torch.bool)
    chosen[[0, 3, 7, 11, 15]] = True
    rows = SupportBatch.join([step.inverses.invert(chosen), step.inverses.invert(chosen.flip(0))])
    counts = torch.tensor([2, 3])
    rows = step.inverses.shrink(rows, step.inverses.costs(rows), counts)
    rows, scores = step.search(rows)
    rows = step.inverses.grow(rows, scores.additions, torch.tensor([4, 2]))
    assert rows.taken.sum(dim=1).tolist() == [5 - 2 + 4 + 1, 5 - 3 + 2 + 1]
    H, q, power = inst.form.with_hessian().hessian, inst.form.Q, inst.form.constant
    for k in range(2):
        taken, index = rows.taken[k], rows.places[k][rows.taken[k]]
        block = H[index.unsqueeze(1), index]
        torch.testing.assert_close(rows.K[k][taken][:, taken] @ block, torch.eye(len(index), dtype=torch.float64))
        x = torch.linalg.solve(block, q[index, 0])
        torch.testing.assert_close(rows.x[k][taken], x)
        assert float(rows.values[k]) == pytest.approx(float(power[0] - 0.5 * q[index, 0] @ x))


def test_swaps_that_end_where_none_helps():
    _, inst = posed(features=25, samples=100, seed=3, correlation=0.9)
    objective = objective_of(inst, 0)
    step = Lockstep(objective, 6, inst.resolution)
    chosen = torch.zeros(25, dtype=torch.bool)
    chosen[-6:] = True
    rows, _ = step.search(step.inverses.invert(chosen))
    found = step.supports(rows, [6], zero(inst))[6]
    for out in found.chosen.nonzero().flatten().tolist():
        for into in (~found.chosen).nonzero().flatten().tolist():
            other = found.chosen.clone()
            other[out], other[into] = False, True
            assert objective.fit(other, zero(inst)).value >= found.fit.value * (1 - 1e-9)


def test_other_places_are_noticed():
    _, inst = posed(features=12, samples=100, seed=0, correlation=0.0)
    kappas = [1, 2, 3, 4]
    objective, starts = objective_of(inst, 0), starts_of(inst, kappas, {1, 4})
    assert search_in_lockstep(objective, kappas, starts, zero(inst), inst.resolution).agreed


@pytest.mark.parametrize("gamma", [1.0, 1e4, 1e12])
@pytest.mark.parametrize("seed", range(4))
def test_columns_that_occur_twice(seed, gamma, monkeypatch):
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(50, 5)), 2, axis=1)
    y = X[:, 0] - X[:, 2] + 0.1 * rng.normal(size=50)
    control = sparse_path(X, y, gammas=gamma)
    monkeypatch.setattr("psfit.pipeline.several_limits.can_search_in_lockstep", lambda objective, kappas: True)
    found = sparse_path(X, y, gammas=gamma)
    np.testing.assert_allclose(found.objectives, control.objectives, rtol=1e-3)


def test_inverses_that_cannot_be_trusted_are_noticed():
    powers = torch.linspace(0, 1, 60, dtype=torch.float64).unsqueeze(1) ** torch.arange(1, 31)
    source = Source(Dense(powers), powers[:, 3:4] - powers[:, 20:21], torch.ones(60, 1, dtype=torch.float64))
    inst = pose(Problem(Squared(), (1,), 1e12), source, GridSpec().build(torch.device("cpu")))
    kappas = list(range(1, 20))
    starts = starts_of(inst, kappas, {1, 10, 19})
    assert search_in_lockstep(objective_of(inst, 0), kappas, starts, zero(inst), inst.resolution) is None
