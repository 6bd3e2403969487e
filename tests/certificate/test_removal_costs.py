"""Estimated costs of putting items outside against relaxations that are solved without them."""

import pytest
import torch
from problems import make_source

from psfit import Dense, GridSpec, Problem, Source
from psfit.certificate.newton_cases import STEPS
from psfit.certificate.newton_relaxation import NewtonRelaxation
from psfit.certificate.removal_costs import estimate_costs
from psfit.losses import Logistic, Squared, SquaredHinge
from psfit.problem.pose import pose


def relax(loss, source, kappa=3, gamma=1.0):
    inst = pose(Problem(loss, (kappa,), gamma), source, GridSpec(device="cpu").build())
    relaxation = NewtonRelaxation(inst, rough=0.05)
    start = relaxation.start(torch.zeros(len(inst.ridge), 1, dtype=torch.float64))
    return relaxation, relaxation.bound(relaxation.root, start, float("inf"), STEPS)


def rises(relaxation, bounds):
    """By how much the bound rises without each item."""
    outside = torch.eye(bounds.shares.shape[1], dtype=torch.bool)
    domain = relaxation.root.decide(torch.zeros_like(outside), outside)
    return relaxation.bound(domain, bounds.state, float("inf"), STEPS).lower - bounds.lower


@pytest.mark.parametrize("loss", [Logistic(), SquaredHinge(), Squared()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("seed", range(3))
def test_costs_are_about_the_rise_of_the_bound(loss, seed):
    source = make_source(loss, samples=300, features=12, nonzeros=4, seed=seed, correlation=0.6)
    relaxation, bounds = relax(loss, source)
    true, partial = rises(relaxation, bounds), (bounds.shares[0] > 0.01) & (bounds.shares[0] < 0.99)
    # The losses are no quadratic functions, and the structure may change.
    small = 0.02 * float(true.max())
    assert partial.any()
    assert (bounds.costs[0][partial] <= 3 * true[partial] + small).all()
    assert (bounds.costs[0][partial] >= true[partial] / 3 - small).all()


def test_an_item_that_another_one_can_replace_costs_nothing():
    source = make_source(Logistic(), samples=200, features=6, nonzeros=3, seed=1)
    A = source.matrix.values
    _, alone = relax(Logistic(), source)
    item = int(alone.costs.argmax())
    twice = Source(Dense(torch.cat([A, A[:, item : item + 1]], dim=1)), source.target, source.weight)
    _, bounds = relax(Logistic(), twice)
    assert float(alone.costs[0, item]) > 1.0
    assert float(bounds.costs[0, [item, 6]].max()) < 0.01 * float(alone.costs[0, item])


def test_second_derivatives_that_are_not_definite_still_give_costs():
    """The second derivatives of one node are singular; its costs come from scores alone."""
    source = make_source(Logistic(), samples=60, features=4, nonzeros=2, seed=0)
    inst = pose(Problem(Logistic(), (2,), 1.0), source, GridSpec(device="cpu").build())
    good = torch.eye(4, dtype=torch.float64) + 1.0
    H = torch.stack([good, torch.ones_like(good)])
    domain = inst.domain.select(torch.zeros(2, dtype=torch.int64))
    x, shares = torch.ones(2, 4, dtype=torch.float64), torch.full((2, 4), 0.5, dtype=torch.float64)
    scores = torch.tensor([[4.0, 3, 2, 1], [4, 3, 2, 1]]).double()
    ridge = torch.full((4,), 1e-30, dtype=torch.float64)
    costs = estimate_costs(H, torch.tensor([0, 1]), x, -x, ridge, shares, scores, domain)
    assert costs.isfinite().all()
    torch.testing.assert_close(costs[1], shares[1].square() * scores[1])
    assert not torch.allclose(costs[0], costs[1])
