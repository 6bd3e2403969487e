"""Refit and swap search against references that share no code with them."""

from itertools import combinations

import clarabel
import numpy as np
import pytest
import torch
from enumeration import _fit
from oracles import loss_value
from problems import LOSSES, make_source
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import expit

from psfit import Dense, GridSpec, Problem, Source
from psfit.data import Sparse
from psfit.losses import Hinge, Logistic, Softmax, Squared
from psfit.problem import LocalModel
from psfit.problem.exchanges import score_rows
from psfit.problem.pose import pose
from psfit.search.objective import DataObjective, FormObjective, objective_of
from psfit.search.refit import refit
from psfit.search.restarts import EFFORTS, explore, try_all
from psfit.search.support_fit import SupportFit
from psfit.search.swaps import propose, swap_search


def posed(loss, kappa, *, nodes=1, sparsity="element", gamma=3.0, dtype=torch.float64, **shape):
    source = make_source(loss, **{"samples": 80, "features": 8, "nonzeros": 3, "seed": 0, **shape})
    source = type(source)(
        type(source.matrix)(source.matrix.values.to(dtype)), source.target.to(dtype), source.weight.to(dtype)
    )
    problem = Problem(loss, (kappa,), gamma, sparsity)
    return pose(problem, source, GridSpec(nodes=nodes).build(torch.device("cpu")))


def zero(inst):
    return torch.zeros(inst.source.matrix.shape[1], inst.source.outputs, dtype=torch.float64)


def items(inst, chosen):
    mask = torch.zeros(inst.items.size, dtype=torch.bool)
    mask[list(chosen)] = True
    return mask


@pytest.mark.parametrize("gamma", [0.01, 3.0, 1e4])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_refit_is_the_minimum_on_its_support(loss, gamma):
    inst = posed(loss, 3, gamma=gamma, nodes=3)
    chosen = items(inst, [0, 2, 5])
    fit = refit(inst, 0, chosen, zero(inst))
    base = inst.source.matrix.base
    mask = inst.items.mask(chosen.unsqueeze(0)).numpy()
    expected = _fit(inst.problem, base.values.numpy(), inst.source.target.numpy(), mask)
    assert fit.value == pytest.approx(expected, rel=1e-7)
    assert fit.value <= expected + 1e-8 * abs(expected)
    assert fit.residual < 1e-8
    assert float(inst.objective(fit.Z).sum()) == pytest.approx(fit.value, rel=1e-10)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if not loss.joint], ids=lambda loss: loss.name)
@pytest.mark.parametrize("seed", range(3))
def test_an_intercept_alone_is_fitted(loss, seed):
    """Of some losses it has no curvature in most places, and no ridge."""
    source = make_source(loss, samples=30, features=4, nonzeros=2, seed=seed)
    target = source.target.clone()
    target[:21] = target[:21].abs()
    inst = pose(Problem(loss, (1,), 1.0), source.with_target(target), GridSpec(device="cpu").build())
    fit = refit(inst, 0, items(inst, []), zero(inst) + 7.0)
    b = inst.source.target.numpy()
    best = minimize_scalar(lambda eta: loss_value(loss, np.full_like(b, eta), b).sum(), bracket=(-1, 1), tol=1e-12)
    assert fit.value == pytest.approx(best.fun, rel=1e-7)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.smooth], ids=lambda loss: loss.name)
def test_refit_gradient_vanishes(loss):
    """Relative gradient in the caller's coordinates, by automatic differentiation."""
    inst = posed(loss, 3, seed=4)
    chosen = items(inst, [1, 2, 6])
    Z = refit(inst, 0, chosen, zero(inst)).Z
    coef, intercept = inst.coordinates.to_user(Z)
    A, b = inst.source.matrix.base.values, inst.source.target + inst.coordinates.level

    def gradient(coef, intercept):
        coef, intercept = coef.clone().requires_grad_(), intercept.clone().requires_grad_()
        value = loss.value(A @ coef + intercept, b).sum() + coef.square().sum() / 6
        return torch.autograd.grad(value, [coef, intercept])

    mask = inst.items.mask(chosen.unsqueeze(0))
    at_answer, at_zero = gradient(coef, intercept), gradient(0 * coef, 0 * intercept)
    scale = torch.cat([at_zero[0][mask], at_zero[1]]).norm()
    assert torch.cat([at_answer[0][mask], at_answer[1]]).norm() <= 1e-8 * scale


def test_refit_from_float32_data_is_exact_in_float64():
    inst = posed(Logistic(), 3, dtype=torch.float32)
    fit = refit(inst, 0, items(inst, [0, 1, 2]), zero(inst))
    A = inst.source.matrix.base.values.double().numpy()
    mask = np.isin(np.arange(8), [0, 1, 2])[:, None]
    assert fit.value == pytest.approx(_fit(inst.problem, A, inst.source.target.double().numpy(), mask), rel=1e-9)


def actual_gain(inst, chosen, fit, swap):
    """What the refitted objective really gains by a swap."""
    trial = chosen.clone()
    trial[swap.out], trial[swap.into] = False, True
    return fit.value - refit(inst, 0, trial, zero(inst)).value


def test_wide_searches_with_a_large_limit_go_by_the_form():
    """And find what passes over the data would; a single fit does without them."""
    inst = posed(Squared(), 6, samples=30, features=60)
    assert isinstance(objective_of(inst, 0), FormObjective)
    assert isinstance(objective_of(inst, 0, search=False), DataObjective)
    assert isinstance(objective_of(posed(Squared(), 2, samples=30, features=60), 0), DataObjective)
    assert isinstance(objective_of(posed(Squared(), 6, samples=10, features=60), 0), DataObjective)
    start = items(inst, range(6))
    by_data = swap_search(DataObjective(inst, 0), start, zero(inst), inst.resolution)
    by_form = swap_search(FormObjective(inst, 0), start, zero(inst), inst.resolution)
    assert torch.equal(by_form[0], by_data[0])
    assert by_form[1].value == pytest.approx(by_data[1].value, rel=1e-9)


@pytest.mark.parametrize("objective", [DataObjective, FormObjective])
def test_scores_of_the_squared_loss_are_exact(objective):
    inst = posed(Squared(), 3, nodes=2)
    chosen = items(inst, [0, 4, 7])
    objective = objective(inst, 0)
    fit = objective.fit(chosen, zero(inst))
    swaps = propose(objective.domain, objective.model(fit, chosen), chosen)
    assert swaps
    for swap in swaps:
        assert swap.gain == pytest.approx(actual_gain(inst, chosen, fit, swap), rel=1e-7, abs=1e-9)


def test_scores_of_whole_rows_are_exact():
    source = make_source(Squared(), samples=80, features=8, nonzeros=3, seed=0)
    target = torch.cat([source.target, source.target.flip(0)], dim=1)
    problem = Problem(Squared(), (3,), 3.0, "feature")
    inst = pose(problem, source.with_target(target), GridSpec().build(torch.device("cpu")))
    chosen = items(inst, [0, 4, 7])
    for objective in (DataObjective(inst, 0), FormObjective(inst, 0)):
        fit = objective.fit(chosen, zero(inst))
        swaps = propose(objective.domain, objective.model(fit, chosen), chosen)
        assert swaps
        for swap in swaps:
            assert swap.gain == pytest.approx(actual_gain(inst, chosen, fit, swap), rel=1e-7)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Softmax(), Hinge()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("start", [[0, 1, 2], [5, 6, 7]])
def test_no_single_swap_improves_the_answer(loss, start):
    inst = posed(loss, 3, samples=60, features=8)
    chosen, fit, _ = swap_search(DataObjective(inst, 0), items(inst, start), zero(inst), 1e-12)
    assert int(chosen.sum()) == 3
    for out in chosen.nonzero().flatten().tolist():
        for into in (~chosen).nonzero().flatten().tolist():
            trial = chosen.clone()
            trial[out], trial[into] = False, True
            assert refit(inst, 0, trial, zero(inst)).value >= fit.value * (1 - 1e-9)


def search_and_refit(inst, kappa):
    """The exact fit at the end of a whole search from the first items."""
    starts, exploration = [items(inst, range(kappa))], EFFORTS["medium"]
    *_, found = explore(objective_of(inst, 0), starts, zero(inst), inst.resolution, exploration, 0)
    return refit(inst, 0, found.chosen, found.fit.Z)


@pytest.mark.parametrize("loss", [Squared(), Softmax()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("kappa", [1, 8])
def test_the_ends_of_the_range_of_kappa(loss, kappa):
    inst = posed(loss, kappa, sparsity="feature")
    answer = search_and_refit(inst, kappa)
    assert int((answer.Z[:8] != 0).any(dim=1).sum()) == kappa


def test_duplicate_columns_with_hardly_any_ridge():
    source = make_source(Squared(), samples=60, features=4, nonzeros=2, seed=0)
    doubled = type(source)(type(source.matrix)(source.matrix.values.repeat(1, 2)), source.target, source.weight)
    inst = pose(Problem(Squared(), (8,), 1e14), doubled, GridSpec().build(torch.device("cpu")))
    answer = search_and_refit(inst, 8)
    single = pose(Problem(Squared(), (4,), 1e14), source, GridSpec().build(torch.device("cpu")))
    expected = search_and_refit(single, 4)
    assert answer.Z.isfinite().all()
    assert answer.value == pytest.approx(expected.value, rel=1e-9)


@pytest.mark.parametrize("spread", [1e-3, 1e-6])
@pytest.mark.parametrize("name", ["logistic", "hinge"])
def test_nearly_dependent_columns_are_refitted_to_the_end(name, spread):
    """Without an intercept, columns far from zero are nearly parallel. The reference works in a basis of its own."""
    rng = np.random.default_rng(0)
    A = 1 + spread * rng.normal(size=(60, 3))
    b = np.where(A[:, 0] - A[:, 1] + spread * rng.normal(size=60) > 0, 1.0, -1.0)
    gamma = 1e3 / spread**2
    Q, R = np.linalg.qr(A)
    pays = np.linalg.inv(R @ R.T) / gamma
    u = damped_newton(Q, b, pays) if name == "logistic" else conic_hinge(Q, b, pays)
    eta = Q @ u
    losses = np.logaddexp(0, -b * eta) if name == "logistic" else np.maximum(0, 1 - b * eta)
    expected = losses.sum() + u @ pays @ u / 2
    source = Source(Dense(torch.tensor(A)), torch.tensor(b).unsqueeze(1), torch.ones(60, 1, dtype=torch.float64))
    loss = Logistic() if name == "logistic" else Hinge()
    inst = pose(Problem(loss, (3,), gamma, fit_intercept=False), source, GridSpec(nodes=2).build(torch.device("cpu")))
    fit = refit(inst, 0, torch.ones(3, dtype=torch.bool), zero(inst))
    assert fit.value == pytest.approx(expected, rel=1e-7)


def damped_newton(Q, b, pays):
    """Damped Newton steps for the logistic loss in a well-conditioned basis."""
    u = np.zeros(Q.shape[1])

    def value(u):
        return np.logaddexp(0, -b * (Q @ u)).sum() + u @ pays @ u / 2

    for _ in range(100):
        p = expit(-b * (Q @ u))
        g = -Q.T @ (b * p) + pays @ u
        step = np.linalg.solve(Q.T @ ((p * (1 - p))[:, None] * Q) + pays, g)
        length = 1.0
        while value(u - length * step) > value(u) and length > 1e-12:
            length /= 2
        u = u - length * step
    return u


def conic_hinge(Q, b, pays):
    """The hinge loss as a quadratic problem in coordinates and slacks."""
    m, n = Q.shape
    P = sparse.block_diag([sparse.csc_matrix(pays), sparse.csc_matrix((m, m))], format="csc")
    rows = sparse.csc_matrix(np.block([[-b[:, None] * Q, -np.eye(m)], [np.zeros((m, n)), -np.eye(m)]]))
    rhs = np.concatenate([-np.ones(m), np.zeros(m)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    q = np.concatenate([np.zeros(n), np.ones(m)])
    solved = clarabel.DefaultSolver(
        sparse.triu(P, format="csc"), q, rows, rhs, [clarabel.NonnegativeConeT(2 * m)], settings
    )
    return np.array(solved.solve().x)[:n]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_few_supports_are_all_tried(loss):
    inst = posed(loss, 2, features=5, samples=40)
    objective = objective_of(inst, 0)
    worst = max(
        (items(inst, pair) for pair in combinations(range(inst.items.size), 2)),
        key=lambda chosen: objective.fit(chosen, zero(inst)).value,
    )
    found = try_all(objective, SupportFit(worst, objective.fit(worst, zero(inst))))
    base, target = inst.source.matrix.base.values.numpy(), inst.source.target.numpy()
    best = min(
        _fit(inst.problem, base, target, inst.items.mask(items(inst, pair).unsqueeze(0)).numpy())
        for pair in combinations(range(inst.items.size), 2)
    )
    assert found.value == pytest.approx(best, rel=1e-6)
    assert int(found.chosen.sum()) == 2


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_empty_columns_of_a_sparse_matrix_do_not_end_the_swaps(fit_intercept):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 30)) * (rng.random(size=(60, 30)) < 0.3)
    # More empty columns than a round has tries.
    X = np.hstack([X, np.zeros((60, 150))])
    y = X[:, :30] @ rng.normal(size=30) + 0.1 * rng.normal(size=60)
    source = Source(
        Sparse.of(sparse.csr_matrix(X), torch.device("cpu"), torch.float64),
        torch.from_numpy(y).unsqueeze(1),
        torch.ones(60, 1, dtype=torch.float64),
    )
    inst = pose(
        Problem(Squared(), (3,), 1.0, fit_intercept=fit_intercept), source, GridSpec(nodes=1).build(torch.device("cpu"))
    )
    objective = DataObjective(inst, 0)
    chosen = torch.zeros(180, dtype=torch.bool)
    chosen[[0, 1, 2]] = True
    found, fit, _ = swap_search(objective, chosen, zero(inst), 1e-9)
    A, b = (X - X.mean(axis=0), y - y.mean()) if fit_intercept else (X, y)

    def value(support):
        part = A[:, support]
        x = np.linalg.solve(2 * part.T @ part + np.eye(len(support)), 2 * part.T @ b)
        return ((part @ x - b) ** 2).sum() + 0.5 * x @ x

    inside, outside = np.flatnonzero(found), np.flatnonzero(~found)
    assert fit.value == pytest.approx(value(inside))
    assert fit.value < value([0, 1, 2])
    swapped = [value([*(k for k in inside if k != out), into]) for out in inside for into in outside]
    assert fit.value <= min(swapped) * (1 + 1e-9)


def test_swaps_of_rows_are_scored_where_a_part_of_the_inverse_is_singular():
    rng = np.random.default_rng(0)

    def draw(*shape):
        return torch.tensor(rng.normal(size=shape))

    inner = draw(4, 4)
    model = LocalModel(
        gradient=draw(3, 2),
        blocks=torch.eye(2).double().repeat(3, 1, 1),
        columns=0.01 * draw(3, 2, 4),
        inner=inner @ inner.T + torch.eye(4),
        x=draw(4),
        item=torch.tensor([0, 0, 1, 1]),
    )
    K = torch.linalg.inv(model.inner)
    K[0], K[:, 0] = 0.0, 0.0
    assert score_rows(model, K, torch.tensor([0, 1]), torch.tensor([2])).isfinite().all()
