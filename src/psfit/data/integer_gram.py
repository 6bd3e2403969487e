"""Second moments on the integer units of a GPU, which multiply an order of magnitude faster than its float64 ones.

Every column of a strip is divided by its largest magnitude and cut into three signed digits,

    a = s (q1 + q2 / B + q3 / B^2 + rest),      |q| <= 127,  B = 254,  |rest| <= 1 / (2 B^2),

so that products of digits are exact in 8-bit multiplications with 32-bit sums. The products that carry weight down to
``B^-2`` are added up in float64; what is left out is known in advance, and comes back as a bound on the error.
"""

from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

LARGEST, BASE = 127, 254
DIGITS = 3
# Products are worth their overhead from so many columns on.
LEAST_COLUMNS = 512
# 127^2 times this many rows still fits into 32 bits.
MOST_ROWS = 1 << 17
# The units want rows of whole vectors, and columns likewise.
ROW_MULTIPLE, COLUMN_MULTIPLE = 128, 32
# Symmetric products are made by blocks of which those above the diagonal are left out.
BLOCKS = 4
TILE_ROWS, TILE_COLUMNS = 128, 32
# The oldest GPUs with 8-bit tensor cores.
LEAST_CAPABILITY = (7, 5)


def available(columns: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether moments of such data can be made here."""
    if device.type != "cuda" or dtype != torch.float32 or columns < LEAST_COLUMNS or not hasattr(torch, "_int_mm"):
        return False
    return torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY and _cutter() is not None


def integer_moments(values: Tensor, about: Tensor, weight: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Moments of ``D = values - about`` for rows ``values (h, p)``.

    Parameters
    ----------
    values : Tensor (h, p), float32
    about : Tensor (p,), float64
    weight : Tensor (h, 1), float64
    right : Tensor (h, r), float64

    Returns
    -------
    gram : Tensor (p, p)
        ``D' diag(weight) D``.
    sums : Tensor (p, r)
        ``D' right``, in plain float64.
    error : Tensor (p,)
        Entry (i, j) of `gram` is off by at most ``sqrt(error_i error_j)``.
    """
    p = values.shape[1]
    gram = torch.zeros(p, p, dtype=torch.float64, device=values.device)
    sums, error = gram.new_zeros(p, right.shape[1]), gram.new_zeros(p)
    root = weight.sqrt()
    for start in range(0, len(values), MOST_ROWS):
        rows = slice(start, start + MOST_ROWS)
        part = values[rows]
        least, most = part.aminmax(dim=0)
        size = torch.maximum(most.double() - about, about - least.double()) * root[rows].max()
        scale = torch.where(size > 0, size / LARGEST, 1.0)
        digits, some = _cut(part, about, root[rows], 1 / scale, right[rows])
        gram += _products(digits)[:p, :p].mul_(scale).mul_(scale.unsqueeze(1))
        sums += some
        error += _left_out(len(part)) * torch.where(size > 0, scale, 0.0).square()
    return gram, sums, error


def _left_out(rows: int) -> float:
    """The most that the products left out can add up to, in units of the scales."""
    digit = LARGEST + 1.0
    rest = 1.0 / BASE**2
    return rows * (2 * digit**2 / BASE**3 + digit**2 / BASE**4 + digit * rest + rest**2)


def _products(digits: Tensor) -> Tensor:
    """The Gram matrix ``(n, n)`` of numbers whose digits are ``(3, n, rows)``."""
    first, second, third = digits
    n = first.shape[0]
    total = torch.empty(n, n, dtype=torch.float64, device=digits.device)
    width = -(-n // (BLOCKS * COLUMN_MULTIPLE)) * COLUMN_MULTIPLE
    for low, high in pairwise([*range(0, n, width), n]):
        lower = torch._int_mm(first[low:high], first[:high].T).double()
        lower.add_(torch._int_mm(second[low:high], second[:high].T), alpha=BASE**-2)
        total[low:high, :high] = lower
        total[:low, low:high] = lower[:, :low].T
    for other, unit in ((second, BASE**-1), (third, BASE**-2)):
        mixed = torch._int_mm(first, other.T)
        total.add_(mixed, alpha=unit).add_(mixed.T, alpha=unit)
    return total


def _cut(values: Tensor, about: Tensor, root: Tensor, inverse: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Digits ``(3, n, rows)``, padded with zeros to whole vectors, and the sums ``(p, r)``; one pass over the rows."""
    (h, p), r = values.shape, right.shape[1]
    height = -(-h // ROW_MULTIPLE) * ROW_MULTIPLE
    width = -(-p // COLUMN_MULTIPLE) * COLUMN_MULTIPLE
    digits = torch.empty(DIGITS, width, height, dtype=torch.int8, device=values.device)
    tiles = height // TILE_ROWS, width // TILE_COLUMNS
    partial = torch.empty(tiles[0], r, p, dtype=torch.float64, device=values.device)
    with torch.cuda.device(values.device):
        _cutter()[tiles](
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
            BASE=BASE,
            RIGHT=r,
            TILE_ROWS=TILE_ROWS,
            TILE_COLUMNS=TILE_COLUMNS,
        )
    return digits, partial.sum(dim=0).T


@cache
def _cutter() -> Any:
    """The kernel, or None where there is no Triton; it comes with the CUDA build of torch."""
    try:
        from psfit.data.cut_kernel import cut
    except ImportError:
        return None
    return cut
