"""Sums of losses, slopes and conjugates over the samples of a rank, for many points at once.

Torch reads and writes all predictors in every operation. On a GPU, kernels make these sums in one pass for the losses
that they know.
"""

from typing import Any

import torch
from torch import Tensor

from psfit.comm import Grid
from psfit.data.curvature import EPS
from psfit.kernels import kernel
from psfit.losses import Logistic, Loss, SquaredHinge, plain_targets

# The losses that the kernels know. A loss with offsets is none of them: its targets are of another kind.
KERNEL_NAMES: dict[type[Loss], str] = {Logistic: "logistic", SquaredHinge: "squared_hinge"}


def find_kernels(loss: Loss, target: Tensor, weight: Tensor | None) -> Any:
    """The kernels for losses with one target for each sample, in float64; None if there are none."""
    name, found = KERNEL_NAMES.get(type(loss)), kernel("loss_rows", target.device)
    if name is None or found is None or target.device.type != "cuda" or target.dtype != torch.float64:
        return None
    return found(name, target, weight)


def weigh(weight: Tensor | None, values: Tensor) -> Tensor:
    """Numbers of samples times their weights; all weights are one if there are none."""
    return values if weight is None else weight * values


def drop_equal(weight: Tensor) -> Tensor | None:
    """None if all weights are one: products with them would take as long as sums over the samples."""
    return None if bool((weight == 1).all()) else weight


def shrink_factors(halves: Tensor) -> Tensor:
    """Factors ``(2, c)`` of positive and negative slopes that make their sums ``halves (2, c)`` equal."""
    return (halves.flip(0) / halves.clamp(min=torch.finfo(halves.dtype).tiny)).clamp(max=1)


def sum_conjugates(
    loss: Loss, slopes: Tensor, target: Tensor, weight: Tensor | None, free: bool, grid: Grid
) -> tuple[Tensor, Tensor]:
    """Slopes ``(m, c)`` of a scalar loss in the domain of its conjugate, and sums ``(3, c)`` over the samples here.

    If an intercept is `free`, the slopes of one sign, the one with the larger sum, are scaled down so that all of them
    add up to zero; zero lies in the domain. The sums are those of the conjugates, of the sizes of their terms, and of
    the squared slopes.
    """
    kernels = find_kernels(loss, target, weight) if target.shape[1] == 1 else None
    if kernels is not None:
        rows = slopes.T.double()
        factors = rows.new_ones(len(rows), 2)
        if free:
            # In the order of the other way: a rank without kernels may take part in the sum.
            factors = shrink_factors(grid.nodes.total(kernels.add_halves(rows).T.contiguous())).T
        shrunk, sums = kernels.shrink(rows, factors)
        return shrunk.T, sums.T
    slopes = loss.nearest_slope(slopes.double(), target)
    if free:
        halves = [weigh(weight, part).sum(dim=0) for part in (slopes.clamp(min=0), -slopes.clamp(max=0))]
        up, down = shrink_factors(grid.nodes.total(torch.stack(halves)))
        slopes = torch.where(slopes > 0, up * slopes, down * slopes)
    conjugate = loss.conjugate(slopes, target)
    sizes = conjugate.abs() + loss.conjugate_sizes(slopes, target)
    parts = (conjugate, sizes, slopes.square())
    return slopes, torch.stack([weigh(weight, part).sum(dim=0) for part in parts])


def sum_joint_conjugates(
    loss: Loss, slopes: Tensor, target: Tensor, weight: Tensor | None, free: bool, grid: Grid
) -> tuple[Tensor, Tensor]:
    """The same for a joint loss, with the sum of the conjugates divided between the outputs.

    The slopes ``(m, B c)`` may be those of several points, one after the other.
    """
    m, c = target.shape
    copies = slopes.shape[1] // c
    # Losses know samples in rows: those of one point after the other's, each with its target.
    target = target.unsqueeze(1).expand(-1, copies, -1).flatten(0, 1)
    weight = None if weight is None else weight.repeat_interleave(copies, dim=0)
    slopes = loss.nearest_slope(slopes.double().reshape(m * copies, c), target)
    if free:
        slopes = _balance_probabilities(slopes, target, weight, copies, grid)
    conjugate = loss.conjugate(slopes, target)
    sizes = conjugate.abs() + loss.conjugate_sizes(slopes, target)
    shared = (conjugate / c).expand_as(slopes)
    parts = (_sum_samples(weigh(weight, part), copies) for part in (shared, sizes.expand_as(slopes), slopes.square()))
    return slopes.view(m, copies * c), torch.stack([part.flatten() for part in parts])


def _sum_samples(rows: Tensor, copies: int) -> Tensor:
    """Sums ``(B, c)`` over the samples of ``(m B, c)``."""
    return rows.unflatten(0, (-1, copies)).sum(dim=0)


def _balance_probabilities(slopes: Tensor, target: Tensor, weight: Tensor | None, copies: int, grid: Grid) -> Tensor:
    """Slopes of softmax that add up to zero in every output; they stay in the domain of the conjugate.

    The probabilities behind the slopes are mixed with a little of a distribution that restores the totals of labels.
    """
    labels = plain_targets(target)
    probability = slopes + labels
    have, want, total = _sum_classes(probability, labels, weight, copies, grid)
    if not bool((want > 0).all()):
        # A class that no sample has gets no probability: else all of it would have to be mixed away.
        present = _spread(want > 0, probability)
        probability = torch.where(present, probability.clamp(min=torch.finfo(torch.float64).tiny), 0.0)
        probability = probability / probability.sum(dim=1, keepdim=True)
        slopes = probability - labels
        have, want, total = _sum_classes(probability, labels, weight, copies, grid)
    # (1 - t) p + t q has the totals `want` if q = (want + (1/t - 1)(want - have)) / total; t must keep q positive.
    lacking = ((have - want) / want.clamp(min=torch.finfo(torch.float64).tiny)).clamp(min=0).amax(dim=1, keepdim=True)
    t = torch.where(lacking > 0, (lacking / (1 + lacking)).clamp(min=EPS), 0.0)
    if not bool((t > 0).any()):
        return slopes
    q = ((want + (1 / t - 1) * (want - have)) / total).clamp(min=0)
    q, share = _spread(q / q.sum(dim=1, keepdim=True), probability), _spread(t, probability)
    mixed = (1 - share) * probability + share * q
    return torch.where(share > 0, mixed / mixed.sum(dim=1, keepdim=True) - labels, slopes)


def _spread(numbers: Tensor, rows: Tensor) -> Tensor:
    """Numbers of the points ``(B, k)`` for all rows ``(m B, c)``."""
    return numbers.repeat(len(rows) // len(numbers), 1)


def _sum_classes(probability: Tensor, labels: Tensor, weight: Tensor | None, copies: int, grid: Grid) -> Tensor:
    """Weighted sums over all samples of probabilities, labels and ones, ``(3, B, c)``."""
    parts = (probability, labels, torch.ones_like(probability))
    return grid.nodes.total(torch.stack([_sum_samples(weigh(weight, part), copies) for part in parts]))
