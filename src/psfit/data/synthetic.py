"""Generated problems like those of the paper, for examples, tests and benchmarks."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from psfit.comm import even_bounds

# Standard deviation of the margins from which labels are drawn.
MARGIN = 2.0


@dataclass(frozen=True)
class Synthetic:
    """Data ``A (m, n)``, ``b (m, 1)`` and their true coefficients ``x (n, 1)``, of which kappa are not zero."""

    A: Tensor
    b: Tensor
    x: Tensor
    kappa: int


def paper_recipe(
    m: int,
    n: int,
    sparsity_level: float,
    nodes: int,
    *,
    noise: float = 0.01,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Synthetic:
    """The paper's regression data: normal entries, columns of unit norm in every node, sparse true coefficients, noise.

    ``kappa = round(n (1 - sparsity_level))`` coefficients at random places are standard normal.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    kappa = round(n * (1 - sparsity_level))
    A = torch.randn(m, n, generator=generator, dtype=dtype, device=device)
    bounds = even_bounds(m, nodes)
    for start, stop in pairwise(bounds):
        A[start:stop] /= A[start:stop].norm(dim=0)
    x = torch.zeros(n, 1, dtype=dtype, device=device)
    place = torch.randperm(n, generator=generator, device=device)[:kappa]
    x[place] = torch.randn(kappa, 1, generator=generator, dtype=dtype, device=device)
    b = A @ x + noise * torch.randn(m, 1, generator=generator, dtype=dtype, device=device)
    return Synthetic(A, b, x, kappa)


def draw_signs(made: Synthetic, *, seed: int = 1) -> Tensor:
    """Draw labels -1 and +1, shape ``(m, 1)``, from a logistic model with the same data and true coefficients."""
    generator = torch.Generator(device=made.A.device).manual_seed(seed)
    eta = made.A @ made.x
    chance = torch.sigmoid(MARGIN * eta / eta.std())
    drawn = torch.rand(eta.shape, generator=generator, device=eta.device)
    return torch.where(drawn < chance, 1.0, -1.0)
