"""Polish: from the iteration's last point to an exact answer on the best support in reach."""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.bilinear import largest
from psfit.instance import Instance
from psfit.polish.landscape import landscape
from psfit.polish.refit import refit
from psfit.polish.swap import swap_search

__all__ = ["Polished", "polish"]


@dataclass(frozen=True)
class Polished:
    """Coefficients ``Z (n, c)`` in float64, optimal on their support up to `residual`; the problems' objectives."""

    Z: Tensor
    objectives: Tensor
    residual: float


def polish(inst: Instance, z: Tensor) -> Polished:
    """Take the kappa largest items of `z`, improve them by swaps, and refit in float64."""
    Z = z.double()
    supports = largest(inst.layout.pack(Z), inst.kappa)
    Z = torch.cat(
        [
            torch.where(inst.layout.mask(supports), Z[: inst.layout.features], 0.0),
            Z[inst.layout.features :],
        ]
    )
    # What a score can resolve: differences below the rounding of the data's own precision are not improvements.
    rel_tol = 100 * torch.finfo(inst.source.matrix.dtype).eps
    values, residual = [], 0.0
    for problem in range(inst.layout.problems):
        scene = landscape(inst, problem)
        chosen, found, _ = swap_search(scene, supports[problem], Z, rel_tol)
        exact = refit(inst, problem, chosen, found.Z)
        Z = exact.Z
        values.append(exact.value)
        residual = max(residual, exact.residual)
    return Polished(Z, torch.tensor(values, dtype=torch.float64), residual)
