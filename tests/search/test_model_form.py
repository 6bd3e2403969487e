"""The model of second order at a fit against automatic differentiation of the objective."""

from dataclasses import replace

import pytest
import torch
from posed import posed, support, zero
from problems import make_source

from psfit import GridSpec, Problem
from psfit.losses import Huber, Logistic, Poisson, Softmax, SquaredHinge
from psfit.problem.pose import pose
from psfit.search import model_form
from psfit.search.local_form import LocalForm
from psfit.search.model_form import make_form, pick_items
from psfit.search.objective import DataObjective
from psfit.search.support_fit import SupportFit

# No residual is beyond the kink of this Huber loss, whose model is wider than its curvature there.
SCALAR = [Logistic(), Poisson(), Huber(1e6), SquaredHinge()]
CASES = [(loss, "element") for loss in SCALAR] + [(Softmax(), "element"), (Softmax(), "feature")]
KINDS = pytest.mark.parametrize(("loss", "sparsity"), CASES, ids=lambda case: getattr(case, "name", case))


def weights(samples):
    return torch.rand(samples, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.2


def fitted(inst, chosen):
    mask = support(inst, chosen)
    return SupportFit(mask, DataObjective(inst, 0).fit(mask, zero(inst), tol=1e-9))


def objective_of(inst):
    """The objective of all coefficients as one vector, row by row, written out with plain products."""
    matrix, loss = inst.source.matrix, inst.problem.loss
    columns = matrix.mv(torch.eye(matrix.shape[1], dtype=torch.float64))

    def value(z):
        Z = z.view(matrix.shape[1], -1)
        losses = inst.source.weight * loss.value(columns @ Z, inst.source.target)
        return losses.sum() + 0.5 * (inst.ridge * Z.square()).sum()

    return value


def variables_of(inst, index):
    """The numbers of the coefficients of some items, then those of the intercepts."""
    c, p = inst.source.outputs, inst.items.features
    free = torch.arange(p * c, (p + inst.items.free) * c)
    items = torch.arange(inst.items.size) if index is None else torch.tensor(index)
    counted = (items.unsqueeze(1) * inst.items.width + torch.arange(inst.items.width)).flatten()
    return torch.cat([counted, free])


def assert_model_is_that_of_the_objective(inst, found, index):
    form = make_form(inst, 0, found, None if index is None else torch.tensor(index))
    value, z = objective_of(inst), found.fit.Z.flatten()
    kept = variables_of(inst, index)
    H = torch.autograd.functional.hessian(value, z)[kept][:, kept]
    gradient = torch.autograd.functional.jacobian(value, z)[kept]
    c, free = inst.source.outputs, inst.items.free * inst.source.outputs
    if inst.problem.loss.joint:
        # The loss does not change if all intercepts move together, or all outputs of a row. There the model has
        # curvature of its own: some number that is added to the whole block.
        starts = range(0, len(H), c) if inst.items.width > 1 else range(len(H) - free, len(H), c)
        for block in (slice(start, start + c) for start in starts):
            added = form.H[block, block] - H[block, block]
            assert float(added.min()) >= 0
            torch.testing.assert_close(added, added.mean().expand(c, c), rtol=1e-9, atol=1e-9)
            H[block, block] += added.mean()
    torch.testing.assert_close(form.H, H, rtol=1e-9, atol=1e-9 * float(H.abs().max()))
    x = z[kept]
    torch.testing.assert_close(form.H @ x - form.Q[:, 0], gradient, rtol=1e-7, atol=1e-9 * float(H.abs().max()))
    model = 0.5 * x @ form.H @ x - form.Q[:, 0] @ x + form.constant
    assert float(model) == pytest.approx(float(value(z)), rel=1e-10)
    assert form.width == inst.items.width


@KINDS
@pytest.mark.parametrize("intercept", [True, False])
def test_hessian_slope_and_value_of_all_items(loss, sparsity, intercept):
    inst = posed(loss, 3, sparsity=sparsity, weight=weights(80), fit_intercept=intercept, gamma=0.7)
    assert_model_is_that_of_the_objective(inst, fitted(inst, [0, 2, 5]), None)


@KINDS
@pytest.mark.parametrize("index", [[0, 2, 5], [0, 1, 2, 4, 5, 7]])
def test_a_model_of_some_items(loss, sparsity, index):
    inst = posed(loss, 3, sparsity=sparsity, weight=weights(80))
    assert_model_is_that_of_the_objective(inst, fitted(inst, [0, 2, 5]), index)


def test_entries_of_a_feature_need_not_all_be_in_the_model():
    inst = posed(Softmax(), 4, weight=weights(80))
    assert_model_is_that_of_the_objective(inst, fitted(inst, [0, 4, 5, 23]), [0, 1, 4, 5, 11, 20, 23])


@KINDS
def test_nodes_give_the_same_model(loss, sparsity):
    one, two = (posed(loss, 3, sparsity=sparsity, weight=weights(80), nodes=nodes) for nodes in (1, 2))
    found = fitted(one, [0, 2, 5])
    form, other = (make_form(inst, 0, found, None) for inst in (one, two))
    torch.testing.assert_close(other.H, form.H, rtol=1e-12, atol=1e-12 * float(form.H.abs().max()))
    torch.testing.assert_close(other.Q, form.Q, rtol=1e-10, atol=1e-10 * float(form.Q.abs().max()))
    assert other.constant == pytest.approx(form.constant, rel=1e-12)


@KINDS
def test_blocks_give_the_same_model(loss, sparsity):
    one, two = (posed(loss, 3, sparsity=sparsity, blocks=blocks) for blocks in (1, 2))
    found = fitted(one, [0, 2, 5])
    form, other = (make_form(inst, 0, found, None) for inst in (one, two))
    torch.testing.assert_close(other.H, form.H, rtol=1e-12, atol=1e-12 * float(form.H.abs().max()))
    torch.testing.assert_close(other.Q, form.Q, rtol=1e-10, atol=1e-10 * float(form.Q.abs().max()))


def test_expensive_products_in_single_precision(monkeypatch):
    inst = posed(Logistic(), 3)
    found = fitted(inst, [0, 2, 5])
    exact = make_form(inst, 0, found, None)
    monkeypatch.setattr(model_form, "FREE_DOUBLE", 0.0)
    rough = make_form(inst, 0, found, None)
    assert not torch.equal(rough.H, exact.H)
    assert rough.accuracy > exact.accuracy
    torch.testing.assert_close(rough.H, exact.H, rtol=1e-5, atol=1e-5 * float(exact.H.abs().max()))
    # The value and the slope at the fit stay exact.
    x = found.fit.Z
    torch.testing.assert_close(rough.H @ x - rough.Q, exact.H @ x - exact.Q, rtol=1e-9, atol=1e-9)
    value = float(0.5 * (x * (rough.H @ x)).sum() - (rough.Q * x).sum()) + rough.constant
    assert value == pytest.approx(found.value, rel=1e-10)


@pytest.mark.parametrize(
    ("loss", "sparsity"), [(Logistic(), "element"), (Softmax(), "element"), (Softmax(), "feature")]
)
def test_items_of_a_model_are_those_that_promise_most(loss, sparsity, monkeypatch):
    inst = posed(loss, 3, sparsity=sparsity, features=30)
    found = fitted(inst, [0, 12, 29])
    assert pick_items(inst, 0, found) is None
    monkeypatch.setattr(model_form, "CHEAP_PRODUCT", {"cpu": 0.0})
    monkeypatch.setattr(model_form, "LEAST_OTHERS", 8)
    index = pick_items(inst, 0, found)
    assert index.tolist() == sorted(set(index.tolist()))
    # As many as there are inside, and eight more; the entries of a softmax model fill the last row.
    assert 2 * 3 + 8 <= len(index) < 2 * 3 + 8 + inst.source.outputs
    assert {0, 12, 29} <= set(index.tolist())
    value, z = objective_of(inst), found.fit.Z.flatten()
    gradient = torch.autograd.functional.jacobian(value, z)[: 30 * inst.source.outputs]
    own = torch.autograd.functional.hessian(value, z).diagonal()[: 30 * inst.source.outputs]
    scores = (gradient.square() / own).view(inst.items.size, -1).sum(dim=1)
    scores[found.chosen] = torch.inf
    assert set(index.tolist()) == set(scores.topk(len(index)).indices.tolist())


def test_supports_are_packed_and_unpacked():
    inst = posed(Softmax(), 3)
    found, index = fitted(inst, [0, 4, 5]), torch.tensor([0, 1, 4, 5, 11, 20, 23])
    local = LocalForm(make_form(inst, 0, found, index), inst.domain_of(0), index, inst.grid, 1e-9)
    packed = local.pack(found.chosen)
    assert packed.tolist() == [True, False, True, True, False, False, False]
    assert torch.equal(local.unpack(packed), found.chosen)
    assert local.search.items == 7
    (end,) = local.find(lambda search: search.descend([packed]), 1)
    whole = LocalForm(make_form(inst, 0, found, None), inst.domain_of(0), None, inst.grid, 1e-9)
    assert torch.equal(whole.unpack(whole.pack(found.chosen)), found.chosen)
    # The search in some items is that of all items where the others may not join.
    outside = torch.ones(1, 24, dtype=torch.bool)
    outside[0, index] = False
    closed = replace(inst.domain_of(0), outside=outside)
    limited = LocalForm(make_form(inst, 0, found, None), closed, None, inst.grid, 1e-9)
    (other,) = limited.find(lambda search: search.descend([limited.pack(found.chosen)]), 1)
    assert torch.equal(limited.unpack(other.chosen), local.unpack(end.chosen))
    assert other.value == pytest.approx(end.value, rel=1e-9)


@pytest.mark.gpu
@pytest.mark.parametrize("features", [40, 600])
@pytest.mark.parametrize("loss", [Logistic(), Softmax()], ids=lambda loss: loss.name)
def test_a_model_on_a_gpu_is_that_of_plain_products(loss, features):
    source = make_source(loss, samples=2000, features=features, nonzeros=5, seed=3).to(torch.float32).to("cuda")
    inst = pose(Problem(loss, (6,), 10.0), source, GridSpec(device="cuda").build())
    chosen = torch.arange(inst.items.size, device="cuda") < 6
    found = SupportFit(chosen, DataObjective(inst, 0).fit(chosen, zero(inst).to("cuda")))
    form = make_form(inst, 0, found, None)
    A = inst.source.matrix.chunk(0, 2000, torch.float64)
    n, c = A.shape[1], inst.source.outputs
    eta = A @ found.fit.Z
    chance = eta.softmax(dim=1) if loss.joint else torch.sigmoid(eta)
    H = torch.zeros(n, c, n, c, dtype=torch.float64, device="cuda")
    for k in range(c):
        for q in range(c):
            other = chance[:, q : q + 1] if loss.joint else chance
            H[:, k, :, q] = A.T @ (chance[:, k : k + 1] * (float(k == q) - other) * A)
    H = H.view(n * c, n * c) + torch.diag(inst.ridge.expand(-1, c).reshape(-1))
    counted = slice(0, inst.items.size)
    scale = H.diagonal()[counted].sqrt()
    error = (form.H - H)[counted, counted] / (scale * scale.unsqueeze(1))
    assert float(error.abs().max()) < 2e-3
