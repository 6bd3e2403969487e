"""All of an exchange in a swap search but the change of the tables: one program for each row of the batch.

See `kernels.swap_rows` for what the numbers mean; its function `exchange` computes the same.
"""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from psfit.kernels.swap_rows import Form, Pivot, Rows
from psfit.kernels.swap_steps import Descent


def exchange_rows(
    form: Form, rows: Rows, choice: Descent | tuple[Tensor, Tensor, Tensor], most_drift: float = 0.0
) -> Pivot:
    """Exchange variables in the rows that move.

    The `choice` is the place, the newcomer (-1 for none) and whether a row moves, ``(B,)`` each; or a descent, which
    makes its best swaps and is changed in place.
    """
    (B, n, W), c = rows.T.shape, rows.x.shape[1]
    descends = isinstance(choice, Descent)
    flags = torch.empty(3, B, 1, dtype=torch.bool, device=rows.T.device)
    names = torch.empty(3, B, 1, dtype=torch.int64, device=rows.T.device)
    numbers = torch.empty(3, B, 1, dtype=rows.T.dtype, device=rows.T.device)
    lines = torch.empty(4, B, W, dtype=rows.T.dtype, device=rows.T.device)
    forces = torch.empty(2, B, c, 1, dtype=rows.T.dtype, device=rows.T.device)
    value = torch.empty(B, dtype=rows.T.dtype, device=rows.T.device)
    width = triton.next_power_of_2(W)
    if isinstance(choice, Descent):
        place, newcomer, moves = choice.swaps, choice.swaps, choice.active
        # The kernel's arguments have the order of the fields.
        known = tuple(vars(choice).values())
        tiles = choice.gains.shape[1]
    else:
        # The kernel expects neighbours in memory; a caller may pass the column of a table.
        place, newcomer, moves = (tensor.contiguous() for tensor in choice)
        known, tiles = (value, place, place, value, value, value, place, moves, moves, value), 1
    with torch.cuda.device(rows.T.device):
        _exchange_rows[(B,)](
            *(rows.T, rows.left, rows.d, rows.spot, rows.places, rows.own, rows.x, rows.taken),
            *(form.H, form.Q, form.fixed, form.most if form.group is None else form.group),
            *(place, newcomer, moves),
            *known,
            *(flags, names, numbers, lines, forces, value),
            *(B, n, W, c, len(form.most), tiles),
            DESCENDS=descends,
            MOST_DRIFT=most_drift,
            TILES=triton.next_power_of_2(tiles),
            GROUPED=form.group is not None,
            WIDTH=width,
            num_warps=max(4, min(16, width // 128)),
        )
    moved, joins, leaves = flags
    at, entered, gone = names
    own, t, s = numbers
    f, u, h, costs = lines
    pull, step = forces
    return Pivot(moved, joins, leaves, at, entered, gone, own, t, s, f, u, h, pull, step, costs, value)


# One compilation serves all numbers of rows and tiles.
@triton.jit(do_not_specialize=["B", "tiles"])  # type: ignore[untyped-decorator, unused-ignore]
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
    carried,
    swaps,
    most,
    constant,
    rel_tol,
    gains,
    offers,
    active,
    drifted,
    before_drift,
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
    tiles,
    DESCENDS: tl.constexpr,
    MOST_DRIFT: tl.constexpr,
    TILES: tl.constexpr,
    GROUPED: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One row."""
    row = tl.program_id(0).to(tl.int64)
    a = tl.arange(0, WIDTH)
    filled = a < W
    if DESCENDS:
        tile = tl.arange(0, TILES)
        offered = tl.load(gains + row * tiles + tile, tile < tiles, float("-inf"))
        gain = tl.max(offered, axis=0)
        # Of equal gains the first, so that the answer does not depend on the tiles.
        offer = tl.load(offers + row * tiles + tile, tile < tiles, 9223372036854775807)
        offer = tl.min(tl.where(offered == gain, offer, 9223372036854775807), axis=0)
        j, enters = offer % W, offer // W
        value, made = tl.load(carried + row), tl.load(swaps + row)
        enough = gain > tl.load(rel_tol + row) * tl.abs(tl.load(constant + row) + value)
        moving = tl.load(active + row) & enough & (made < tl.load(most + row))
        known_drift, known_before = tl.load(drifted + row), tl.load(before_drift + row)
    else:
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
    value_new = -0.5 * tl.sum(total, axis=0)
    tl.store(values + row, value_new)
    if DESCENDS:
        steady = tl.abs(value_new - (value - gain)) <= MOST_DRIFT * tl.abs(value_new)
        drifts = moving & (steady == 0)
        tl.store(carried + row, tl.where(moving, value_new, value))
        tl.store(swaps + row, made + moving.to(tl.int64))
        tl.store(active + row, moving & steady)
        tl.store(drifted + row, known_drift | drifts)
        tl.store(before_drift + row, tl.where(drifts, value, known_before))
    tl.store(flags + row, moving)
    tl.store(flags + B + row, comes)
    tl.store(flags + 2 * B + row, goes)
    tl.store(names + row, j)
    tl.store(names + B + row, i)
    tl.store(names + 2 * B + row, gone)
    tl.store(numbers + row, own)
    tl.store(numbers + B + row, t)
    tl.store(numbers + 2 * B + row, s)
