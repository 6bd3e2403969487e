"""``A X`` for a few columns, at the speed of reading ``A`` once, in the precision of ``X``."""

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

# Sums that a program keeps in registers, and how many columns of A it reads at a time.
HELD = {torch.float32: 64, torch.float64: 16}
TILE = 128


def forward(A: Tensor, X: Tensor, shift: Tensor | None = None, sizes: bool = False) -> Tensor:
    """``(A - shift) X`` of a batch: ``(B, m, n), (B, n, c) -> (1, B, m, c)``.

    Parameters
    ----------
    A : Tensor (B, m, n), float32
    X : Tensor (B, n, c)
        In float32 or float64; all is computed in this precision.
    shift : Tensor (n,), optional
        What to subtract from the columns of `A`, in the precision of `X`.
    sizes : bool
        Also return ``|A - shift| |X|``, as a second product.
    """
    B, m, n = A.shape
    c = X.shape[2]
    if not A.numel():
        return torch.zeros(1 + sizes, B, m, c, dtype=X.dtype, device=A.device)
    X = X.mT.contiguous()
    out = torch.empty(1 + sizes, B, m, c, dtype=X.dtype, device=A.device)
    columns = triton.next_power_of_2(c)
    rows = max(1, HELD[X.dtype] // columns)
    with torch.cuda.device(A.device):
        _forward[triton.cdiv(m, rows), B](
            A,
            X,
            X if shift is None else shift,
            out,
            m,
            n,
            c,
            A.stride(0),
            A.stride(1),
            A.stride(2),
            out.stride(0),
            SHIFTED=shift is not None,
            SIZES=sizes,
            DOUBLE=X.dtype == torch.float64,
            COLUMNS=columns,
            ROWS=rows,
            TILE=TILE,
        )
    return out


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _forward(  # type: ignore[no-untyped-def]
    A,
    X,
    shift,
    out,
    m,
    n,
    c,
    batch_stride,
    row_stride,
    column_stride,
    out_stride,
    SHIFTED: tl.constexpr,
    SIZES: tl.constexpr,
    DOUBLE: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Some rows of one product. The sums of a tile are added only at the end, so that no step waits for a reduction."""
    precision: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    batch = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS, ROWS, TILE), dtype=precision)
    size = tl.zeros((COLUMNS, ROWS, TILE), dtype=precision)
    for start in range(0, n, TILE):
        j = start + tl.arange(0, TILE)
        inside = (i < m)[:, None] & (j < n)[None, :]
        a = tl.load(A + batch * batch_stride + i[:, None] * row_stride + j[None, :] * column_stride, inside, 0.0)
        a = a.to(precision)
        if SHIFTED:
            a = tl.where(inside, a - tl.load(shift + j, j < n, 0.0)[None, :], 0.0)
        x = tl.load(X + (batch * c + k[:, None]) * n + j[None, :], (k < c)[:, None] & (j < n)[None, :], 0.0)
        total += a[None, :, :] * x[:, None, :]
        if SIZES:
            size += tl.abs(a[None, :, :] * x[:, None, :])
    place = out + (batch * m + i[None, :]) * c + k[:, None]
    valid = (i < m)[None, :] & (k < c)[:, None]
    tl.store(place, tl.sum(total, axis=2), valid)
    if SIZES:
        tl.store(place + out_stride, tl.sum(size, axis=2), valid)
