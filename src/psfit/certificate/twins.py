"""Columns that are equal, or opposite, up to rounding: in a support one of them can stand for the other.

A tree that has put one of them outside need not try the others: a support that has another one in its place is as good,
and belongs to the branch where the first one is inside. One-hot columns of two levels are such twins.

Let the columns differ by at most ``e`` in every sample. If the coefficient ``x`` moves from one to the other, the
predictors change by at most ``e |x|``. Let U be how far the objective is above the least value of the losses, L the
largest curvature of the loss and W the sum of the weights. The slopes ``l`` of the samples have ``sum w l^2 <= 2 L U``,
and ``r x^2 / 2 <= U`` for the ridge r. So the objective rises by at most ``e |x| sqrt(2 L U W) + L W (e x)^2 / 2``.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.certificate.dual import trivial_bound
from psfit.certificate.node_points import Samples

# Columns are compared if their cosine is so close to one, and are twins if no entry differs by more than this.
NEAR, SAME = 1e-9, 1e-10
# Ridges of twins may differ by this share.
SAME_RIDGE = 1e-12


@dataclass(frozen=True)
class Twins:
    """``label (p,)``: the number of the first twin of each column, its own if it has none. `rise`: by how much the
    objective of a support may rise if all its columns are replaced by twins.
    """

    label: Tensor
    rise: float


def find_twins(samples: Samples, objective: float) -> Twins | None:
    """The twins among the features, for supports with at most this objective; None if there are none.

    They are looked for where one rank has all samples as a dense matrix, and for losses of bounded curvature.
    """
    inst, p = samples.inst, samples.p
    curvature = inst.problem.loss.most_curvature
    if samples.dense is None or inst.grid.world.size > 1 or curvature is None:
        return None
    A = samples.dense.values[:, :p]
    norm = A.norm(dim=0).clamp(min=torch.finfo(A.dtype).tiny)
    cosine = (A.T @ A) / (norm.unsqueeze(1) * norm)
    close = cosine.abs() >= 1 - NEAR
    first = close.to(torch.int8).argmax(dim=1)
    every = torch.arange(p, device=A.device)
    first = torch.where(close.any(dim=1), first, every)
    sign = cosine.gather(1, first.unsqueeze(1)).squeeze(1).sign()
    differ = (A - sign * A[:, first]).abs().amax(dim=0)
    same = (differ <= SAME) & ((samples.ridge / samples.ridge[first] - 1).abs() <= SAME_RIDGE)
    label = torch.where(same & (first < every), first, every)
    if bool((label == every).all()):
        return None
    # A little more, because the objective may rise with every column that is replaced.
    above = 1.01 * max(objective - trivial_bound(inst), 0.0)
    most = (2 * above / float(samples.ridge.min())) ** 0.5
    total, moved = float(inst.source.weight.sum()), float(differ[label != every].max()) * most
    single = moved * (2 * curvature * above * total) ** 0.5 + curvature * total * moved**2 / 2 + SAME_RIDGE * above
    return Twins(label, inst.problem.kappa[0] * single)
