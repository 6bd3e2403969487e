"""The alternating direction method for tree nodes of a quadratic form, with one kernel beside each matrix product."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from psfit.certificate.form_bound import FormBound
from psfit.kernels import kernel
from psfit.kernels.cuda_graph import Tensors
from psfit.problem import Domain


def find_kernel(bound: FormBound, domain: Domain) -> Any:
    """The kernel that serves single coefficients without bounds; None for all others."""
    single = not bound.items.in_groups and len(bound.Q) == 1
    served = single and domain.weights is None and domain.box is None
    return kernel("split_rows", bound.Q.device) if served else None


def make_split_steps(
    step: Any, bound: FormBound, domain: Domain, inverse: Tensor, rho: float, times: int
) -> Callable[[Tensors], Tensors]:
    """A function that makes so many iterations from z and u ``(B, 1, n)``; see `QuadraticRelaxation`.

    It also returns the last x with its gradient g, and the shares ``(B, n)``.
    """
    rows, ridge = len(domain.left), bound.ridge
    Q = bound.Q.expand(rows, -1).contiguous()
    kind = domain.inside.to(torch.int8) - domain.outside.to(torch.int8)
    penalty, theta = Q.new_full((rows, 1), rho), Q.new_zeros(rows)

    def advance(tensors: Tensors) -> Tensors:
        z, u = (tensors[name].squeeze(1).clone(memory_format=torch.contiguous_format) for name in ("z", "u"))
        right = Q + rho * (z - u)
        x = before = right
        for _ in range(times):
            x, before = right @ inverse, right
            right = step(x, u, z, Q, ridge, penalty, kind, domain.left, theta)
        # The step has made z = rho s / (rho s + ridge) (z + u) of the shares s.
        shares = torch.where(z != 0, (ridge * z / (rho * u)).clamp(max=1), 0.0)
        shares = torch.where(domain.inside, 1.0, shares)
        found = {"z": z, "u": u, "x": x, "g": before - Q - rho * x}
        return {name: part.unsqueeze(1) for name, part in found.items()} | {"shares": shares}

    return advance
