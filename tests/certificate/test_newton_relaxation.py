"""Second-order bounds against enumeration, a long run of another method, and the optimum without a limit."""

import numpy as np
import pytest
import torch
from enumeration import best_objective
from oracles import loss_gradient, loss_value
from problems import make_source
from scipy import optimize

from psfit import Dense, GridSpec, Problem, Source
from psfit.certificate import newton_relaxation, node_models, node_points
from psfit.certificate.data_relaxation import DataRelaxation
from psfit.certificate.dual import dual_bound
from psfit.certificate.joint_relaxation import serves_jointly
from psfit.certificate.newton_cases import FEW_STEPS, STEPS, serves
from psfit.certificate.newton_relaxation import NewtonRelaxation
from psfit.data import half_gram
from psfit.losses import Huber, Logistic, Poisson, Softmax, Squared, SquaredHinge
from psfit.problem.pose import pose

SMOOTH = [Logistic(), SquaredHinge(), Huber(), Poisson()]


def posed(loss, seed, *, samples=80, features=8, nodes=1, intercept=True, gamma=0.3, kappa=3, weight=None):
    source = make_source(loss, samples=samples, features=features, nonzeros=3, seed=seed, correlation=0.6)
    source = source if weight is None else Source(source.matrix, source.target, weight)
    problem = Problem(loss, (kappa,), gamma, fit_intercept=intercept)
    return problem, source, pose(problem, source, GridSpec(nodes=nodes, device="cpu").build())


def zero(inst):
    return torch.zeros(len(inst.ridge), 1, dtype=torch.float64)


def root_bound(inst, Z=None):
    relaxation = NewtonRelaxation(inst)
    return relaxation.bound(relaxation.root, relaxation.start(zero(inst) if Z is None else Z), float("inf"), STEPS)


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
@pytest.mark.parametrize(("seed", "intercept"), [(0, True), (1, False), (2, True)])
def test_steps_reach_what_a_long_run_of_another_method_proves(loss, intercept, seed):
    problem, source, inst = posed(loss, seed, intercept=intercept, nodes=1 + seed)
    lower = float(root_bound(inst).lower)
    assert lower <= best_objective(problem, source) * (1 + 1e-7)
    first_order = DataRelaxation(inst)
    other = float(first_order.bound(inst.domain, first_order.start(zero(inst)), float("inf"), 3000).lower)
    assert lower >= other - 1e-4 * abs(other)


def dense_optimum(problem, source):
    """The least objective without a limit."""
    A, b, w = source.matrix.values.numpy(), source.target.numpy(), source.weight.numpy()
    p = A.shape[1]

    def evaluate(v):
        eta = (A @ v[:p] + v[p] * problem.fit_intercept).reshape(-1, 1)
        with np.errstate(over="ignore"):
            slope = w * loss_gradient(problem.loss, eta, b)
            value = (w * loss_value(problem.loss, eta, b)).sum() + v[:p] @ v[:p] / (2 * problem.gamma)
        gradient = np.r_[A.T @ slope[:, 0] + v[:p] / problem.gamma, slope.sum() * problem.fit_intercept]
        return value, gradient

    start = np.zeros(p + 1)
    return optimize.minimize(evaluate, start, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-14}).fun


@pytest.mark.parametrize("loss", [*SMOOTH, Squared()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("gamma", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(("samples", "features"), [(120, 30), (30, 60)])
def test_a_root_proves_at_least_the_optimum_without_a_limit(loss, gamma, samples, features):
    weight = torch.rand(samples, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64) + 0.5
    problem, source, inst = posed(loss, 5, samples=samples, features=features, gamma=gamma, weight=weight)
    least, nothing = dense_optimum(problem, source), float(inst.objective(zero(inst)))
    assert float(root_bound(inst).lower) >= least - 1e-4 * abs(least) - 1e-5 * abs(nothing)


def round_hessian(matrix, diagonal):
    """``A' diag(d) A (n, 1, n, 1)`` of columns rounded to half precision, as a GPU makes it."""
    A = (diagonal.sqrt() * matrix.chunk(0, matrix.shape[0], torch.float64)).half().double()
    return (A.T @ A)[:, None, :, None]


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
@pytest.mark.parametrize("gamma", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize(("samples", "features"), [(200, 30), (40, 60)])
def test_rough_second_derivatives_prove_as_much(loss, gamma, samples, features, monkeypatch):
    _, _, inst = posed(loss, 7, samples=samples, features=features, gamma=gamma)
    exact = float(root_bound(inst).lower)
    monkeypatch.setattr(half_gram, "available", lambda matrix: True)
    made = []
    monkeypatch.setattr(half_gram, "half_hessian", lambda *parts: made.append(parts) or round_hessian(*parts))
    monkeypatch.setattr(node_models, "HALF_WORK", (0.0, float("inf")))
    # At first, and in all steps.
    for models in (newton_relaxation.ROUGH_MODELS, STEPS):
        monkeypatch.setattr(newton_relaxation, "ROUGH_MODELS", models)
        assert float(root_bound(inst).lower) == pytest.approx(exact, rel=1e-4)
    assert made


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
def test_a_batch_of_nodes_has_the_bounds_of_single_nodes(loss):
    _, _, inst = posed(loss, 1)
    relaxation = NewtonRelaxation(inst)
    inside = torch.zeros(6, 8, dtype=torch.bool)
    outside = inside.clone()
    inside[1, 0] = inside[2, 3] = inside[4, [0, 5]] = inside[5, [0, 1, 2]] = True
    outside[1, 4] = outside[3, :4] = outside[4, 1] = True
    domain = inst.domain.select(torch.zeros(6, dtype=torch.long)).decide(inside, outside)
    state = relaxation.start(zero(inst))
    together = relaxation.bound(domain, state, float("inf"), STEPS)
    for row in range(6):
        alone = relaxation.bound(domain.select(torch.tensor([row])), state, float("inf"), STEPS)
        assert float(together.lower[row]) == pytest.approx(float(alone.lower), rel=1e-4)
        assert not (together.state[0][row, :8] != 0)[outside[row]].any()
        assert float(together.shares[row].sum()) <= 3 + 1e-9
        assert (together.shares[row][inside[row]] == 1).all()


def test_other_ways_of_making_models_lead_to_the_same_bound(monkeypatch):
    _, _, inst = posed(Logistic(), 0, samples=400)
    known = float(root_bound(inst).lower)
    monkeypatch.setitem(node_points.MOST_NUMBERS, "cpu", 0)
    assert float(root_bound(inst).lower) == pytest.approx(known, rel=1e-9)
    monkeypatch.setitem(node_models.MOST_WORK, "cpu", 1e3)
    assert NewtonRelaxation(inst).maker.step == 4
    assert float(root_bound(inst).lower) == pytest.approx(known, rel=1e-4)


def test_the_method_for_other_devices_reaches_the_same_bound(monkeypatch):
    _, _, inst = posed(Logistic(), 0)
    known = float(root_bound(inst).lower)
    monkeypatch.setattr(node_models, "_by_loops", node_models._by_splitting)
    assert float(root_bound(inst).lower) == pytest.approx(known, rel=1e-4)


@pytest.mark.parametrize("gamma", [0.3, 30.0])
def test_fits_are_exact_whatever_would_be_enough(gamma):
    _, _, inst = posed(Poisson(), 2, gamma=gamma)
    supports = torch.zeros(4, 8, dtype=torch.bool)
    for row in range(4):
        supports[row, row : row + 3] = True
    exact, _ = NewtonRelaxation(inst).optima(supports, None, float("inf"))
    assert float(exact.min()) < 0
    for enough in (1e6, float(exact.max()) + 1e-3, -1e-3):
        values, errors = NewtonRelaxation(inst).optima(supports, None, enough)
        needed = exact < enough
        torch.testing.assert_close(values[needed], exact[needed], rtol=1e-9, atol=0)
        assert (errors[needed] <= 1e-6 * exact[needed].abs()).all()
        assert (values - errors >= enough)[~needed].all()


def test_the_bound_is_that_of_the_slopes():
    _, _, inst = posed(Logistic(), 0)
    relaxation = NewtonRelaxation(inst)
    points, _ = relaxation.minimise(relaxation.maker, inst.domain, relaxation.start(zero(inst))[0], float("inf"), 3)
    proved = dual_bound(inst, relaxation.slopes(points.eta), inst.domain)[0]
    short = relaxation.bound(inst.domain, relaxation.start(zero(inst)), float("inf"), 3)
    assert float(short.lower) == pytest.approx(float(proved), rel=1e-12)


def test_the_least_ridge_over_shares_is_that_of_many_random_shares():
    _, _, inst = posed(Logistic(), 1, intercept=False)
    samples, generator = node_points.Samples(inst), torch.Generator().manual_seed(0)
    for x in torch.randn(20, 8, generator=generator, dtype=torch.float64) ** 3:
        least = float(samples.perspective(inst.domain, x.unsqueeze(0)))
        shares = torch.rand(5000, 8, generator=generator, dtype=torch.float64) ** 2
        shares = (3 * shares / shares.sum(dim=1, keepdim=True)).clamp(max=1)
        values = 0.5 * (samples.ridge * x.square() / shares).sum(dim=1)
        assert least <= float(values.min())
        # Shares by size with one common factor, found by bisection, reach it.
        size, low, high = x.abs() * samples.root, 0.0, 1e6
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (low, middle) if float((middle * size).clamp(max=1).sum()) > 3 else (middle, high)
        best = 0.5 * (size.square() / (low * size).clamp(max=1)).sum()
        assert least == pytest.approx(float(best), rel=1e-9)


def test_joint_losses_have_steps_of_their_own():
    source = make_source(Softmax(), samples=30, features=5, nonzeros=2, seed=0)
    inst = pose(Problem(Softmax(), (2,)), source, GridSpec(device="cpu").build())
    assert not serves(inst)
    assert serves_jointly(inst)
    assert not serves_jointly(pose(Problem(Softmax(), (2,)), source, GridSpec(blocks=2, device="cpu").build()))


def test_data_far_from_zero_and_in_single_precision_are_served():
    source = make_source(Logistic(), samples=100, features=8, nonzeros=3, seed=3)
    problem = Problem(Logistic(), (3,), 1.0)
    known = root_bound(pose(problem, source, GridSpec(device="cpu").build()))
    moved = Source(Dense((source.matrix.values + 100).float()), source.target, source.weight)
    found = root_bound(pose(problem, moved, GridSpec(device="cpu").build()))
    assert float(found.lower) == pytest.approx(float(known.lower), rel=1e-3)


def test_steps_with_second_derivatives_of_some_rows_end_with_those_of_all(monkeypatch):
    monkeypatch.setitem(node_models.MOST_WORK, "cpu", 1.0)
    source = make_source(Logistic(), samples=3000, features=20, nonzeros=5, seed=3, correlation=0.9)
    inst = pose(Problem(Logistic(), (4,), 10.0), source, GridSpec(device="cpu").build())
    relaxation = NewtonRelaxation(inst)
    assert relaxation.maker.step > 1
    start = relaxation.start(torch.zeros(len(inst.ridge), 1, dtype=torch.float64))
    bounds = relaxation.bound(relaxation.root, start, float("inf"), FEW_STEPS)
    assert float(bounds.value - bounds.lower) <= 1e-4 * float(bounds.value)
