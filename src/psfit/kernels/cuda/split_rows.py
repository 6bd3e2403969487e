"""An iteration of the alternating direction method for perspectives, for many rows: all but the matrix product."""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

# The largest row, and the most steps towards the number that makes the shares fill their places.
MOST_ITEMS = 4096
MOST_STEPS = 60
# The shares fill their places up to this.
FILLED = 1e-9


def split_rows(
    x: Tensor, u: Tensor, z: Tensor, Q: Tensor, ridge: Tensor, rho: Tensor, kind: Tensor, left: Tensor, theta: Tensor
) -> Tensor:
    """From the points ``x (B, n)`` to the next right-hand sides ``Q + rho (z - u)``; changes `u`, `z` and `theta`.

    Parameters
    ----------
    u, z : Tensor (B, n), float64
        Multipliers, and points of the perspective: ``z`` is its proximal step at ``x + u``, see `Domain.shrink`.
    ridge : Tensor (n,), rho : Tensor (B, 1)
    kind : Tensor (B, n), int8
        1 for items inside, -1 for items outside, else 0.
    left : Tensor (B, 1) of integers
        The places of the free items.
    theta : Tensor (B,)
        Where the search for the shares begins, and where it ended.
    """
    rows, n = x.shape
    right = torch.empty_like(x)
    with torch.cuda.device(x.device):
        _split[(rows,)](
            *(x, u, z, Q, ridge, rho, kind, left, theta, right, n),
            MOST_STEPS=MOST_STEPS,
            FILLED=FILLED,
            WIDTH=triton.next_power_of_2(n),
            num_warps=4 if n <= 512 else 8,
        )
    return right


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _split(  # type: ignore[no-untyped-def]
    x,
    u,
    z,
    Q,
    ridge,
    rho,
    kind,
    left,
    theta,
    right,
    n,
    MOST_STEPS: tl.constexpr,
    FILLED: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One row: the theta at which the sum of ``slope theta - offset``, clipped to [0, 1], is `left`; then the step.

    Newton's method in brackets finds theta.
    """
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, WIDTH)
    here = j < n
    at = row * n + j
    w = tl.load(x + at, mask=here, other=0.0) + tl.load(u + at, mask=here, other=0.0)
    r = tl.load(ridge + j, mask=here, other=1.0)
    which = tl.load(kind + at, mask=here, other=-1)
    penalty, places = tl.load(rho + row), tl.load(left + row).to(tl.float64)
    free = (which == 0) & (w != 0)
    slope = tl.where(free, tl.abs(w) * tl.sqrt(r), 0.0)
    offset = r / penalty
    count = tl.sum(free.to(tl.int32), axis=0).to(tl.float64)
    steep = tl.where(free, slope, 1.0)
    level = tl.load(theta + row)
    low, high = level * 0, level * 0 + float("inf")
    step, filled = 0, (count <= places) | (places <= 0)
    while (step < MOST_STEPS) & (filled == 0):
        share = slope * level - offset
        partly = free & (share > 0) & (share < 1)
        total = tl.sum(tl.where(free, tl.minimum(tl.maximum(share, 0.0), 1.0), 0.0), axis=0)
        rise = tl.sum(tl.where(partly, slope, 0.0), axis=0)
        filled = tl.abs(total - places) <= FILLED * places
        low, high = tl.where(total < places, level, low), tl.where(total < places, high, level)
        # The next number at which an item gets a share, for the case that no share grows.
        kinks = tl.where(free & (share <= 0), offset / steep, float("inf"))
        kink = tl.min(kinks, axis=0) * (1 + 1e-6)
        ahead = tl.where(rise > 0, level + (places - total) / tl.where(rise > 0, rise, 1.0), kink)
        middle = tl.where(high < float("inf"), 0.5 * (low + high), tl.maximum(kink, 2 * low))
        ahead = tl.where((ahead > low) & (ahead < high), ahead, middle)
        level = tl.where(filled, level, ahead)
        step += 1
    share = tl.minimum(tl.maximum(slope * level - offset, 0.0), 1.0)
    share = tl.where(count <= places, 1.0, share)
    share = tl.where(places > 0, share, 0.0)
    share = tl.where(which == 1, 1.0, tl.where(free, share, 0.0))
    moved = penalty * share / (penalty * share + r) * w
    # Several warps may load the same numbers, so none stores before all have loaded.
    tl.debug_barrier()
    tl.store(theta + row, level)
    tl.store(z + at, moved, mask=here)
    tl.store(u + at, w - moved, mask=here)
    q = tl.load(Q + at, mask=here, other=0.0)
    tl.store(right + at, q + penalty * (moved - (w - moved)), mask=here)
