"""Hessians that are used again near the minimum, against SciPy's minimiser and against Hessians that are made anew."""

import numpy as np
import pytest
import torch
from problems import make_source
from scipy.optimize import minimize

from psfit import GridSpec, Problem
from psfit.losses import Logistic, Poisson
from psfit.problem.pose import pose
from psfit.search import restriction
from psfit.search.refit import refit


@pytest.mark.parametrize("loss", [Logistic(), Poisson()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("kept", [True, False])
def test_the_minimum_does_not_depend_on_what_is_kept(monkeypatch, loss, kept):
    monkeypatch.setitem(restriction.MOST_KEPT, "cpu", 1 << 24 if kept else 0)
    source = make_source(loss, samples=60, features=6, nonzeros=3, seed=1)
    inst = pose(Problem(loss, (3,), 2.0), source, GridSpec(nodes=2, device="cpu").build())
    chosen = torch.tensor([True, False, True, False, False, True])
    fit = refit(inst, 0, chosen, torch.zeros(len(inst.ridge), 1, dtype=torch.float64))
    A, b = source.matrix.values.numpy()[:, chosen.numpy()], source.target.numpy()[:, 0]

    def objective(x):
        eta = A @ x[:3] + x[3]
        losses = np.logaddexp(0, -b * eta) if loss.name == "logistic" else np.exp(eta) - b * eta
        return losses.sum() + x[:3] @ x[:3] / 4

    # Poisson losses may differ by a constant of the targets.
    expected = minimize(objective, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).x
    coef, intercept = inst.coordinates.to_user(fit.Z)
    np.testing.assert_allclose(coef[chosen, 0].numpy(), expected[:3], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(float(intercept), expected[3], rtol=1e-5, atol=1e-7)


def test_a_hessian_is_made_again_only_if_the_curvature_has_changed():
    source = make_source(Logistic(), samples=60, features=4, nonzeros=2, seed=2)
    inst = pose(Problem(Logistic(), (4,)), source, GridSpec(device="cpu").build())
    mask = torch.ones(4, 1, dtype=torch.bool)
    view = restriction.Restriction(inst, [0], mask, inst.problem.loss, inst.source.target)
    x = torch.full((1, 5), 0.3, dtype=torch.float64)
    first, near, far = (view.evaluate(x + move)[2] for move in (0.0, 1e-4, 1.0))
    assert torch.equal(first, near)
    assert not torch.equal(first, far)
    anew = restriction.Restriction(inst, [0], mask, inst.problem.loss, inst.source.target).evaluate(x + 1.0)[2]
    torch.testing.assert_close(far, anew)
