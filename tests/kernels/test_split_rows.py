"""The fused iteration of the alternating direction method against torch's operations, on all devices."""

import pytest
import torch

from psfit.kernels import kernel
from psfit.problem import Domain
from psfit.problem.items import OutputItems
from psfit.problem.perspective import shrink_by_sorting


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("n", "limit"), [(1, 1), (7, 3), (100, 10), (513, 600)])
def test_split_rows(n, limit, device):
    rows, generator = 50, torch.Generator().manual_seed(n)
    x, u, Q = (torch.randn(rows, n, generator=generator, dtype=torch.float64).to(device) for _ in range(3))
    ridge, rho, chosen = (torch.rand(*shape, generator=generator).to(device) for shape in ((n,), (rows, 1), (rows, n)))
    x, ridge, rho = x**3, ridge.double() + 0.5, 10 * rho.double() + 0.1
    # Coefficients of zero have no share.
    x[:, ::5], u[:, ::5] = 0, 0
    inside = (chosen < 0.3 / n) & (torch.arange(n, device=device) < limit)
    limits = torch.full((rows, 1), limit, device=device)
    domain = Domain.of(OutputItems(n, 1, 0), limits, torch.device(device)).decide(inside, chosen > 0.9)
    # Some nodes have no places left.
    left = domain.left.clone()
    left[::7] = 0
    w = x + u
    factor, _ = shrink_by_sorting(w.abs(), ridge, rho, domain.inside, domain.free, left)
    kind = domain.inside.to(torch.int8) - domain.outside.to(torch.int8)
    for start in (0.0, 5.0):
        z, v, theta = torch.empty_like(x), u.clone(), torch.full_like(x[:, 0], start)
        right = kernel("split_rows", torch.device(device))(x, v, z, Q, ridge, rho, kind, left, theta)
        torch.testing.assert_close(z, factor * w, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(v, w - z, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(right, Q + rho * (z - v), rtol=1e-12, atol=1e-10)
        assert theta.isfinite().all()
