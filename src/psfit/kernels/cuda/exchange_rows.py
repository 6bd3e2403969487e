"""All of an exchange in a swap search but the change of the tables: one program for each row of the batch.

See `kernels.swap_rows` for what the numbers mean; its function `exchange` computes the same.
"""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from psfit.kernels.swap_rows import Form, Pivot, Rows
from psfit.kernels.swap_steps import Addition, Descent, Removal

# How the variables are chosen: by the caller; the best swap; the best newcomer; the one that costs least.
GIVEN, DESCENT, ADDITION, REMOVAL = range(4)
# Variables among which a program looks for the best newcomer at the same time.
BLOCK = 1024

Choice = Descent | Addition | Removal | tuple[Tensor, Tensor, Tensor]


def exchange_rows(form: Form, rows: Rows, choice: Choice, most_drift: float = 0.0) -> Pivot:
    """Exchange variables in the rows that move.

    The `choice` is the place, the newcomer (-1 for none) and whether a row moves, ``(B,)`` each; or a descent, an
    addition or a removal, which choose them and are changed in place.
    """
    (B, n, W), c = rows.T.shape, rows.x.shape[1]
    flags = torch.empty(3, B, 1, dtype=torch.bool, device=rows.T.device)
    names = torch.empty(3, B, 1, dtype=torch.int64, device=rows.T.device)
    numbers = torch.empty(3, B, 1, dtype=rows.T.dtype, device=rows.T.device)
    lines = torch.empty(4, B, W, dtype=rows.T.dtype, device=rows.T.device)
    forces = torch.empty(2, B, c, 1, dtype=rows.T.dtype, device=rows.T.device)
    value = torch.empty(B, dtype=rows.T.dtype, device=rows.T.device)
    width = triton.next_power_of_2(W)
    mode, given, known, limit, tiles = _read_choice(choice, value, rows)
    with torch.cuda.device(rows.T.device):
        _exchange_rows[(B,)](
            *(rows.T, rows.left, rows.d, rows.spot, rows.places, rows.own, rows.x, rows.taken),
            *(form.H, form.Q, form.floor, form.fixed, form.most if form.group is None else form.group, form.most),
            *given,
            *known,
            *limit,
            *(flags, names, numbers, lines, forces, value),
            *(B, n, W, c, len(form.most), tiles),
            MODE=mode,
            MOST_DRIFT=most_drift,
            TILES=triton.next_power_of_2(tiles),
            GROUPED=form.group is not None,
            WIDTH=width,
            BLOCK=BLOCK,
            num_warps=max(4, min(16, width // 128)),
        )
    moved, joins, leaves = flags
    at, entered, gone = names
    own, t, s = numbers
    f, u, h, costs = lines
    pull, step = forces
    return Pivot(moved, joins, leaves, at, entered, gone, own, t, s, f, u, h, pull, step, costs, value)


Tensors = tuple[Tensor, ...]


def _read_choice(choice: Choice, value: Tensor, rows: Rows) -> tuple[int, Tensors, Tensors, Tensors, int]:
    """The kind of a choice; the kernel's arguments for given places, descents, and limits; the tiles of a descent."""
    names, flags = rows.places, rows.T
    given: Tensors = names, names, flags
    # Arguments that a kind of choice does not have are never read.
    known: Tensors = value, names, names, value, value, value, names, flags, flags, value
    limit: Tensors = names, names
    if isinstance(choice, Descent):
        # The kernel's arguments have the order of the fields.
        return DESCENT, given, tuple(vars(choice).values()), limit, choice.gains.shape[1]
    if isinstance(choice, Addition):
        return ADDITION, given, known, (choice.most, names), 1
    if isinstance(choice, Removal):
        return REMOVAL, given, known, (choice.least, choice.remained), 1
    # The kernel expects neighbours in memory; a caller may pass the column of a table.
    return GIVEN, tuple(tensor.contiguous() for tensor in choice), known, limit, 1


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
    floor,
    fixed,
    group,
    most_of_group,
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
    limit,
    remained,
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
    MODE: tl.constexpr,
    MOST_DRIFT: tl.constexpr,
    TILES: tl.constexpr,
    GROUPED: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row. The kinds of choices are those above: 0 given, 1 descent, 2 addition, 3 removal."""
    row = tl.program_id(0).to(tl.int64)
    a = tl.arange(0, WIDTH)
    filled = a < W
    if MODE == 1:
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
    elif MODE == 0:
        j, enters, moving = tl.load(place + row), tl.load(newcomer + row), tl.load(moves + row)
    old = tl.load(places + row * W + a, filled, -1)
    occupied = old >= 0
    size = tl.sum(occupied.to(tl.int64), axis=0)
    if MODE == 2:
        best = tl.full((), -1.0, tl.float64)
        enters = tl.full((), 0, tl.int64)
        for start in range(0, n, BLOCK):
            k = start + tl.arange(0, BLOCK)
            real = k < n
            rest = tl.load(left + row * n + k, real, 0.0)
            free = (tl.load(spot + row * n + k, real, 0) < 0) & (tl.load(fixed + k, real, 1) == 0)
            free = free & (rest > tl.load(floor + k, real, 0.0))
            if GROUPED:
                its_group = tl.load(group + k, real, -1)
                inside = tl.load(taken + row * groups + its_group, its_group >= 0, 0)
                free = free & ((its_group < 0) | (inside < tl.load(most_of_group + its_group, its_group >= 0, 1)))
            force = tl.zeros((BLOCK,), tl.float64)
            for o in range(c):
                slope = tl.load(d + (row * c + o) * n + k, real, 0.0)
                force += slope * slope
            score = tl.where(free, force / rest, -1.0)
            score = tl.where(score == score, score, -1.0)
            top = tl.max(score, axis=0)
            # Of equal scores the first.
            first = tl.min(tl.where(score == top, k.to(tl.int64), 9223372036854775807), axis=0)
            enters = tl.where(top > best, first, enters)
            best = tl.maximum(top, best)
        j = tl.minimum(size, 0 * size + W - 1)
        moving = (best >= 0) & (size < tl.load(limit + row))
    if MODE == 3:
        power = tl.zeros((WIDTH,), tl.float64)
        for o in range(c):
            now = tl.load(x + (row * c + o) * W + a, filled, 0.0)
            power += now * now
        removable = occupied & (tl.load(fixed + old, occupied, 1) == 0)
        price = tl.where(removable, 0.5 * power / tl.load(diagonal + row * W + a, filled, 1.0), float("inf"))
        least = tl.min(price, axis=0)
        j = tl.min(tl.where(price == least, a.to(tl.int64), W - 1), axis=0)
        enters = tl.full((), -1, tl.int64)
        moving = (least < float("inf")) & (size > tl.load(limit + row))
    held = tl.load(places + row * W + j)
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
        # Several warps may load the same numbers.
        tl.debug_barrier()
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
    if MODE == 3:
        tl.store(remained + row * n + gone, size - 1, goes)
    if MODE == 1:
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
