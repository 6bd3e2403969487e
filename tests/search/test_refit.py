"""The exact refit against references that share no code with it."""

import clarabel
import numpy as np
import pytest
import torch
from enumeration import _fit
from oracles import loss_value
from posed import posed, support, zero
from problems import LOSSES, make_source
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import expit

from psfit import Dense, GridSpec, Problem, Source
from psfit.losses import Hinge, Logistic, Poisson
from psfit.problem.pose import pose
from psfit.search.refit import refit


@pytest.mark.parametrize("gamma", [0.01, 3.0, 1e4])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_refit_is_the_minimum_on_its_support(loss, gamma):
    inst = posed(loss, 3, gamma=gamma, nodes=3)
    chosen = support(inst, [0, 2, 5])
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
    fit = refit(inst, 0, support(inst, []), zero(inst) + 7.0)
    b = inst.source.target.numpy()
    best = minimize_scalar(lambda eta: loss_value(loss, np.full_like(b, eta), b).sum(), bracket=(-1, 1), tol=1e-12)
    assert fit.value == pytest.approx(best.fun, rel=1e-7)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.smooth], ids=lambda loss: loss.name)
def test_refit_gradient_vanishes(loss):
    """Relative gradient in the caller's coordinates, by automatic differentiation."""
    inst = posed(loss, 3, seed=4)
    chosen = support(inst, [1, 2, 6])
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


def test_a_start_whose_curvatures_overflow_does_not_change_the_refit():
    inst = posed(Poisson(), 3, gamma=1e4, nodes=2)
    chosen = support(inst, [0, 2, 5])
    start = zero(inst)
    start[-1] = 1e6  # the intercept
    expected = refit(inst, 0, chosen, zero(inst))
    fit = refit(inst, 0, chosen, start)
    assert fit.value == pytest.approx(expected.value, rel=1e-9)
    assert fit.residual < 1e-8


def test_refit_from_float32_data_is_exact_in_float64():
    inst = posed(Logistic(), 3, dtype=torch.float32)
    fit = refit(inst, 0, support(inst, [0, 1, 2]), zero(inst))
    A = inst.source.matrix.base.values.double().numpy()
    mask = np.isin(np.arange(8), [0, 1, 2])[:, None]
    assert fit.value == pytest.approx(_fit(inst.problem, A, inst.source.target.double().numpy(), mask), rel=1e-9)


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
