"""From rows of float32 to the digits of their columns and to sums over the rows."""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

DIGITS = 2
TILE_ROWS, TILE_COLUMNS = 128, 32


def cut(
    values: Tensor, about: Tensor, root: Tensor, inverse: Tensor, right: Tensor, base: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Digits of ``root (values - about) inverse`` and sums of ``values - about`` against ``right``; one pass.

    Parameters
    ----------
    values : Tensor (h, p), float32
    about, inverse : Tensor (p,), float64
        What to subtract from the columns; factors that scale them to the range of the first digit.
    root : Tensor (h, 1), float64
        Factors of the rows.
    right : Tensor (h, r), float64
    base : int
        The value of a digit in units of the next.

    Returns
    -------
    digits : Tensor (2, n, rows), int8
        Padded with zeros to whole tiles.
    sums : Tensor (p, r), float64
    rests : Tensor (p,), float64
        Squares of the remainders after both digits, in units of the first digit, summed over the rows.
    """
    (h, p), r = values.shape, right.shape[1]
    height = -(-h // TILE_ROWS) * TILE_ROWS
    width = -(-p // TILE_COLUMNS) * TILE_COLUMNS
    digits = torch.empty(DIGITS, width, height, dtype=torch.int8, device=values.device)
    tiles = height // TILE_ROWS, width // TILE_COLUMNS
    partial = torch.empty(tiles[0], r + 1, p, dtype=torch.float64, device=values.device)
    with torch.cuda.device(values.device):
        _cut[tiles](
            values,
            about,
            root.contiguous(),
            inverse,
            right.T.contiguous(),
            digits,
            partial,
            h,
            p,
            values.stride(0),
            values.stride(1),
            height,
            width,
            BASE=base,
            RIGHT=r,
            TILE_ROWS=TILE_ROWS,
            TILE_COLUMNS=TILE_COLUMNS,
        )
    *sums, rests = partial.sum(dim=0)
    return digits, torch.stack(sums, dim=1), rests


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _cut(  # type: ignore[no-untyped-def]
    values,
    about,
    root,
    inverse,
    right,
    digits,
    partial,
    rows,
    columns,
    row_stride,
    column_stride,
    height,
    width,
    BASE: tl.constexpr,
    RIGHT: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
):
    """One tile: subtract `about`, sum against each of the RIGHT vectors, weight and scale, cut into digits.

    Digits are written column by column, since the integer units need the summed index to be contiguous.
    """
    tile = tl.program_id(0).to(tl.int64)
    i = tile * TILE_ROWS + tl.arange(0, TILE_ROWS)
    j = tl.program_id(1).to(tl.int64) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    inside_rows, inside_columns = i < rows, j < columns
    inside = inside_rows[:, None] & inside_columns[None, :]
    entries = tl.load(values + i[:, None] * row_stride + j[None, :] * column_stride, mask=inside, other=0.0)
    middle = tl.load(about + j, mask=inside_columns, other=0.0)
    apart = tl.where(inside, entries.to(tl.float64) - middle[None, :], 0.0)
    for k in tl.static_range(RIGHT):
        factor = tl.load(right + k * rows + i, mask=inside_rows, other=0.0)
        total = tl.sum(apart * factor[:, None], axis=0)
        tl.store(partial + (tile * (RIGHT + 1) + k) * columns + j, total, mask=inside_columns)
    weight = tl.load(root + i, mask=inside_rows, other=0.0)
    scale = tl.load(inverse + j, mask=inside_columns, other=0.0)
    rest = apart * weight[:, None] * scale[None, :]
    place = digits + j[None, :] * height + i[:, None]
    first = tl.floor(rest + 0.5)
    rest = (rest - first) * BASE
    second = tl.floor(rest + 0.5)
    rest = (rest - second) / BASE
    tl.store(place, first.to(tl.int8))
    tl.store(place + width * height, second.to(tl.int8))
    left = tl.sum(rest * rest, axis=0)
    tl.store(partial + (tile * (RIGHT + 1) + RIGHT) * columns + j, left, mask=inside_columns)
