"""Weighted Gram matrices on the half-precision units of a GPU, for models that need only a few digits.

The columns are rounded to half precision, the sums are made in single precision. So the result is nearly the exact Gram
matrix of columns that are off by a share of 5e-4, and as good as positive semidefinite.
"""

import torch
from torch import Tensor

from psfit.data.matrix import Affine, Dense, DesignMatrix
from psfit.kernels import kernel

# The first version of torch whose products of half-precision numbers can be stored in single precision.
LEAST_TORCH = (2, 8)
# Entries are scaled so that the largest possible one is about half of the largest number.
LARGEST = 3e4
# Widths are padded to whole vectors. From BLOCKS_FROM columns on, only blocks on and below the diagonal are computed.
VECTOR, BLOCKS_FROM, BLOCKS = 8, 2048, 4
# The bytes of the columns in half precision that exist at the same time.
MOST_BYTES = 4 << 30


def available(matrix: DesignMatrix) -> bool:
    """Whether Gram matrices of this matrix can be made in this way."""
    if not isinstance(matrix, Affine) or not isinstance(matrix.base, Dense) or matrix.device.type != "cuda":
        return False
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return (
        matrix.integers
        and matrix.dtype == torch.float32
        and version >= LEAST_TORCH
        and kernel("halve", matrix.device) is not None
    )


def half_gram(matrix: DesignMatrix, roots: Tensor) -> Tensor:
    """``B'B (c, n, c, n)`` in float32, where B holds the columns of ``diag(roots_k) A`` for all k of ``roots (m, c)``.

    The columns of A have norms of at most the root of the number of rows.
    """
    n, c = matrix.shape[1], roots.shape[1]
    width = -(-n // VECTOR) * VECTOR
    return _multiply(matrix, roots, width).view(c, width, c, width)[:, :n, :, :n]


def _multiply(matrix: DesignMatrix, roots: Tensor, width: int, picked: Tensor | None = None) -> Tensor:
    """``B'B`` for all columns, each ``A_k`` padded by zeros to `width`; or for those with the numbers `picked`."""
    assert isinstance(matrix, Affine)
    m, c = matrix.shape[0], roots.shape[1]
    # No entry is larger than this, unless samples have very different weights; larger ones are clipped.
    unit = LARGEST / (m**0.5 * roots.amax().clamp(min=torch.finfo(torch.float32).tiny))
    scaled, halve = (roots * unit).float(), kernel("halve", matrix.device)
    shift, factor = matrix.shift.float(), (1 / matrix.scale).float()
    size = c * width if picked is None else len(picked)
    total = torch.zeros(size, size, device=matrix.device)
    height = max(1, MOST_BYTES // (2 * c * width))
    for start in range(0, m, height):
        rows = slice(start, min(start + height, m))
        values = matrix.base.rows(rows.start, rows.stop).chunk(0, rows.stop - rows.start, torch.float32)
        columns = halve(values, shift, factor, scaled[rows], matrix.constant, width).view(len(values), -1)
        _add_products(columns if picked is None else columns[:, picked], total)
    return total / unit.float().square()


def half_hessian(matrix: DesignMatrix, diagonal: Tensor, coupling: Tensor | None = None) -> Tensor:
    """``sum_i a_i a_i' (diag(d_i) - u_i u_i')`` as ``(n, c, n, c)`` in float64 over the rows a of the matrix.

    d are the rows of `diagonal` ``(m, c)`` and u those of `coupling`, if there is one.
    """
    n, c = matrix.shape[1], diagonal.shape[1]
    H = torch.zeros(n, c, n, c, dtype=torch.float64, device=matrix.device)
    if coupling is not None:
        H -= half_gram(matrix, coupling).permute(1, 0, 3, 2)
    for k in range(c):
        H[:, k, :, k] += half_gram(matrix, diagonal[:, k : k + 1].sqrt())[0, :, 0]
    return H


def half_part_of_hessian(matrix: DesignMatrix, diagonal: Tensor, coupling: Tensor, picked: Tensor) -> Tensor:
    """Some rows and columns ``(k, k)`` of `half_hessian`, by their numbers `picked`.

    Column j and output q have the number ``j c + q``.
    """
    c = diagonal.shape[1]
    width = -(-matrix.shape[1] // VECTOR) * VECTOR
    column, output = picked // c, picked % c
    # Some column is repeated until there are whole vectors.
    places = torch.nn.functional.pad(output * width + column, (0, -len(picked) % VECTOR))
    H = -_multiply(matrix, coupling, width, places)[: len(picked), : len(picked)].double()
    for k in range(c):
        own = (output == k).nonzero().flatten()
        G = half_gram(matrix, diagonal[:, k : k + 1].sqrt())[0, :, 0]
        H[own.unsqueeze(1), own] += G[column[own].unsqueeze(1), column[own]]
    return H


def half_joint_hessian(matrix: DesignMatrix, weight: Tensor, share: Tensor) -> Tensor:
    """``sum_i w_i a_i a_i' (diag(u_i) - u_i u_i')`` as ``(n, c, n, c)`` in float64, for rows u of `share` with sum one.

    The form does not change if all outputs move together. So the blocks on the diagonal follow from the others, and
    what is lost in rounding is a share of the differences, however close to one a number u is.
    """
    c = share.shape[1]
    H = half_gram(matrix, weight.sqrt() * share).permute(1, 0, 3, 2)
    H = (-0.5 * (H + H.permute(2, 1, 0, 3))).contiguous()
    for k in range(c):
        H[:, k, :, k] = 0.0
        H[:, k, :, k] = -H[:, k].sum(dim=2)
    return H.double()


def _add_products(columns: Tensor, total: Tensor) -> None:
    """Add the Gram matrix of the columns."""
    n = columns.shape[1]
    if n < BLOCKS_FROM:
        total += torch.mm(columns.T, columns, out_dtype=torch.float32)
        return
    step = -(-n // (BLOCKS * VECTOR)) * VECTOR
    for low in range(0, n, step):
        high = min(low + step, n)
        lower = torch.mm(columns[:, low:high].T, columns[:, :high], out_dtype=torch.float32)
        total[low:high, :high] += lower
        total[:low, low:high] += lower[:, :low].T
