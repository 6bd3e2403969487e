"""Losses of lines and parabolas on a support, in any unit and with any weights, against a conic solver."""

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from psfit import BiCADMM, Dense, GridSpec, Problem, Source, SparseLinearRegression, SparseSVC
from psfit.common.status import Status
from psfit.losses import Hinge, Huber
from psfit.problem.pose import pose
from psfit.search.refit import optimal_slopes, refit


def conic_optimum(loss, A, b, weight, ridge):
    """The least objective with an intercept, from the loss as a quadratic problem in coefficients and slacks.

    Hinge: ``w xi`` with ``xi >= 1 - b eta, 0``. Huber: ``w (s^2 + 2 delta t)`` with ``|eta - b - s| <= t``, in the unit
    of the targets, in which the solver does best.
    """
    unit = 1.0 if isinstance(loss, Hinge) else np.abs(b).max()
    m, n = A.shape
    full = np.hstack([A, np.ones((m, 1))])
    nothing, eye = np.zeros((m, n + 1)), np.eye(m)
    pays = np.append(np.full(n, ridge), 0.0)
    if isinstance(loss, Hinge):
        P, q = np.concatenate([pays, np.zeros(m)]), np.concatenate([np.zeros(n + 1), weight])
        G = np.vstack([np.hstack([-b[:, None] * full, -eye]), np.hstack([nothing, -eye])])
        h = np.concatenate([-np.ones(m), np.zeros(m)])
    else:
        P = np.concatenate([pays, 2 * weight, np.zeros(m)])
        q = np.concatenate([np.zeros(n + 1 + m), 2 * loss.delta / unit * weight])
        G = np.vstack([np.hstack([full, -eye, -eye]), np.hstack([-full, eye, -eye])])
        h = np.concatenate([b, -b]) / unit
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    solution = clarabel.DefaultSolver(
        sp.diags(P).tocsc(), q, sp.csc_matrix(G), h, [clarabel.NonnegativeConeT(len(h))], settings
    ).solve()
    return unit**2 * solution.obj_val


def draw(seed, loss, unit, spread):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 5))
    signal = X[:, 0] - X[:, 1] + 0.5 * rng.standard_t(2, size=40)
    y = np.where(signal > 0, 1.0, -1.0) if isinstance(loss, Hinge) else unit * (signal + 5)
    return X, y, spread ** rng.uniform(-1, 1, size=40)


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("gamma", [0.01, 1.0, 1e4])
@pytest.mark.parametrize(
    ("loss", "unit", "spread"),
    [(Huber(), 1.0, 1.0), (Huber(), 1e3, 1.0), (Huber(), 1e7, 30.0), (Hinge(), 1.0, 1.0), (Hinge(), 1.0, 1e4)],
    ids=str,
)
def test_kinks_are_minimised_in_any_unit_and_with_any_weights(loss, unit, spread, gamma, nodes):
    X, y, weight = draw(0, loss, unit, spread)
    source = Source(Dense(torch.tensor(X)), torch.tensor(y).unsqueeze(1), torch.tensor(weight).unsqueeze(1))
    inst = pose(Problem(loss, (2,), gamma), source, GridSpec(nodes=nodes).build(torch.device("cpu")))
    chosen = torch.tensor([True, True, False, False, False])
    fit = refit(inst, 0, chosen, torch.zeros(6, 1, dtype=torch.float64))
    expected = conic_optimum(loss, X[:, :2], y, weight, 1 / gamma)
    assert fit.value <= expected * (1 + 1e-9)
    assert fit.value == pytest.approx(expected, rel=1e-7)
    assert fit.residual < 1e-8
    coef, intercept = inst.coordinates.to_user(fit.Z)
    eta = torch.tensor(X) @ coef + intercept
    value = (source.weight * loss.value(eta, source.target)).sum() + 0.5 * coef.square().sum() / gamma
    assert fit.value == pytest.approx(float(value), rel=1e-10)
    slopes = optimal_slopes(inst, 0, chosen, fit)
    conjugate = (source.weight * loss.conjugate(slopes, inst.source.target)).sum()
    assert bool(conjugate.isfinite())


@pytest.mark.parametrize("seed", [27, 50, 51])
def test_exact_mode_proves_no_more_than_is_true_of_huber_in_large_units(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 3)).astype(np.float32)
    y = 1e5 * (X[:, 0] + rng.standard_t(2, size=20))
    model = SparseLinearRegression(1, gamma=1.0, loss="huber", solver=BiCADMM(exact=True)).fit(X, y)
    X = X.astype(float)
    best = min(conic_optimum(Huber(), X[:, [j]], y, np.ones(20), 1.0) for j in range(3))
    assert model.lower_bound_ <= best * (1 + 1e-9)
    assert model.objective_ == pytest.approx(best, rel=1e-4)
    assert model.result_.status is Status.PROVED


@pytest.mark.parametrize("seed", range(3))
def test_exact_mode_proves_no_more_than_is_true_of_weighted_hinges(seed):
    X, y, weight = draw(seed, Hinge(), 1.0, 1e3)
    model = SparseSVC(2, loss="hinge", gamma=1e3, solver=BiCADMM(exact=True)).fit(X, y, sample_weight=weight)
    pairs = [(i, j) for j in range(5) for i in range(j)]
    best = min(conic_optimum(Hinge(), X[:, pair], y, weight, 1e-3) for pair in pairs)
    assert model.lower_bound_ <= best * (1 + 1e-9)
    assert model.objective_ <= best * (1 + 1.1e-4)


def test_a_loss_with_kinks_needs_a_box_to_be_refitted():
    class Bent(Hinge):
        def box(self, b):
            return None

    X, y, weight = draw(0, Hinge(), 1.0, 1.0)
    source = Source(Dense(torch.tensor(X)), torch.tensor(y).unsqueeze(1), torch.tensor(weight).unsqueeze(1))
    inst = pose(Problem(Bent(), (2,), 1.0), source, GridSpec().build(torch.device("cpu")))
    with pytest.raises(TypeError, match="box"):
        refit(inst, 0, torch.tensor([True, True, False, False, False]), torch.zeros(6, 1, dtype=torch.float64))


def test_samples_without_weight_change_neither_the_fit_nor_its_multipliers():
    rng = np.random.default_rng(0)
    X = np.concatenate([[2.3, -3.3, -300.0, -140.0], 100 * rng.normal(size=18)])[:, None]
    y = np.concatenate([[-1.0, 1.0, 1.0, 1.0], rng.choice([-1.0, 1.0], 18)])[:, None]
    weight = np.repeat([1.0, 0.0], [4, 18])[:, None]
    found = []
    for rows in (slice(None), slice(4)):
        A, b, w = (torch.from_numpy(part[rows]) for part in (X, y, weight))
        source = Source(Dense(A), b, w)
        inst = pose(Problem(Hinge(), (1,), 1.0, fit_intercept=False), source, GridSpec(device="cpu").build())
        fit = refit(inst, 0, torch.ones(1, dtype=torch.bool), torch.zeros(1, 1, dtype=torch.float64))
        assert fit.residual <= 1e-9
        found.append(fit)
    assert found[0].value == pytest.approx(found[1].value, rel=1e-9)
    torch.testing.assert_close(found[0].slope[:4], found[1].slope, rtol=1e-4, atol=1e-6)
