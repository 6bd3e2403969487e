"""Fits of many supports at once against the exact refit of each."""

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from posed import CPU, posed, support, zero
from problems import make_source

from psfit import GridSpec, Problem
from psfit.losses import Huber, Logistic, Poisson, Softmax, SquaredHinge
from psfit.problem.pose import pose
from psfit.search import batch_refit, support_batch
from psfit.search.batch_refit import fit_batch
from psfit.search.local_form import LocalForm
from psfit.search.model_form import make_form
from psfit.search.objective import DataObjective
from psfit.search.refit import refit
from psfit.search.support_fit import SupportFit

CASES = [(loss, "element") for loss in (Logistic(), Poisson(), Huber(), SquaredHinge(), Softmax())]
CASES.append((Softmax(), "feature"))
KINDS = pytest.mark.parametrize(("loss", "sparsity"), CASES, ids=lambda case: getattr(case, "name", case))


def local_form(inst, chosen, index=None):
    """The model at the fit of a support."""
    mask = support(inst, chosen)
    found = SupportFit(mask, DataObjective(inst, 0).fit(mask, zero(inst)))
    index = None if index is None else torch.tensor(index)
    return LocalForm(make_form(inst, 0, found, index), inst.domain_of(0), index, inst.grid, 1e-9)


def assert_fits_are_close(inst, local, supports):
    """Every fit is close to the minimum, and its coefficients are those of its objective and its support."""
    masks = [support(inst, chosen) for chosen in supports]
    batch = fit_batch(DataObjective(inst, 0), local, [local.pack(mask) for mask in masks], zero(inst), float("inf"))
    for k, mask in enumerate(masks):
        exact, value = refit(inst, 0, mask, zero(inst)).value, float(batch.values[k])
        assert value >= exact * (1 - 1e-9)
        assert value == pytest.approx(exact, rel=1e-5)
        assert float(inst.objective(batch.Z[k]).sum()) == pytest.approx(value, rel=1e-12)
        allowed = torch.cat([inst.items.mask_one(mask), torch.ones(inst.items.free, inst.source.outputs) > 0])
        assert not bool(batch.Z[k][~allowed].any())


@pytest.fixture(params=["made", "corrected", "kept"])
def patient(request, monkeypatch):
    """No support is given up, and steps are as many as are needed.

    Hessians are made for every step, as with few samples; or corrected; or kept, as on a GPU.
    """
    monkeypatch.setattr(batch_refit, "HOPE", 1e12)
    monkeypatch.setattr(batch_refit, "MOST_STEPS", 300)
    if request.param != "made":
        monkeypatch.setattr(support_batch, "MOST_PRODUCTS", 0)
    monkeypatch.setattr(batch_refit, "CORRECTED", ["cpu"] if request.param == "corrected" else [])


@KINDS
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.usefixtures("patient")
def test_fits_are_those_of_single_refits(loss, sparsity, intercept):
    weight = torch.rand(80, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.2
    inst = posed(loss, 3, sparsity=sparsity, weight=weight, fit_intercept=intercept)
    local = local_form(inst, [0, 2, 5])
    assert_fits_are_close(inst, local, list(combinations(range(5), 3)))


@pytest.mark.parametrize("loss", [Logistic(), Poisson(), SquaredHinge()], ids=lambda loss: loss.name)
def test_few_samples_of_the_second_output_with_common_weights(loss):
    """Its targets are its own, and its weights those of all outputs."""
    source = make_source(loss, samples=80, features=8, nonzeros=3, seed=0)
    target = torch.cat([source.target, source.target.flip(0)], dim=1)
    source = type(source)(source.matrix, target, torch.linspace(0.5, 2, 80, dtype=torch.float64).unsqueeze(1))
    inst = pose(Problem(loss, (3, 3), 3.0), source, GridSpec().build(CPU))
    chosen = support(inst, [0, 2, 5])
    objective = DataObjective(inst, 1)
    found = SupportFit(chosen, objective.fit(chosen, zero(inst)))
    batch = fit_batch(objective, objective.local_form(found), [chosen.numpy()], zero(inst), float("inf"))
    exact = refit(inst, 1, chosen, zero(inst)).value
    assert float(batch.values[0]) == pytest.approx(exact, rel=1e-6)


@KINDS
@pytest.mark.parametrize("seed", range(3))
def test_the_best_of_all_swaps_is_among_those_that_promise_most(loss, sparsity, seed):
    """It is recognised although the others are given up."""
    inst = posed(loss, 3, sparsity=sparsity, seed=seed)
    swaps = [[*(j for j in (0, 2, 5) if j != out), into] for out in (0, 2, 5) for into in (1, 3, 4, 6, 7)]
    exact = [refit(inst, 0, support(inst, swap), zero(inst)).value for swap in swaps]
    local = local_form(inst, [0, 2, 5])
    batch = fit_batch(
        DataObjective(inst, 0), local, [local.pack(support(inst, swap)) for swap in swaps], zero(inst), float("inf")
    )
    best = torch.tensor(exact, dtype=torch.float64)
    assert (batch.values >= best - 1e-9 * best.abs()).all()
    first, second = (batch.values - batch.promised).argsort()[:2].tolist()
    assert min(exact[first], exact[second]) == min(exact)


@KINDS
def test_nodes_and_blocks_give_the_same_fits(loss, sparsity):
    values = []
    for grid in ({}, {"nodes": 2}, {"blocks": 2}):
        inst = posed(loss, 3, sparsity=sparsity, **grid)
        local = local_form(inst, [0, 2, 5])
        packed = [local.pack(support(inst, s)) for s in ([0, 2, 5], [0, 2, 6], [1, 2, 5])]
        values.append(fit_batch(DataObjective(inst, 0), local, packed, zero(inst), float("inf")).values)
    for other in values[1:]:
        torch.testing.assert_close(other, values[0], rtol=1e-9, atol=0)


@KINDS
def test_a_model_of_some_items_gives_the_same_fits(loss, sparsity):
    inst = posed(loss, 3, sparsity=sparsity)
    supports = [[0, 2, 5], [0, 2, 6], [1, 2, 5]]
    found = []
    for index in (None, [0, 1, 2, 5, 6]):
        local = local_form(inst, [0, 2, 5], index)
        found.append(
            fit_batch(
                DataObjective(inst, 0),
                local,
                [local.pack(support(inst, s)) for s in supports],
                zero(inst),
                float("inf"),
            )
        )
    torch.testing.assert_close(found[1].values, found[0].values, rtol=1e-9, atol=0)
    torch.testing.assert_close(found[1].Z, found[0].Z, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("loss", [Logistic(), Huber()], ids=lambda loss: loss.name)
@pytest.mark.usefixtures("patient")
def test_rows_of_independent_outputs(loss):
    """Several targets with a support in common: their losses are added."""
    source = make_source(loss, samples=80, features=8, nonzeros=3, seed=0)
    target = torch.cat([source.target, source.target.flip(0)], dim=1)
    inst = pose(Problem(loss, (3,), 3.0, "feature"), source.with_target(target), GridSpec().build(CPU))
    assert_fits_are_close(inst, local_form(inst, [0, 2, 5]), [[0, 2, 5], [0, 2, 6], [1, 2, 3]])


def test_a_support_that_cannot_be_the_best_is_given_up(monkeypatch):
    inst = posed(Logistic(), 3)
    best = min(combinations(range(8), 3), key=lambda s: refit(inst, 0, support(inst, s), zero(inst)).value)
    worst = max(combinations(range(8), 3), key=lambda s: refit(inst, 0, support(inst, s), zero(inst)).value)
    local = local_form(inst, best)
    packed = [local.pack(support(inst, s)) for s in (best, worst)]
    target = refit(inst, 0, support(inst, best), zero(inst)).value
    monkeypatch.setattr(batch_refit, "HOPE", 1.0)
    batch = fit_batch(DataObjective(inst, 0), local, packed, zero(inst), target)
    assert float(batch.values[0]) == pytest.approx(target, rel=1e-6)
    assert float(batch.values[1] - batch.promised[1]) > target
    assert float(batch.values[1]) >= refit(inst, 0, support(inst, worst), zero(inst)).value


@KINDS
def test_supports_in_parts_have_the_same_fits(loss, sparsity, monkeypatch):
    inst = posed(loss, 3, sparsity=sparsity)
    local = local_form(inst, [0, 2, 5])
    packed = [local.pack(support(inst, s)) for s in ([0, 2, 5], [0, 2, 6], [1, 2, 5])]
    whole = fit_batch(DataObjective(inst, 0), local, packed, zero(inst), float("inf"))
    monkeypatch.setattr(support_batch, "MOST_NUMBERS", 1)
    parts = fit_batch(DataObjective(inst, 0), local, packed, zero(inst), float("inf"))
    torch.testing.assert_close(parts.values, whole.values, rtol=1e-10, atol=0)


def test_a_form_whose_minimum_is_too_far_is_followed_part_of_the_way(monkeypatch):
    """A tenth of the true curvature: its minimum is about ten times too far."""
    inst = posed(Logistic(), 3, gamma=100.0)
    mask = support(inst, [0, 2, 5])
    found = DataObjective(inst, 0).fit(mask, zero(inst))
    local = local_form(inst, [0, 2, 5])
    z = found.Z.double()
    H = 0.1 * local.form.H
    gradient = local.form.H @ z - local.form.Q
    local.form = replace(local.form, H=H, Q=H @ z - gradient)
    swaps = [[0, 2, 6], [0, 5, 6], [2, 5, 6]]
    packed = [local.pack(support(inst, s)) for s in swaps]
    monkeypatch.setattr(batch_refit, "MOST_STEPS", 0)
    shortened = fit_batch(DataObjective(inst, 0), local, packed, found.Z, found.value).values
    monkeypatch.setattr(batch_refit, "SHORTER", ())
    whole = fit_batch(DataObjective(inst, 0), local, packed, found.Z, found.value).values
    assert (shortened < 0.9 * whole).all()


def test_predictors_that_overflow_do_not_spoil_the_other_fits():
    inst = posed(Poisson(), 3)
    local = local_form(inst, [0, 2, 5])
    wild = replace(local.form, Q=local.form.Q.clone())
    wild.Q[6] = 1e7
    local.form = wild
    batch = fit_batch(
        DataObjective(inst, 0),
        local,
        [local.pack(support(inst, s)) for s in ([0, 2, 5], [0, 2, 6])],
        zero(inst),
        float("inf"),
    )
    exact = refit(inst, 0, support(inst, [0, 2, 5]), zero(inst)).value
    assert float(batch.values[0]) == pytest.approx(exact, rel=1e-6)
    assert float(batch.values[1]) >= refit(inst, 0, support(inst, [0, 2, 6]), zero(inst)).value
