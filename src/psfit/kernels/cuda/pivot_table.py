"""An exchange in the tables of a swap search, and the best swaps after it: one pass over the tables.

See `kernels.swap_rows` for what the numbers mean; its functions `pass_table` and `best_swaps` compute the same.
"""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from psfit.kernels.swap_rows import Form, Pivot, Rows
from psfit.kernels.swap_steps import TILE

# Entries of a table that a program keeps in registers.
HELD = 512


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
            ROWS=max(1, min(TILE, HELD // width)),
            HEIGHT=TILE,
            num_warps=max(4, min(16, width // 128)),
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
    ROWS: tl.constexpr,
    HEIGHT: tl.constexpr,
):
    """Some variables of one row of the batch."""
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
        if SCORES:
            scale = 1 / tl.load(diagonal + row * W + a, filled, 1.0)
            cost = tl.load(costs + row * W + a, filled, float("inf"))
            best = tl.full((ROWS, WIDTH), float("-inf"), tl.float64)
            number = tl.zeros((ROWS, WIDTH), tl.int64)
        for start in range(0, HEIGHT, ROWS):
            k = tl.program_id(0) * HEIGHT + start + tl.arange(0, ROWS)
            real = k < n
            here = row * n + k
            entries = T + here[:, None] * W + a[None, :]
            mask = real[:, None] & filled[None, :]
            # The row of a variable that leaves is a unit vector before the others follow.
            went = (k == old) & goes
            table = tl.where(went[:, None], at_place.to(tl.float64), tl.load(entries, mask, 0.0))
            v = tl.where(goes, tl.sum(tl.where(at_place, table, 0.0), axis=1), 0.0)
            held = tl.load(spot + here, real, -1)
            outside = real & (held < 0)
            r = tl.load(H + i * n + k, real, 0.0) - tl.sum(table * curve[None, :], axis=1) + entry / its_own * v
            r = tl.where(outside, r, -tl.load(u + row * W + held, held >= 0, 0.0))
            r = tl.where(comes, r, 0.0)
            g = r / schur
            table = table - (share[None, :] * v[:, None] + line[None, :] * g[:, None])
            table = tl.where(at_place, g[:, None], table)
            table = tl.where(((k == i) & comes)[:, None], inverse, table)
            tl.store(entries, table, mask)
            rest = tl.where(went, 0.0, tl.load(left + here, real, 0.0)) + v * v / its_own - r * g
            tl.store(left + here, rest, outside)
            if SCORES:
                ratio = table * scale[None, :]
                curvature = tl.maximum(rest, 0.0)[:, None] + table * ratio
                force = tl.zeros((ROWS, WIDTH), tl.float64)
            for o in range(c):
                output = row * c + o
                slope = tl.where(went, 0.0, tl.load(d + output * n + k, real, 0.0))
                slope += r * tl.load(step + output) - v * tl.load(pull + output)
                tl.store(d + output * n + k, slope, outside)
                if SCORES:
                    apart = slope[:, None] - ratio * tl.load(x + output * W + a, filled, 0.0)[None, :]
                    force += apart * apart
            if SCORES:
                gain = 0.5 * force / curvature - cost[None, :]
                free = outside & (tl.load(fixed + k, real, 0) == 0)
                allowed = free[:, None] & (curvature > tl.load(floor + k, real, 0.0)[:, None])
                if GROUPED:
                    kind = tl.load(group + k, real, -1)
                    inside = tl.load(taken + row * groups + kind, kind >= 0, 0)
                    full = (kind >= 0) & (inside >= tl.load(most + kind, kind >= 0, 1))
                    other = tl.load(places + row * W + a, filled, -1)
                    other = tl.load(group + other, other >= 0, -1)
                    allowed = allowed & ((full == 0)[:, None] | (other[None, :] == kind[:, None]))
                better = allowed & (gain > best)
                best = tl.where(better, gain, best)
                number = tl.where(better, k.to(tl.int64)[:, None] * W + a[None, :], number)
        if SCORES:
            # Of equal gains the first, so that the answer does not depend on the tiles.
            top = tl.max(tl.max(best, axis=1), axis=0)
            first = tl.where(best == top, number, 9223372036854775807)
            place_of_best = row * tl.num_programs(0) + tl.program_id(0)
            tl.store(gains + place_of_best, top)
            tl.store(numbers + place_of_best, tl.min(tl.min(first, axis=1), axis=0))
