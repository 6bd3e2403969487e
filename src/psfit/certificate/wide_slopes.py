"""The slopes at the optimum without any limit, where there are far more columns than samples.

With ridges ``r`` the predictors of that optimum lie in the range of ``K = A diag(1/r) A'``, and its ridge is that of
coefficients of ``K^(1/2)`` with ridges of one. So a problem with as many columns as samples has the same slopes.
"""

from dataclasses import replace

import torch
from torch import Tensor

from psfit.certificate.choose import make_newton
from psfit.certificate.newton_cases import STEPS, serves
from psfit.data import Dense, Source
from psfit.problem.constraints import NO_CONSTRAINTS
from psfit.problem.instance import Instance
from psfit.problem.items import OutputItems

# The most multiplications for the matrix K: with more, this takes longer than the rest of a certificate.
MOST_WORK = {"cpu": 2e9, "cuda": 2e12}


def find_wide_slopes(inst: Instance) -> Tensor | None:
    """The slopes ``(m, 1)`` of a problem of one output; None where this way does not serve or takes too long."""
    (m, n), p, kind = inst.source.matrix.shape, inst.items.features, inst.source.matrix.device.type
    if m > p or m * m * n > MOST_WORK[kind] or inst.grid.world.size > 1 or inst.source.matrix.streamed:
        return None
    every = inst.source.matrix.chunk(0, m, torch.float64)
    scaled = every[:, :p] / inst.ridge[:p, 0].sqrt()
    values, vectors = torch.linalg.eigh(scaled @ scaled.T)
    root = vectors * values.clamp(min=0).sqrt()
    small = replace(
        inst,
        problem=replace(inst.problem, kappa=(m,), gamma=1.0, constraints=NO_CONSTRAINTS),
        source=Source(Dense(torch.cat([root, every[:, p:]], dim=1)), inst.source.target, inst.source.weight),
        items=OutputItems(m, 1, inst.items.free),
        unit_ridge=torch.cat([torch.ones_like(inst.unit_ridge[:m]), inst.unit_ridge[p:]]),
        box=None,
        kept=None,
        all_features=0,
    )
    if not serves(small):
        return None
    relaxation = make_newton(small)
    inside = torch.ones_like(relaxation.root.inside)
    start = relaxation.start(inst.ridge.new_zeros(m + n - p, 1))
    (x,) = relaxation.bound(relaxation.root.decide(inside, ~inside), start, float("inf"), STEPS).state
    return relaxation.slopes(relaxation.samples.predict(x))
