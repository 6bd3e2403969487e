"""Standardised columns in half precision, weighted once for each of some outputs: one pass over the data."""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

TILE_ROWS, TILE_COLUMNS = 16, 256
# The largest number in half precision is 65,504.
LARGEST = 60_000.0


def halve(values: Tensor, shift: Tensor, factor: Tensor, roots: Tensor, constant: float, width: int) -> Tensor:
    """``roots_k (values - shift) factor`` for every k, clipped to the range of half precision.

    Parameters
    ----------
    values : Tensor (h, p), float32
    shift, factor : Tensor (p,), float32
        What to subtract from the columns, and the factors for the result.
    roots : Tensor (h, c), float32
        Factors of the rows.
    constant : float
        The entries of a last column, which is neither shifted nor scaled; none if it is zero.
    width : int
        The number of columns of the result; those behind the last one are zero.

    Returns
    -------
    Tensor (h, c, width), float16
    """
    (h, p), c = values.shape, roots.shape[1]
    result = torch.empty(h, c, width, dtype=torch.float16, device=values.device)
    with torch.cuda.device(values.device):
        _halve[triton.cdiv(h, TILE_ROWS), triton.cdiv(width, TILE_COLUMNS)](
            *(values, shift, factor, roots.contiguous(), result),
            *(constant, h, p, c, width, values.stride(0), values.stride(1)),
            LARGEST=LARGEST,
            TILE_ROWS=TILE_ROWS,
            TILE_COLUMNS=TILE_COLUMNS,
        )
    return result


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _halve(  # type: ignore[no-untyped-def]
    values,
    shift,
    factor,
    roots,
    result,
    constant,
    rows,
    columns,
    outputs,
    width,
    row_stride,
    column_stride,
    LARGEST: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
):
    """One tile for all outputs."""
    i = tl.program_id(0).to(tl.int64) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    j = tl.program_id(1).to(tl.int64) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    inside = (i < rows)[:, None] & (j < columns)[None, :]
    entries = tl.load(values + i[:, None] * row_stride + j[None, :] * column_stride, mask=inside, other=0.0)
    middle = tl.load(shift + j, mask=j < columns, other=0.0)
    scale = tl.load(factor + j, mask=j < columns, other=0.0)
    entries = (entries - middle[None, :]) * scale[None, :]
    entries += tl.where(j == columns, constant, 0.0)[None, :]
    written = (i < rows)[:, None] & (j < width)[None, :]
    for k in range(outputs):
        root = tl.load(roots + i * outputs + k, mask=i < rows, other=0.0)
        product = tl.minimum(tl.maximum(entries * root[:, None], -LARGEST), LARGEST)
        tl.store(result + (i[:, None] * outputs + k) * width + j[None, :], product.to(tl.float16), mask=written)
