"""``A' R`` for a few columns, at the speed of reading ``A`` once, in the precision of ``R``."""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

# Rows of A times columns of R that a program keeps in registers, by precision.
HELD = {torch.float32: 64, torch.float64: 16}
TILE = 128
# This many programs keep a GPU busy; their sums are added in a fixed order at the end.
PROGRAMS = 4096


def backward(A: Tensor, R: Tensor, shift: Tensor | None = None) -> Tensor:
    """``(A - shift)' R (n, c)``.

    Parameters
    ----------
    A : Tensor (m, n), float32
    R : Tensor (m, c)
        In float32 or float64; all is computed in this precision.
    shift : Tensor (n,), optional
        What to subtract from the columns of `A`, in the precision of `R`.
    """
    (m, n), c = A.shape, R.shape[1]
    if not A.numel():
        return torch.zeros(n, c, dtype=R.dtype, device=A.device)
    R = R.T.contiguous()
    columns = triton.next_power_of_2(c)
    rows = max(1, HELD[R.dtype] // columns)
    across = triton.cdiv(n, TILE)
    parts = max(1, min(PROGRAMS // across, triton.cdiv(m, 8 * rows)))
    height = triton.cdiv(triton.cdiv(m, parts), rows) * rows
    partial = torch.empty(parts, c, n, dtype=R.dtype, device=A.device)
    with torch.cuda.device(A.device):
        _backward[across, parts](
            A,
            R,
            R if shift is None else shift,
            partial,
            m,
            n,
            c,
            height,
            A.stride(0),
            A.stride(1),
            SHIFTED=shift is not None,
            DOUBLE=R.dtype == torch.float64,
            COLUMNS=columns,
            ROWS=rows,
            TILE=TILE,
        )
    return partial.sum(dim=0).T


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _backward(  # type: ignore[no-untyped-def]
    A,
    R,
    shift,
    partial,
    m,
    n,
    c,
    height,
    row_stride,
    column_stride,
    SHIFTED: tl.constexpr,
    DOUBLE: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """The sums of some columns over some rows."""
    precision: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    part = tl.program_id(1).to(tl.int64)
    j = tl.program_id(0) * TILE + tl.arange(0, TILE)
    k = tl.arange(0, COLUMNS)
    middle = tl.zeros((TILE,), dtype=precision)
    if SHIFTED:
        middle = tl.load(shift + j, j < n, 0.0)
    total = tl.zeros((COLUMNS, ROWS, TILE), dtype=precision)
    for start in range(0, height, ROWS):
        i = part * height + start + tl.arange(0, ROWS)
        inside = (i < m)[:, None] & (j < n)[None, :]
        a = tl.load(A + i[:, None] * row_stride + j.to(tl.int64)[None, :] * column_stride, inside, 0.0).to(precision)
        if SHIFTED:
            a = tl.where(inside, a - middle[None, :], 0.0)
        r = tl.load(R + k[:, None] * m + i[None, :], (k < c)[:, None] & (i < m)[None, :], 0.0)
        total += a[None, :, :] * r[:, :, None]
    place = partial + (part * c + k[:, None]) * n + j[None, :]
    tl.store(place, tl.sum(total, axis=1), (k < c)[:, None] & (j < n)[None, :])
