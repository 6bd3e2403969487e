"""The perspective of a limited ridge: the strongest convex stand-in for "at most kappa items, each paying a ridge".

For items with ridges ``r`` the relaxation gives every item a share ``s_j`` in [0, 1] of the limit and charges

    1/2 min { sum_j r_j x_j^2 / s_j :  0 <= s <= 1,  sum_j s_j <= kappa }.

Its conjugate at ``g`` is the sum of the kappa largest scores ``g_j^2 / (2 r_j)``, hence the bound that one gradient
proves. Items may be fixed: inside (share one) or outside (share zero). Everything is batched over rows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# Newton steps for the shares, from a guess and from the iteration before.
COLD_STEPS = 12
WARM_STEPS = 3


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


def shrink(
    size: Tensor, ridge: Tensor, rho: Tensor | float, fixed: Fixed, theta: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The proximal step at penalty `rho`: factors ``(B, n)`` for items of magnitude ``size (B, n)``, shares, theta.

    For given shares an item is multiplied by ``rho s / (rho s + r)``. The best shares are ``a_j theta - r_j / rho``
    clipped to [0, 1] with ``a_j = size_j sqrt(r_j)``, and the one number ``theta (B, 1)`` makes them add up to the
    places left. That equation is piecewise linear and increasing: Newton's method inside a bracket, started at the
    theta of a similar problem or at a guess, takes a few steps. Shares that do not quite add up only make a slower
    iteration.
    """
    free = fixed.free & (size > 0)
    slope = torch.where(free, size * ridge.sqrt(), 0.0)
    offset = ridge / rho
    high = torch.where(free, (1 + offset) / torch.where(free, slope, 1.0), 0.0).amax(dim=1, keepdim=True)
    steps = WARM_STEPS
    if theta is None:
        # The last place goes to the item that would come last in order of size.
        steps = COLD_STEPS
        last = slope.topk(max(1, min(int(fixed.left.max()), size.shape[1])), dim=1).values
        last = last.gather(1, (fixed.left - 1).clamp(0, last.shape[1] - 1))
        theta = (1 + offset.mean()) / last.clamp(min=torch.finfo(last.dtype).tiny)
    theta, low = torch.minimum(theta, high), torch.zeros_like(high)
    for _ in range(steps):
        raw = slope * theta - offset
        total = raw.clamp(0, 1).sum(dim=1, keepdim=True)
        steep = torch.where((raw > 0) & (raw < 1), slope, 0.0).sum(dim=1, keepdim=True)
        below = total < fixed.left
        low, high = torch.where(below, theta, low), torch.where(below, high, theta)
        newton = theta + (fixed.left - total) / torch.where(steep > 0, steep, torch.inf)
        outside = (newton <= low) | (newton >= high) | (steep <= 0)
        # Small items put the upper end of the bracket far out: never go further than a factor of two at once.
        middle = torch.where(below, torch.minimum((low * high).sqrt(), 2 * theta), (low + theta) / 2)
        theta = torch.where(outside & (total != fixed.left), middle, newton)
    share = (slope * theta - offset).clamp(0, 1)
    roomy = free.sum(dim=1, keepdim=True) <= fixed.left
    share = torch.where(roomy, free.to(share), share) * (fixed.left > 0)
    share = torch.where(fixed.inside, 1.0, share)
    return rho * share / (rho * share + ridge), share, theta
