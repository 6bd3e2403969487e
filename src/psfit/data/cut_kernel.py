"""The Triton kernel of `integer_gram`: rows of float32 in, digits of their columns and sums over the rows out."""

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def cut(  # type: ignore[no-untyped-def]
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
    """One tile: subtract `about`, add up against each of the RIGHT vectors, weigh and scale, cut into three digits.

    Digits are written column by column, since the integer units want the summed index to be contiguous.
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
        tl.store(partial + (tile * RIGHT + k) * columns + j, total, mask=inside_columns)
    weight = tl.load(root + i, mask=inside_rows, other=0.0)
    scale = tl.load(inverse + j, mask=inside_columns, other=0.0)
    rest = apart * weight[:, None] * scale[None, :]
    place = digits + j[None, :] * height + i[:, None]
    for k in tl.static_range(3):
        digit = tl.floor(rest + 0.5)
        tl.store(place + k * width * height, digit.to(tl.int8))
        rest = (rest - digit) * BASE
