"""Bounds by second-order models against a long run of another method, and against enumeration."""

import pytest
import torch
from enumeration import best_objective
from problems import make_source

from psfit import Dense, GridSpec, Problem, Source
from psfit.certificate import dual, model_ascent
from psfit.certificate.candidates import bound_by_candidates
from psfit.certificate.data_relaxation import DataRelaxation
from psfit.certificate.dual import dual_bound
from psfit.certificate.model_ascent import raise_by_models, serves
from psfit.losses import Hinge, Huber, Logistic, Poisson, Softmax, SquaredHinge
from psfit.problem.pose import pose
from psfit.search.refit import refit

SMOOTH = [Logistic(), SquaredHinge(), Huber(), Poisson()]


def posed(loss, seed, *, samples=80, features=8, nodes=1, intercept=True, offset=0.0, gamma=0.3):
    source = make_source(loss, samples=samples, features=features, nonzeros=3, seed=seed, correlation=0.6)
    source = Source(Dense(source.matrix.values + offset), source.target, source.weight)
    problem = Problem(loss, (3,), gamma, fit_intercept=intercept)
    inst = pose(problem, source, GridSpec(nodes=nodes, device="cpu").build())
    first = torch.zeros(features, dtype=torch.bool)
    first[:3] = True
    fit = refit(inst, 0, first, torch.zeros(len(inst.ridge), 1, dtype=torch.float64))
    return problem, source, inst, fit


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_models_prove_what_a_long_run_of_another_method_proves(loss, intercept, seed):
    problem, source, inst, fit = posed(loss, seed, intercept=intercept, nodes=1 + seed)
    found = raise_by_models(inst, fit.Z, fit.value, inst.domain)
    optimum = best_objective(problem, source)
    assert float(found.lower) <= optimum * (1 + 1e-7)
    relaxation = DataRelaxation(inst)
    other = relaxation.bound(inst.domain, relaxation.start(fit.Z), fit.value, 1000)
    assert float(found.lower) >= float(other.lower) - 0.03 * (fit.value - float(other.lower))
    # The slopes are those behind the bound.
    assert float(dual_bound(inst, found.slopes, inst.domain)[0]) == pytest.approx(float(found.lower), rel=1e-12)


def test_some_of_the_rows_are_enough_for_the_second_derivatives(monkeypatch):
    _, _, inst, fit = posed(Logistic(), 0, samples=2000)
    known = raise_by_models(inst, fit.Z, fit.value, inst.domain)
    monkeypatch.setattr(model_ascent, "MOST_WORK", 1e4)
    model = model_ascent._Model(inst, model_ascent._Point.at(inst, fit.Z))
    ones = torch.ones_like(inst.source.weight)
    exact = inst.source.matrix.gram(ones)
    assert not torch.equal(model._second_derivatives(ones), exact)
    torch.testing.assert_close(model._second_derivatives(ones).diagonal(), exact.diagonal(), rtol=0.5, atol=0)
    found = raise_by_models(inst, fit.Z, fit.value, inst.domain)
    assert float(found.lower) == pytest.approx(float(known.lower), abs=0.03 * (fit.value - float(known.lower)))


def test_the_least_ridge_over_shares_is_that_of_many_random_shares():
    _, _, inst, fit = posed(Logistic(), 1)
    model = model_ascent._Model(inst, model_ascent._Point.at(inst, fit.Z))
    generator = torch.Generator().manual_seed(0)
    for x in torch.randn(20, 8, generator=generator, dtype=torch.float64) ** 3:
        least = float(model._perspective(x))
        shares = torch.rand(5000, 8, generator=generator, dtype=torch.float64) ** 2
        shares = (3 * shares / shares.sum(dim=1, keepdim=True)).clamp(max=1)
        values = 0.5 * (model.ridge * x.square() / shares).sum(dim=1)
        assert least <= float(values.min())
        # Shares by size with one common factor, found by bisection, reach it.
        size, low, high = x.abs() * model.ridge.sqrt(), 0.0, 1e6
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (low, middle) if float((middle * size).clamp(max=1).sum()) > 3 else (middle, high)
        best = 0.5 * (size.square() / (low * size).clamp(max=1)).sum()
        assert least == pytest.approx(float(best), rel=1e-9)


def test_joint_and_kinked_losses_are_left_to_the_other_method():
    for loss in (Softmax(), Hinge()):
        source = make_source(loss, samples=30, features=5, nonzeros=2, seed=0)
        assert not serves(pose(Problem(loss, (2,)), source, GridSpec(device="cpu").build()))


@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("seed", range(3))
def test_candidates_prove_what_all_columns_prove(loss, seed):
    problem, source, inst, fit = posed(loss, seed, features=12, gamma=0.05)
    bound, _ = bound_by_candidates(inst, fit.Z, fit.value)
    relaxation = DataRelaxation(inst)
    other = relaxation.bound(inst.domain, relaxation.start(fit.Z), fit.value, 1000)
    assert float(bound) <= best_objective(problem, source) * (1 + 1e-7)
    assert float(bound) >= float(other.lower) - 0.05 * (fit.value - float(other.lower))


@pytest.mark.parametrize("offset", [0.0, 5.0, 100.0])
def test_raw_products_prove_the_same_where_means_are_moderate(monkeypatch, offset):
    _, _, inst, fit = posed(Logistic(), 2, offset=offset)
    assert (dual._raw_rounding(inst) is None) == (offset > 50)
    slopes = inst.problem.loss.gradient(inst.source.matrix.mv(fit.Z), inst.source.target)
    found = dual_bound(inst, slopes, inst.domain)
    monkeypatch.setattr(dual, "MOST_RAW_ROUNDING", 0.0)
    centred = dual_bound(inst, slopes, inst.domain)
    torch.testing.assert_close(found, centred, rtol=1e-9, atol=1e-12)
    # More rounding is counted for raw products, so they never prove more than rounding allows.
    assert float(found[0]) <= float(centred[0]) + 1e-12 * abs(float(centred[0]))
