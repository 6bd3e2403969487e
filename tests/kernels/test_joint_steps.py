"""The compiled iterations for models of joint losses against the same by torch's operations."""

import pytest
import torch

from psfit.kernels.cpu.joint_steps import joint_steps
from psfit.problem import Domain
from psfit.problem.items import EntryItems, RowItems
from psfit.problem.perspective import shrink_by_sorting

OVERSHOOT = 1.6


def iterate(inverse, pull, penalty, start, u, ridge, domain, steps):
    """One row after some steps; coefficients are ``(n, c)``."""
    items, p, z = domain.items, domain.items.features, start
    for _ in range(steps):
        anchor = torch.cat([(z - u)[:p], start[p:]])
        x = (inverse @ (pull + penalty * anchor).flatten()).view_as(z)
        w = OVERSHOOT * x + (1 - OVERSHOOT) * z + u
        packed = items.pack(w)
        factor, _ = shrink_by_sorting(packed.abs(), ridge, penalty[0], domain.inside, domain.free, domain.left)
        new = items.replace(w, factor * packed)
        change = (new - z).abs().max() / new.abs().max()
        z, u = new, w - new
    return torch.cat([z[:p], x[p:]]), float(change)


@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize("limit", [1, 4, 50])
@pytest.mark.parametrize("kind", [EntryItems, RowItems])
def test_joint_steps(kind, limit, free, steps):
    """Three rows of two models; they differ in their points and in the items that are decided."""
    p, c, rows, which, generator = 9, 3, 3, torch.tensor([1, 0, 1]), torch.Generator().manual_seed(limit)
    n, items = p + free, kind(p, c, free)
    pull, start, u = (torch.randn(rows, n, c, generator=generator, dtype=torch.float64) for _ in range(3))
    u[:, p:] = 0
    penalty = torch.tensor([3.0, 5.0], dtype=torch.float64).view(2, 1, 1).expand(2, n, c).clone()
    penalty[:, p:] = 1e-6
    A = torch.randn(2, 2 * n * c, n * c, generator=generator, dtype=torch.float64)
    inverse = torch.linalg.inv(A.mT @ A + torch.diag_embed(penalty.flatten(1)))
    ridge = torch.rand(items.size, generator=generator, dtype=torch.float64) + 0.1
    inside, outside = torch.zeros(2, rows, items.size, dtype=torch.bool)
    inside[0, 2], outside[0, 5:7], outside[1, 0] = True, True, True
    domain = Domain.of(items, torch.tensor([[limit]] * rows), torch.device("cpu")).decide(inside, outside)
    expected, changes = [], []
    for b, k in enumerate(which.tolist()):
        points = pull[b], penalty[k, :, :1], start[b], u[b]
        found, change = iterate(inverse[k], *points, ridge, domain.select(torch.tensor([b])), steps)
        expected.append(found.flatten())
        changes.append(change)
    given = (inside.to(torch.int8) - outside.to(torch.int8), domain.left.flatten(), items.width, OVERSHOOT)
    flat = [part.flatten(1) for part in (pull, penalty, start, u)]
    before = [part.clone() for part in flat]
    found = joint_steps(inverse, which, *flat, ridge, *given, steps, 0.0)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-7, atol=1e-9)
    assert all(torch.equal(part, known) for part, known in zip(flat, before, strict=True))
    # Rows whose last step changed no more than that are done at once if more steps are allowed.
    again = joint_steps(inverse, which, *flat, ridge, *given, steps + 50, 1.001 * max(changes))
    if steps == 1:
        torch.testing.assert_close(again, found)
