"""Samples that are equal in all columns and in the target count as one with the sum of their weights.

Tables of yes and no have many of them, and more when a tree has left columns out. The objective stays the same, and
every step over the samples costs less.
"""

from dataclasses import replace

import torch
from torch import Tensor

from psfit.certificate.node_points import MOST_NUMBERS
from psfit.certificate.relaxation import Fit
from psfit.data import Dense, Source
from psfit.problem.instance import Instance

# Sums of weights cost products with them, so that fewer samples than this share must be left.
WORTHWHILE = 0.85


def merge_equal_rows(inst: Instance, fit: Fit | None = None) -> tuple[Instance, Fit | None]:
    """The same problem with fewer samples, where one rank has all of them in memory and many are equal.

    `fit` minimises on a support. The one that is returned has slopes of the merged samples: equal samples may have
    different slopes at a kink, and their mean is as good, because conjugates are convex.
    """
    matrix, source = inst.source.matrix, inst.source
    (m, n), kind = matrix.shape, matrix.device.type
    if inst.grid.world.size > 1 or matrix.streamed or m * n > MOST_NUMBERS[kind]:
        return inst, fit
    values = matrix.chunk(0, m, torch.float64)
    target = torch.view_as_real(source.target.to(torch.complex128)).flatten(1)
    found = _find_equal(torch.cat([values, target], dim=1))
    if found is None or len(found[0]) > WORTHWHILE * m:
        return inst, fit
    first, group = found
    weight = source.weight.new_zeros(len(first), 1).index_add(0, group, source.weight)

    def fit_merged(support: Tensor) -> tuple[float, Tensor]:
        assert fit is not None
        value, slopes = fit(support)
        sums = slopes.new_zeros(len(first), slopes.shape[1]).index_add(0, group, source.weight * slopes)
        return value, torch.where(weight > 0, sums / weight, slopes[first])

    merged = Source(Dense(values[first]), source.target[first], weight)
    # The number of samples stays: rounding errors are counted by it.
    sizes = replace(inst.sizes, node_rows=len(first), most_rows=len(first))
    return replace(inst, source=merged, sizes=sizes), None if fit is None else fit_merged


def _find_equal(rows: Tensor) -> tuple[Tensor, Tensor] | None:
    """The number of one row of each group of equal rows, and the group of each row; None if hashes collide."""
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(1 << 62, (rows.shape[1],), generator=generator).to(rows.device)
    hashes = (rows.contiguous().view(torch.int64) * (2 * factors + 1)).sum(dim=1)
    group = torch.unique(hashes, return_inverse=True)[1]
    numbers = torch.arange(len(rows), device=rows.device)
    first = torch.full_like(numbers[: int(group.max()) + 1], len(rows)).scatter_reduce(0, group, numbers, "amin")
    return (first, group) if torch.equal(rows[first[group]], rows) else None
