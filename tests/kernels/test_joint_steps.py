"""The compiled iterations for models of joint losses against the same by torch's operations."""

import pytest
import torch

from psfit.kernels.cpu.joint_steps import joint_steps
from psfit.problem import Domain
from psfit.problem.items import EntryItems, RowItems
from psfit.problem.perspective import shrink_by_sorting

OVERSHOOT = 1.6


def iterate(inverse, pull, penalty, start, z, u, ridge, domain, steps):
    items, p = domain.items, domain.items.features
    for _ in range(steps):
        anchor = torch.cat([(z - u)[:p], start[p:]])
        x = (inverse @ (pull + penalty * anchor).flatten()).view_as(z)
        w = OVERSHOOT * x + (1 - OVERSHOOT) * z + u
        packed = items.pack(w)
        factor, _ = shrink_by_sorting(packed.abs(), ridge, penalty[0], domain.inside, domain.free, domain.left)
        new = items.replace(w, factor * packed)
        change = (new - z).abs().max() / new.abs().max()
        z, u = new, w - new
    return z, u, x, change


@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize("limit", [1, 4, 50])
@pytest.mark.parametrize("kind", [EntryItems, RowItems])
def test_joint_steps(kind, limit, free, steps):
    p, c, generator = 9, 3, torch.Generator().manual_seed(limit)
    n, items = p + free, kind(p, c, free)
    pull, start, z, u = (torch.randn(n, c, generator=generator, dtype=torch.float64) for _ in range(4))
    u[p:] = 0
    A = torch.randn(2 * n * c, n * c, generator=generator, dtype=torch.float64)
    penalty = torch.full((n, 1), 3.0, dtype=torch.float64)
    penalty[p:] = 1e-6
    inverse = torch.linalg.inv(A.T @ A + torch.diag(penalty.flatten().repeat_interleave(c)))
    ridge = torch.rand(items.size, generator=generator, dtype=torch.float64) + 0.1
    inside, outside = torch.zeros(2, 1, items.size, dtype=torch.bool)
    inside[0, 2], outside[0, 5:7] = True, True
    domain = Domain.of(items, torch.tensor([[limit]]), torch.device("cpu")).decide(inside, outside)
    expected = iterate(inverse, pull, penalty, start, z, u, ridge, domain, steps)
    given = (inside.to(torch.int8) - outside.to(torch.int8)).flatten()
    before = z.clone(), u.clone()
    found = joint_steps(
        inverse, pull, penalty, start, z, u, ridge, given, int(domain.left), items.width, OVERSHOOT, steps
    )
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-9)
    assert torch.equal(z, before[0])
    assert torch.equal(u, before[1])
