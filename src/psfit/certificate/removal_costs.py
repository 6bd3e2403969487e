"""What it would cost to put an item outside: about how much the bound of a tree node would rise.

Near the solution of a node's relaxation the losses have second derivatives ``H``. Items with whole places add their
ridge ``r_j``. The other nonzero items, of sizes ``sqrt(r_j) |x_j|``, share the places that are left: together they pay
half the square of the sum of their sizes, divided by these places. With ``M`` the sum of the second derivatives, the
least rise of this model when ``x_j`` becomes zero is ``x_j^2 / (2 (M^-1)_jj)``. It is small where other columns can
replace column j, which the size of its coefficient does not show.
"""

import torch
from torch import Tensor

from psfit.problem import Domain

# Costs are estimated for so many items with the largest shares, at least twice the limit. The others count as nothing.
MOST_ITEMS = 64
# Items that are zero take part if their scores are nearly as large as those of the others.
NEAR = 0.999
# A little of the ridge keeps the factors of equal columns finite.
LEAST_RIDGE = 1e-3
WHOLE = 1 - 1e-9


def estimate_costs(
    H: Tensor, which: Tensor, x: Tensor, g: Tensor, ridge: Tensor, shares: Tensor, scores: Tensor, domain: Domain
) -> Tensor:
    """The costs ``(B, size)`` at the points ``x (B, size)`` with gradients `g` of the losses.

    Row b has the second derivatives ``H[which[b]]``; `shares` and `scores` belong to the points.
    """
    free, size = domain.free, x.shape[1]
    small = free & (shares < WHOLE)
    level = torch.where(small, scores, 0.0).amax(dim=1, keepdim=True)
    active = (shares > 0) | (small & (scores >= NEAR * level) & (level > 0))
    keys = torch.where(active, shares + scores / scores.amax(dim=1, keepdim=True).clamp(min=1e-300), -1.0)
    count = min(size, max(MOST_ITEMS, 2 * int(domain.limit.max())))
    index = keys.topk(count, dim=1).indices
    places = (domain.left - (free & ~small).sum(dim=1, keepdim=True)).clamp(min=1).double()
    sign = torch.where(x == 0, -g.sign(), x.sign())
    edge = torch.where(small, ridge.sqrt() * sign, 0.0) / places.sqrt()
    own = torch.where(small, LEAST_RIDGE * ridge, ridge)
    used, value, edge, own = (part.gather(1, index) for part in (active, x, edge, own))
    M = H[which[:, None, None], index.unsqueeze(2), index.unsqueeze(1)] + edge.unsqueeze(2) * edge.unsqueeze(1)
    M = torch.where(used.unsqueeze(2) & used.unsqueeze(1), M, 0.0) + torch.diag_embed(torch.where(used, own, 1.0))
    factor, failed = torch.linalg.cholesky_ex(M)
    # The inverse of what is left of a failed factor may not exist.
    factor = torch.where((failed > 0)[:, None, None], torch.eye(count, dtype=M.dtype, device=M.device), factor)
    inverse = torch.cholesky_inverse(factor).diagonal(dim1=1, dim2=2)
    found = torch.where(used & (inverse > 0), value.square() / (2 * inverse), 0.0)
    plain = (shares.square() * scores).gather(1, index)
    found = torch.where((failed > 0).unsqueeze(1) | ~found.isfinite(), plain, found)
    return torch.zeros_like(x).scatter(1, index, found)
