"""The compiled step of groups against the proximal step by sorting, and bounds with it against those without."""

import numpy as np
import pytest
import torch
from problems import make_source

from psfit import GridSpec, Problem
from psfit.certificate import data_relaxation
from psfit.certificate.data_relaxation import DataRelaxation
from psfit.kernels.cpu.shrink_groups import shrink_groups
from psfit.losses import Hinge
from psfit.problem import Constraints, Domain
from psfit.problem.groups import GroupItems
from psfit.problem.perspective import shrink_by_sorting
from psfit.problem.pose import pose

GROUP = torch.tensor([3, 0, 1, 1, 4, 0, 2, 2, 2, 5, 4, 6])


@pytest.mark.parametrize("left", [0, 1, 3, 5])
@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_step_is_that_of_the_perspective(left, decided, seed):
    rng = np.random.default_rng(seed)
    z, g = (torch.from_numpy(rng.normal(size=(13, 1))) for _ in range(2))
    z[6:9] = g[6:9] = 0.0
    ridge, tau = torch.from_numpy(rng.uniform(0.1, 3.0, 7)), float(rng.uniform(0.01, 2.0))
    domain = Domain.of(GroupItems(12, 1, 1, GROUP), left + decided, torch.device("cpu"))
    if decided:
        inside = torch.tensor([[False, True, False, False, False, False, False]])
        domain = domain.decide(inside, inside.roll(3))
    v = z - tau * g
    size = torch.stack([v[:12][item == GROUP].square().sum().sqrt() for item in range(7)]).unsqueeze(0)
    places = torch.full((1, 1), left)
    factor, expected = shrink_by_sorting(size, ridge, 1 / tau, domain.inside, domain.free, places)
    best = torch.cat([factor[0, GROUP], torch.ones(1, dtype=torch.float64)]).unsqueeze(1) * v
    moved, ahead, shares = shrink_groups(z, g, tau, ridge, GROUP, domain.inside, domain.free, left)
    torch.testing.assert_close(shares, expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(moved, best, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(ahead, 2 * best - z, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("features", [12, 40])
def test_a_relaxation_with_the_kernel_ends_where_one_without_does(features, monkeypatch):
    source = make_source(Hinge(), samples=30, features=features, nonzeros=4, seed=1, correlation=0.5)
    problem = Problem(Hinge(), (2,), 10.0, constraints=Constraints(group=np.arange(features) * 5 % 6))
    inst, bounds = pose(problem, source, GridSpec(device="cpu").build()), []
    for blocked in (False, True):
        if blocked:
            monkeypatch.setattr(data_relaxation, "kernel", lambda name, device: None)
        relaxation = DataRelaxation(inst)
        start = relaxation.start(inst.ridge.new_zeros(len(inst.ridge), 1))
        bounds.append(relaxation.bound(inst.domain, start, float("inf"), 40))
    torch.testing.assert_close(bounds[0].lower, bounds[1].lower, rtol=1e-7, atol=0)
    torch.testing.assert_close(bounds[0].shares, bounds[1].shares, rtol=1e-5, atol=1e-7)
