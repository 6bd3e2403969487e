"""All of an exchange in a swap search but the change of the tables: one program for each row of the batch.

See `kernels.swap_rows` for what the numbers mean; its function `exchange` computes the same.
"""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from psfit.kernels.swap_rows import Form, Pivot, Rows


def exchange_rows(form: Form, rows: Rows, place: Tensor, newcomer: Tensor, moves: Tensor) -> Pivot:
    """Put variables ``newcomer (B,)`` in the ``place (B,)`` of rows that move; -1 for none."""
    (B, n, W), c = rows.T.shape, rows.x.shape[1]
    flags = torch.empty(2, B, 1, dtype=torch.bool, device=place.device)
    names = torch.empty(2, B, 1, dtype=torch.int64, device=place.device)
    numbers = torch.empty(3, B, 1, dtype=rows.T.dtype, device=place.device)
    lines = torch.empty(4, B, W, dtype=rows.T.dtype, device=place.device)
    forces = torch.empty(2, B, c, 1, dtype=rows.T.dtype, device=place.device)
    value = torch.empty(B, dtype=rows.T.dtype, device=place.device)
    width = triton.next_power_of_2(W)
    with torch.cuda.device(place.device):
        _exchange_rows[(B,)](
            *(rows.T, rows.left, rows.d, rows.spot, rows.places, rows.own, rows.x, rows.taken),
            *(form.H, form.Q, form.fixed, form.most if form.group is None else form.group),
            *(place, newcomer, moves),
            *(flags, names, numbers, lines, forces, value),
            *(B, n, W, c, len(form.most)),
            GROUPED=form.group is not None,
            WIDTH=width,
            num_warps=max(4, min(16, width // 128)),
        )
    joins, leaves = flags
    entered, gone = names
    own, t, s = numbers
    f, u, h, costs = lines
    pull, step = forces
    moves, place = moves.unsqueeze(1), place.unsqueeze(1)
    return Pivot(moves, joins, leaves, place, entered, gone, own, t, s, f, u, h, pull, step, costs, value)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _exchange_rows(  # type: ignore[no-untyped-def]
    T,
    left,
    d,
    spot,
    places,
    diagonal,
    x,
    taken,
    H,
    Q,
    fixed,
    group,
    place,
    newcomer,
    moves,
    flags,
    names,
    numbers,
    lines,
    forces,
    values,
    B,
    n,
    W,
    c,
    groups,
    GROUPED: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One row."""
    row = tl.program_id(0).to(tl.int64)
    a = tl.arange(0, WIDTH)
    filled = a < W
    j, enters, moving = tl.load(place + row), tl.load(newcomer + row), tl.load(moves + row)
    old, held = tl.load(places + row * W + a, filled, -1), tl.load(places + row * W + j)
    occupied = old >= 0
    comes, goes = moving & (enters >= 0), moving & (held >= 0)
    i, gone = tl.maximum(enters, 0), tl.maximum(held, 0)
    at_place = a == j
    own_all = tl.load(diagonal + row * W + a, filled, 1.0)
    own = tl.where(goes, tl.load(diagonal + row * W + j), 1.0)
    f = tl.load(T + (row * n + old) * W + j, occupied, 0.0)
    f = tl.where(goes, f / own, 0.0)
    line = tl.load(T + (row * n + i) * W + a, filled, 0.0)
    t = tl.where(comes & goes, tl.load(T + (row * n + i) * W + j), 0.0)
    u = tl.where(at_place, 0.0, tl.where(comes, line - f * t, 0.0))
    s = tl.where(comes, tl.load(left + row * n + i) + t * t / own, 1.0)
    h = tl.where(comes, tl.load(H + i * n + old, occupied, 0.0), 0.0)
    # Everything is read before anything is written.
    tl.debug_barrier()
    new = tl.where(at_place, tl.where(comes, i, tl.where(goes, -1, held)), old)
    tl.store(places + row * W + a, new, filled)
    tl.store(spot + row * n + gone, -1, goes)
    tl.store(spot + row * n + i, j, comes)
    if GROUPED:
        kind, other = tl.load(group + i), tl.load(group + gone)
        tl.atomic_add(taken + row * groups + kind, 1, comes & (kind >= 0))
        tl.atomic_add(taken + row * groups + other, -1, goes & (other >= 0))
    own_new = tl.where(at_place, tl.where(moving, 1 / s, own_all), own_all + (u * u / s - f * f * own))
    tl.store(diagonal + row * W + a, own_new, filled)
    squares = tl.zeros((WIDTH,), tl.float64)
    total = tl.zeros((WIDTH,), tl.float64)
    for o in range(c):
        output = row * c + o
        before = tl.load(x + output * W + a, filled, 0.0)
        pulled = tl.where(goes, tl.sum(tl.where(at_place, before, 0.0), axis=0), 0.0)
        pull = pulled / own
        step = tl.where(comes, -(tl.load(d + output * n + i) - t * pull) / s, 0.0)
        after = tl.where(at_place, tl.where(moving, step, before), before - (f * pulled + u * step))
        tl.store(x + output * W + a, after, filled)
        tl.store(forces + output, pull)
        tl.store(forces + B * c + output, step)
        squares += after * after
        total += after * tl.load(Q + o * n + new, new >= 0, 0.0)
    may_leave = (new >= 0) & (tl.load(fixed + new, new >= 0, 1) == 0)
    costs = tl.where(may_leave, 0.5 * squares / own_new, float("inf"))
    tl.store(lines + row * W + a, f, filled)
    tl.store(lines + (B + row) * W + a, u, filled)
    tl.store(lines + (2 * B + row) * W + a, h, filled)
    tl.store(lines + (3 * B + row) * W + a, costs, filled)
    tl.store(values + row, -0.5 * tl.sum(total, axis=0))
    tl.store(flags + row, comes)
    tl.store(flags + B + row, goes)
    tl.store(names + row, i)
    tl.store(names + B + row, gone)
    tl.store(numbers + row, own)
    tl.store(numbers + B + row, t)
    tl.store(numbers + 2 * B + row, s)
