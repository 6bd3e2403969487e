"""An exchange in the tables of a swap search, and the best swaps after it: one pass over the tables.

See `kernels.swap_rows` for what the numbers mean; its functions `pass_table` and `best_swaps` compute the same.
"""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from psfit.kernels.swap_rows import Form, Pivot, Rows
from psfit.kernels.swap_steps import TILE

# Places that a warp works on at the same time; more need more registers than there are.
PLACES = 256


def pivot_table(form: Form, rows: Rows, pivot: Pivot, gains: Tensor | None, numbers: Tensor | None) -> None:
    """Change the rows that move, and note the best of their swaps in each tile of variables, ``(B, tiles)``, if asked.

    The number of a swap is ``newcomer * W + place``.
    """
    (B, n, W), c = rows.T.shape, rows.x.shape[1]
    width = triton.next_power_of_2(W)
    scores = gains is not None and numbers is not None
    with torch.cuda.device(rows.T.device):
        _pivot_table[triton.cdiv(n, TILE), B](
            *(rows.T, rows.left, rows.d, rows.spot, rows.places, rows.own, rows.x, rows.taken),
            *(form.H, form.floor, form.fixed, form.most if form.group is None else form.group, form.most),
            *(pivot.moves, pivot.joins, pivot.leaves, pivot.place, pivot.newcomer, pivot.gone),
            *(pivot.own, pivot.t, pivot.s, pivot.f, pivot.u, pivot.h, pivot.pull, pivot.step),
            *(pivot.costs, gains if scores else pivot.costs, numbers if scores else pivot.place),
            *(n, W, c, len(form.most)),
            SCORES=scores,
            GROUPED=form.group is not None,
            WIDTH=width,
            HEIGHT=TILE,
            num_warps=max(1, min(16, width // PLACES)),
            # With fused operations the threads that add up one product each round the sum differently. The parts of a
            # row then belong to different exchanges, and gains become wrong where variables nearly depend on others.
            enable_fp_fusion=False,
        )


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _pivot_table(  # type: ignore[no-untyped-def]
    T,
    left,
    d,
    spot,
    places,
    diagonal,
    x,
    taken,
    H,
    floor,
    fixed,
    group,
    most,
    moves,
    joins,
    leaves,
    place,
    newcomer,
    gone,
    own,
    t,
    s,
    f,
    u,
    h,
    pull,
    step,
    costs,
    gains,
    numbers,
    n,
    W,
    c,
    groups,
    SCORES: tl.constexpr,
    GROUPED: tl.constexpr,
    WIDTH: tl.constexpr,
    HEIGHT: tl.constexpr,
):
    """Some variables of one row of the batch.

    Several warps may load the same number, so all is loaded before any of them stores.
    """
    row = tl.program_id(1).to(tl.int64)
    if tl.load(moves + row):
        a = tl.arange(0, WIDTH)
        filled = a < W
        comes, goes = tl.load(joins + row), tl.load(leaves + row)
        j, i, old = tl.load(place + row), tl.load(newcomer + row), tl.load(gone + row)
        its_own, entry, schur = tl.load(own + row), tl.load(t + row), tl.load(s + row)
        share = tl.load(f + row * W + a, filled, 0.0)
        line = tl.load(u + row * W + a, filled, 0.0)
        curve = tl.load(h + row * W + a, filled, 0.0)
        at_place = (a == j)[None, :]
        inverse = tl.where(a == j, 1 / schur, -line / schur)[None, :]
        k = tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)
        real = k < n
        here = row * n + k
        entries = T + here[:, None] * W + a[None, :]
        mask = real[:, None] & filled[None, :]
        # The row of a variable that leaves is a unit vector before the others follow.
        went = (k == old) & goes
        table = tl.where(went[:, None], at_place.to(tl.float64), tl.load(entries, mask, 0.0))
        v = tl.where(went, 1.0, tl.load(T + here * W + j, real & goes, 0.0))
        held = tl.load(spot + here, real, -1)
        outside = real & (held < 0)
        r = tl.load(H + i * n + k, real, 0.0) - tl.sum(table * curve[None, :], axis=1) + entry / its_own * v
        r = tl.where(outside, r, -tl.load(u + row * W + held, held >= 0, 0.0))
        r = tl.where(comes, r, 0.0)
        g = r / schur
        table = table - (share[None, :] * v[:, None] + line[None, :] * g[:, None])
        table = tl.where(at_place, g[:, None], table)
        table = tl.where(((k == i) & comes)[:, None], inverse, table)
        rest = tl.where(went, 0.0, tl.load(left + here, real, 0.0)) + v * v / its_own - r * g
        if SCORES:
            ratio = table * (1 / tl.load(diagonal + row * W + a, filled, 1.0))[None, :]
            curvature = tl.maximum(rest, 0.0)[:, None] + table * ratio
            force = tl.zeros((HEIGHT, WIDTH), tl.float64)
        for o in range(c):
            output = row * c + o
            slope = tl.where(went, 0.0, tl.load(d + output * n + k, real, 0.0))
            slope += r * tl.load(step + output) - v * tl.load(pull + output)
            tl.debug_barrier()
            tl.store(d + output * n + k, slope, outside)
            if SCORES:
                apart = slope[:, None] - ratio * tl.load(x + output * W + a, filled, 0.0)[None, :]
                force += apart * apart
        tl.store(left + here, rest, outside)
        tl.store(entries, table, mask)
        if SCORES:
            cost = tl.load(costs + row * W + a, filled, float("inf"))
            gain = 0.5 * force * _invert(curvature) - cost[None, :]
            free = outside & (tl.load(fixed + k, real, 0) == 0)
            allowed = free[:, None] & (curvature > tl.load(floor + k, real, 0.0)[:, None])
            if GROUPED:
                kind = tl.load(group + k, real, -1)
                inside = tl.load(taken + row * groups + kind, kind >= 0, 0)
                full = (kind >= 0) & (inside >= tl.load(most + kind, kind >= 0, 1))
                other = tl.load(places + row * W + a, filled, -1)
                other = tl.load(group + other, other >= 0, -1)
                allowed = allowed & ((full == 0)[:, None] | (other[None, :] == kind[:, None]))
            gain = tl.where(allowed & (gain == gain), gain, float("-inf"))
            best = tl.max(gain, axis=1)
            at_best = tl.min(tl.where(gain == best[:, None], a[None, :], WIDTH - 1), axis=1)
            # Of equal gains the first, so that the answer does not depend on the tiles.
            top = tl.max(best, axis=0)
            first = tl.where(best == top, k.to(tl.int64) * W + at_best, 9223372036854775807)
            place_of_best = row * tl.num_programs(0) + tl.program_id(0)
            tl.store(gains + place_of_best, top)
            tl.store(numbers + place_of_best, tl.min(first, axis=0))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _invert(x):  # type: ignore[no-untyped-def]
    """``1 / x``: a first guess of 20 digits in base 2 and two steps of Newton's method, faster than a division."""
    guess = tl.inline_asm_elementwise("rcp.approx.ftz.f64 $0, $1;", "=d,d", [x], dtype=tl.float64, is_pure=True, pack=1)
    guess = guess * (2.0 - x * guess)
    return guess * (2.0 - x * guess)
