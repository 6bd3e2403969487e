"""The tree: answers do not depend on how many nodes may wait, and a stop leaves a bound that holds."""

import pytest
import torch
from enumeration import best_objective, quick_best_objective
from problems import make_source

from psfit import BiCADMM, GridSpec, Problem, solve
from psfit.certificate import Request, exact, prove
from psfit.certificate.newton_relaxation import NewtonRelaxation
from psfit.certificate.open_nodes import OpenNodes
from psfit.common.status import Status
from psfit.losses import Huber, Logistic, Poisson, Squared, SquaredHinge
from psfit.pipeline import exact_mode
from psfit.problem.pose import pose

LOSSES = [Squared(), Logistic(), SquaredHinge(), Huber(), Poisson()]


def make(loss, seed=0, *, features=11, kappa=4, gamma=3.0):
    source = make_source(loss, samples=60, features=features, nonzeros=3, seed=seed, correlation=0.85)
    return Problem(loss, (kappa,), gamma), source


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_tree_with_little_memory_proves_the_same(loss, monkeypatch):
    problem, source = make(loss)
    best = best_objective(problem, source)
    deep, take = [], OpenNodes.take
    monkeypatch.setattr(
        OpenNodes, "take", lambda self, most, deepest: (deep.append(deepest), take(self, most, deepest))[1]
    )
    monkeypatch.setattr(NewtonRelaxation, "width", property(lambda self: 4, lambda self, value: None), raising=False)
    for numbers, little in ((250_000_000, False), (0, True)):
        deep.clear()
        monkeypatch.setattr(exact_mode, "MOST_STORED", numbers)
        result = solve(problem, source, BiCADMM(effort="low", exact=True, max_iter=5, gap_tol=1e-7))
        assert result.status is Status.PROVED
        assert result.objective == pytest.approx(best, rel=1e-6)
        assert any(deep) == little


@pytest.mark.parametrize("loss", [Logistic(), Poisson()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_stop_leaves_a_bound_that_holds(loss, batches):
    problem, source = make(loss, seed=2, features=12)
    inst = pose(problem, source, GridSpec(device="cpu").build())
    asked = []

    def stop(standing):
        asked.append(standing)
        return len(asked) > batches

    Z = torch.zeros(13, 1, dtype=torch.float64)
    start = float(inst.objective(Z))
    proof = prove(inst, 0, Z, None, Request(start, 1e-7, stop, 1e9))
    best = quick_best_objective(problem, source)
    room = 1e-9 * abs(best)
    assert proof.lower - room <= best <= proof.upper + room
    assert len(asked) <= batches + 1
    assert all(one.lower <= best + room for one in asked)


def test_columns_that_no_better_support_has_are_left_out(monkeypatch):
    source = make_source(Logistic(), samples=200, features=14, nonzeros=3, seed=4, correlation=0.2)
    problem = Problem(Logistic(), (4,), 0.05)
    sizes = []
    restrict = NewtonRelaxation.restrict
    monkeypatch.setattr(
        NewtonRelaxation, "restrict", lambda self, *rest: (sizes.append(len(rest[0])), restrict(self, *rest))[1]
    )
    result = solve(problem, source, BiCADMM(exact=True, gap_tol=1e-7))
    assert result.status is Status.PROVED
    assert sizes
    assert sizes[0] < 14
    assert result.objective == pytest.approx(quick_best_objective(problem, source), rel=1e-6)


def test_a_rough_relaxation_costs_no_answer(monkeypatch):
    problem, source = make(Logistic(), seed=3)
    best = quick_best_objective(problem, source)
    for rough in (0.0, 0.5):
        monkeypatch.setattr(exact, "ROUGH", rough)
        result = solve(problem, source, BiCADMM(effort="low", exact=True, max_iter=5, gap_tol=1e-7))
        assert result.objective == pytest.approx(best, rel=1e-6)
        assert result.gap <= 1e-7


@pytest.mark.parametrize("loss", [Logistic(), SquaredHinge()], ids=lambda loss: loss.name)
def test_leaves_that_there_is_no_time_to_fit_keep_the_bounds_of_their_nodes(loss, monkeypatch):
    problem, source = make(loss, seed=2, features=12)
    inst = pose(problem, source, GridSpec(device="cpu").build())
    optima = NewtonRelaxation.optima

    def end_early(self, supports, state, enough):
        values, errors = optima(self, supports, state, enough)
        return values, torch.full_like(errors, torch.inf)

    Z = torch.zeros(13, 1, dtype=torch.float64)
    start = float(inst.objective(Z))
    root = prove(inst, 0, Z, None, Request(start, 1e-7, lambda standing: True, 1e9)).lower
    monkeypatch.setattr(NewtonRelaxation, "optima", end_early)
    proof = prove(inst, 0, Z, None, Request(start, 1e-7, lambda standing: False, 1e9))
    best = quick_best_objective(problem, source)
    assert root < proof.lower <= best + 1e-9 * abs(best)
