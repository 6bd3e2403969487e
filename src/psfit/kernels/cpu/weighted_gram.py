"""The weighted Gram matrix of a few columns, without a weighted copy of the rows."""

import numpy as np

from psfit.kernels.cpu.compiler import compile_loops


@compile_loops
def add_weighted_gram(A: np.ndarray, weights: np.ndarray, total: np.ndarray) -> None:
    """Add ``A' diag(weights) A`` to ``total (n, n)``, for rows ``A (m, n)`` and ``weights (m,)``.

    Four rows at a time, so that each entry of the total is read and written once for them. With few columns the total
    stays in the first cache.
    """
    m, n = A.shape
    for r in range(0, m - 3, 4):
        for i in range(n):
            a = weights[r] * A[r, i]
            b = weights[r + 1] * A[r + 1, i]
            c = weights[r + 2] * A[r + 2, i]
            d = weights[r + 3] * A[r + 3, i]
            for j in range(i + 1):
                total[i, j] += (a * A[r, j] + b * A[r + 1, j]) + (c * A[r + 2, j] + d * A[r + 3, j])
    for r in range(m - m % 4, m):
        for i in range(n):
            a = weights[r] * A[r, i]
            for j in range(i + 1):
                total[i, j] += a * A[r, j]
    for i in range(n):
        for j in range(i):
            total[j, i] = total[i, j]


def compile_kernels() -> None:
    """Compile the function, or load it from the disk."""
    add_weighted_gram(np.ones((5, 2)), np.ones(5), np.zeros((2, 2)))
