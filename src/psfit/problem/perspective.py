"""The perspective: the strongest convex relaxation of "at most so many items, each with a ridge".

For items with ridges ``r`` it gives every item a share ``s_j`` in [0, 1] of the limit, and its value is

    1/2 min { sum_j r_j x_j^2 / s_j :  0 <= s <= 1,  sum_j s_j <= kappa }.

Its conjugate at ``g`` is the sum of the kappa largest scores ``g_j^2 / (2 r_j)``. In a batch some items of each row are
inside (their share is one), some are free, and ``left (B, 1)`` places are left for the free ones. Where items take more
than one place, they have ``weights (size,)``: the conjugate is then that of a fractional knapsack.
"""

import torch
from torch import Tensor

from psfit.kernels import kernel


def conjugate(scores: Tensor, inside: Tensor, free: Tensor, left: Tensor, weights: Tensor | None = None) -> Tensor:
    """``(B,)``: scores of the items inside, and the largest of the free ones in the places left.

    Where items have weights, the best item that does not fit any more counts with a share.
    """
    if weights is not None:
        ranked, sizes, _ = _rank_by_weight(scores, free, left, weights)
        share = ((left - (sizes.cumsum(dim=1) - sizes)) / sizes).clamp(0, 1)
        return torch.where(inside, scores, 0.0).sum(dim=1) + (share * ranked).sum(dim=1)
    most = min(int(left.max()), scores.shape[1])
    ranked = torch.where(free, scores, 0.0).topk(max(most, 0), dim=1).values
    counted = torch.arange(ranked.shape[1], device=scores.device) < left
    return torch.where(inside, scores, 0.0).sum(dim=1) + torch.where(counted, ranked, 0.0).sum(dim=1)


def _rank_by_weight(scores: Tensor, free: Tensor, left: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, weights, and scores for each unit of weight ``(B, size)``, the largest of these first.

    Items that do not fit have a score of zero.
    """
    fitting = torch.where(free & (weights <= left), scores, 0.0)
    ratio, order = (fitting / weights).sort(dim=1, descending=True)
    return fitting.gather(1, order), weights.expand_as(scores).gather(1, order), ratio


def _margins_by_weight(scores: Tensor, free: Tensor, left: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """With the price of a unit of the limit, at which the conjugate is a sum over items, each counts by itself."""
    _, sizes, ratio = _rank_by_weight(scores, free, left, weights)
    whole = (sizes.cumsum(dim=1) <= left).sum(dim=1, keepdim=True)
    price = torch.cat([ratio, torch.zeros_like(ratio[:, :1])], dim=1).gather(1, whole)
    fits = weights <= left
    out = torch.where(free & fits, (scores - price * weights).clamp(min=0), 0.0)
    into = torch.where(fits, (price * weights - scores).clamp(min=0), torch.inf)
    return out, torch.where(free, into, 0.0)


def margins(scores: Tensor, free: Tensor, left: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """By how much a bound rises if a free item is put outside, or inside: ``(B, size)`` each, else zero."""
    if weights is not None:
        return _margins_by_weight(scores, free, left, weights)
    size = scores.shape[1]
    ranked = torch.where(free, scores, 0.0).sort(dim=1, descending=True).values
    ranked = torch.cat([torch.full_like(ranked[:, :1], torch.inf), ranked, torch.zeros_like(ranked[:, :1])], dim=1)
    last = ranked.gather(1, left.clamp(0, size))
    following = ranked.gather(1, (left + 1).clamp(0, size + 1))
    out = torch.where(free, (scores - following).clamp(min=0), 0.0)
    into = torch.where(free, (last - scores).clamp(min=0), 0.0)
    return out, into


def shrink(
    size: Tensor,
    ridge: Tensor,
    rho: Tensor | float,
    inside: Tensor,
    undecided: Tensor,
    left: Tensor,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The proximal step of the perspective at penalty `rho`.

    Returns factors ``(B, size)`` for items of magnitude ``size (B, size)``, and shares. For given shares an item is
    multiplied by ``rho s / (rho s + r)``. The best shares are ``a_j theta - r_j / rho`` clipped to [0, 1] with
    ``a_j = size_j sqrt(r_j / weight_j)``, and the one number ``theta`` makes them add up to the places left. Their sum
    grows piecewise linearly in theta: sorted kinks and cumulative sums find the piece. On a CPU compiled loops do.
    """
    loops = kernel("share_rows", size.device) if size.device.type == "cpu" and weights is None else None
    if loops is not None:
        found: tuple[Tensor, Tensor] = loops(size, ridge, rho, inside, undecided, left)
        return found
    return shrink_by_sorting(size, ridge, rho, inside, undecided, left, weights)


def shrink_by_sorting(
    size: Tensor,
    ridge: Tensor,
    rho: Tensor | float,
    inside: Tensor,
    undecided: Tensor,
    left: Tensor,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The same as `shrink`, by torch's operations."""
    free = undecided & (size > 0)
    places = torch.ones_like(size) if weights is None else weights.to(size).expand_as(size)
    slope = torch.where(free, size * (ridge / places).sqrt(), 0.0).double()
    offset = (ridge / rho).double().expand_as(slope)
    # The share of an item is zero up to the first of its kinks and one from the second on.
    kinks, order = torch.cat([offset / slope, (1 + offset) / slope], dim=1).sort(dim=1)
    both = places.repeat(1, 2)
    steep = (torch.cat([slope, -slope], dim=1) * both).gather(1, order).cumsum(dim=1)
    level = (torch.cat([-offset, 1 + offset], dim=1) * both).gather(1, order).cumsum(dim=1)
    before = (steep * kinks + level < left) & kinks.isfinite()
    piece = before.sum(dim=1, keepdim=True).clamp(1, kinks.shape[1] - 1)
    steep, level = steep.gather(1, piece - 1), level.gather(1, piece - 1)
    low, high = kinks.gather(1, piece - 1), kinks.gather(1, piece)
    theta = torch.where(steep > 0, (left - level) / steep, low).clamp(low, high)
    share = (slope * theta.nan_to_num() - offset).clamp(0, 1)
    roomy = (free * places).sum(dim=1, keepdim=True) <= left
    share = torch.where(roomy, free.to(share), share) * (left > 0)
    share = torch.where(inside, 1.0, share)
    return rho * share / (rho * share + ridge), share
