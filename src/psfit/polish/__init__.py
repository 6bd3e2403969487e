"""Polish: from the iteration's last point to an exact answer on the best support in reach."""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.bilinear import largest
from psfit.instance import Instance
from psfit.polish.explore import EFFORTS, explore
from psfit.polish.landscape import landscape
from psfit.polish.refit import refit

__all__ = ["EFFORTS", "Polished", "polish"]


@dataclass(frozen=True)
class Polished:
    """Coefficients ``Z (n, c)`` in float64, optimal on their support up to `residual`; the problems' objectives."""

    Z: Tensor
    objectives: Tensor
    residual: float

    @property
    def objective(self) -> float:
        """All problems together."""
        return float(self.objectives.sum())


def polish(
    inst: Instance,
    z: Tensor,
    copies: int = 1,
    effort: str = "medium",
    passes: int = 0,
    known: Tensor | None = None,
) -> Polished:
    """Take the kappa largest items of each copy of `z`, improve them by swaps, and refit the best in float64.

    Parameters
    ----------
    inst : Instance
    z : Tensor (n, c)
        Where the iteration ended.
    copies : int
        How often each problem occurs among the columns of `z` (see `Instance.batched`).
    effort : {"low", "medium", "high"}
        Only a refit; swaps from all copies and a few restarts; many restarts.
    passes : int
        Passes over the data that have led to `z`: the search may cost as much.
    known : Tensor (n, c / copies), optional
        Coefficients whose supports are further starts.
    """
    Z = z.double()
    supports = largest(inst.layout.pack(Z), inst.kappa)
    Z = torch.cat([torch.where(inst.layout.mask(supports), Z[: inst.layout.features], 0.0), Z[inst.layout.features :]])
    # What a score can resolve: differences below the rounding of the data's own precision are not improvements.
    rel_tol = 100 * torch.finfo(inst.source.matrix.dtype).eps
    problems = inst.layout.problems // copies
    starts = [list(supports[problem::problems]) for problem in range(problems)]
    if known is not None:
        for start, support in zip(starts, largest(inst.layout.pack(known.repeat(1, copies)), inst.kappa), strict=False):
            start.append(support)
    values, residual = [], 0.0
    for problem in range(problems):
        scene = landscape(inst, problem)
        chosen, found = explore(scene, starts[problem], Z, rel_tol, EFFORTS[effort], passes)
        exact = refit(inst, problem, chosen, found.Z)
        Z = exact.Z
        values.append(exact.value)
        residual = max(residual, exact.residual)
    outputs = inst.layout.outputs // copies
    return Polished(Z[:, :outputs], torch.tensor(values, dtype=torch.float64), residual)
