"""Second moments on the integer units of a GPU, which multiply about ten times faster than its float64 units.

Every column of a strip is divided by its largest magnitude and cut into two signed digits,

    a = s (q1 + q2 / B) + rest,      |q| <= 127,  B = 254,  |rest| <= s / (2 B).

Products of digits are exact in 8-bit multiplications with 32-bit sums. So the result is the exact Gram matrix of the
rounded columns. The distance to the true columns is measured, too: rounding changes a singular value of the matrix by
no more than the norm of all rests together.
"""

from itertools import pairwise

import torch
from torch import Tensor

from psfit.kernels import kernel

LARGEST, BASE = 127, 254
# With fewer columns, the products are not worth their overhead.
LEAST_COLUMNS = 512
# 127^2 times this many rows fits into 32 bits.
MOST_ROWS = 1 << 17
# A symmetric product is computed in blocks; those above the diagonal are left out. Widths are multiples of VECTOR.
BLOCKS, VECTOR = 4, 32
# The oldest GPUs with 8-bit tensor cores.
LEAST_CAPABILITY = (7, 5)


def available(columns: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this device can compute moments of such data in integers."""
    if device.type != "cuda" or dtype != torch.float32 or columns < LEAST_COLUMNS or not hasattr(torch, "_int_mm"):
        return False
    return torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY and kernel("cut", device) is not None


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
    rests : Tensor (p,)
        The weighted squares of the rounding errors of each column of ``D``.
    """
    p = values.shape[1]
    gram = torch.zeros(p, p, dtype=torch.float64, device=values.device)
    sums, rests = gram.new_zeros(p, right.shape[1]), gram.new_zeros(p)
    root, cut = weight.sqrt(), kernel("cut", values.device)
    for start in range(0, len(values), MOST_ROWS):
        rows = slice(start, start + MOST_ROWS)
        part = values[rows]
        least, most = part.aminmax(dim=0)
        size = torch.maximum(most.double() - about, about - least.double()) * root[rows].max()
        scale = torch.where(size > 0, size / LARGEST, 1.0)
        digits, some, rest = cut(part, about, root[rows], 1 / scale, right[rows], BASE)
        gram += _products(digits)[:p, :p].mul_(scale).mul_(scale.unsqueeze(1))
        sums += some
        rests += rest * scale.square()
    return gram, sums, rests


def _products(digits: Tensor) -> Tensor:
    """The Gram matrix ``(n, n)`` of numbers whose digits are ``(2, n, rows)``."""
    first, second = digits
    n = first.shape[0]
    total = torch.empty(n, n, dtype=torch.float64, device=digits.device)
    width = -(-n // (BLOCKS * VECTOR)) * VECTOR
    for low, high in pairwise([*range(0, n, width), n]):
        lower = torch._int_mm(first[low:high], first[:high].T).double()
        lower.add_(torch._int_mm(second[low:high], second[:high].T), alpha=BASE**-2)
        total[low:high, :high] = lower
        total[:low, low:high] = lower[:, :low].T
    mixed = torch._int_mm(first, second.T)
    return total.add_(mixed, alpha=1 / BASE).add_(mixed.T, alpha=1 / BASE)
