"""The perspective of a limited ridge: the strongest convex stand-in for "at most kappa items, each paying a ridge".

For items with ridges ``r`` the relaxation gives every item a share ``s_j`` in [0, 1] of the limit and charges

    1/2 min { sum_j r_j x_j^2 / s_j :  0 <= s <= 1,  sum_j s_j <= kappa }.

Its conjugate at ``g`` is the sum of the kappa largest scores ``g_j^2 / (2 r_j)``, hence the bound that one gradient
proves. Items may be fixed: inside (share one) or outside (share zero). Everything is batched over rows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Fixed:
    """Items ``(B, size)`` decided to be inside or outside the support, and the places ``(B, 1)`` left for others."""

    inside: Tensor
    outside: Tensor
    left: Tensor

    @classmethod
    def of(cls, inside: Tensor, outside: Tensor, kappa: Tensor | int) -> "Fixed":
        return cls(inside, outside, kappa - inside.sum(dim=1, keepdim=True))

    @classmethod
    def nothing(cls, size: int, kappa: int, device: torch.device) -> "Fixed":
        """A batch of one in which no item is decided yet."""
        undecided = torch.zeros(1, size, dtype=torch.bool, device=device)
        return cls.of(undecided, undecided, kappa)

    @property
    def free(self) -> Tensor:
        """Items still to be decided."""
        return ~(self.inside | self.outside)

    def rows(self, index: Tensor) -> "Fixed":
        """Some rows of the batch."""
        return Fixed(self.inside[index], self.outside[index], self.left[index])


def charge(scores: Tensor, fixed: Fixed) -> Tensor:
    """The conjugate ``(B,)``: scores of the items inside, and the largest of the free ones in the places left."""
    most = min(int(fixed.left.max()), scores.shape[1])
    ranked = torch.where(fixed.free, scores, 0.0).topk(max(most, 0), dim=1).values
    counted = torch.arange(ranked.shape[1], device=scores.device) < fixed.left
    return torch.where(fixed.inside, scores, 0.0).sum(dim=1) + torch.where(counted, ranked, 0.0).sum(dim=1)


def margins(scores: Tensor, fixed: Fixed) -> tuple[Tensor, Tensor]:
    """By how much the bound rises if a free item is put outside, or inside: two arrays ``(B, size)``, else zero."""
    size = scores.shape[1]
    ranked = torch.where(fixed.free, scores, 0.0).sort(dim=1, descending=True).values
    ranked = torch.cat([torch.full_like(ranked[:, :1], torch.inf), ranked, torch.zeros_like(ranked[:, :1])], dim=1)
    last = ranked.gather(1, fixed.left.clamp(0, size))
    following = ranked.gather(1, (fixed.left + 1).clamp(0, size + 1))
    out = torch.where(fixed.free, (scores - following).clamp(min=0), 0.0)
    into = torch.where(fixed.free, (last - scores).clamp(min=0), 0.0)
    return out, into


def shrink(size: Tensor, ridge: Tensor, rho: Tensor | float, fixed: Fixed) -> tuple[Tensor, Tensor]:
    """The proximal step at penalty `rho`: factors ``(B, n)`` for items of magnitude ``size (B, n)``, and shares.

    For given shares an item is multiplied by ``rho s / (rho s + r)``. The best shares are ``a_j theta - r_j / rho``
    clipped to [0, 1] with ``a_j = size_j sqrt(r_j)``, and the one number ``theta`` makes them add up to the places
    left. Their sum grows piecewise linearly in theta: sorted kinks and cumulative sums find the piece.
    """
    free = fixed.free & (size > 0)
    slope = torch.where(free, size * ridge.sqrt(), 0.0).double()
    offset = (ridge / rho).double().expand_as(slope)
    # An item starts to take a share at the first of its kinks and has all of it from the second on.
    kinks, order = torch.cat([offset / slope, (1 + offset) / slope], dim=1).sort(dim=1)
    steep = torch.cat([slope, -slope], dim=1).gather(1, order).cumsum(dim=1)
    level = torch.cat([-offset, 1 + offset], dim=1).gather(1, order).cumsum(dim=1)
    before = (steep * kinks + level < fixed.left) & kinks.isfinite()
    piece = before.sum(dim=1, keepdim=True).clamp(1, kinks.shape[1] - 1)
    steep, level = steep.gather(1, piece - 1), level.gather(1, piece - 1)
    low, high = kinks.gather(1, piece - 1), kinks.gather(1, piece)
    theta = torch.where(steep > 0, (fixed.left - level) / steep, low).clamp(low, high)
    share = (slope * theta.nan_to_num() - offset).clamp(0, 1)
    roomy = free.sum(dim=1, keepdim=True) <= fixed.left
    share = torch.where(roomy, free.to(share), share) * (fixed.left > 0)
    share = torch.where(fixed.inside, 1.0, share)
    return rho * share / (rho * share + ridge), share
