"""Columns that have the same number in most samples, as those of categories and rare words do, also standardised.

Such a matrix is one row that all samples share and, for every sample, the few entries that deviate from it. Products
with these entries cost much less than those with all of them.
"""

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from psfit.data.csr import Csr
from psfit.data.matrix import Dense, DesignMatrix
from psfit.data.sparse import Sparse

# With fewer entries all products are quick. With more, what is needed meanwhile may not fit beside them.
FEWEST_ENTRIES, MOST_ENTRIES = 1 << 16, 1 << 27
# The most deviating entries, as a share of all: then every product costs less than that of the dense matrix.
MOST_DEVIATING = 0.2
# So many samples, evenly spread, tell what most of them have. Before that a few samples of some columns tell whether it
# is worth a look.
SAMPLES = 255
FEW, SOME = 9, 256


def separate_deviations(matrix: DesignMatrix, shift: Tensor, most: Tensor) -> tuple[DesignMatrix, Tensor]:
    """The matrix as sparse deviations, if they are few, and the part of ``shift (p,)`` that is not subtracted in it.

    In no column that part may be larger than ``most (p,)``, or products would lose digits.
    """
    found = find_deviations(matrix.values) if isinstance(matrix, Dense) else None
    if found is None:
        return matrix, shift
    rows, common = found
    left = shift - common
    if bool((left.abs() > most).any()):
        return matrix, shift
    starts, places, entries = (torch.from_numpy(array) for array in (rows.indptr, rows.indices, rows.data))
    return Sparse(Csr.of(starts, places, entries, (rows.shape[0], rows.shape[1]))), left


def find_deviations(values: Tensor) -> tuple[scipy.sparse.csr_matrix, Tensor] | None:
    """The entries of ``values (m, p)`` less a row ``(p,)`` that most samples have; None if too many entries deviate.

    Also None if differences would be rounded in single precision: proofs count the rounding of double precision.
    """
    if values.device.type != "cpu" or not FEWEST_ENTRIES <= values.numel() <= MOST_ENTRIES:
        return None
    table = values.numpy()
    few = table[_spread(len(table), FEW)][:, _spread(table.shape[1], SOME)]
    if np.mean(few != _most_common(few)) > 2 * MOST_DEVIATING:
        return None
    some = table[_spread(len(table), SAMPLES)]
    row = _most_common(some)
    if np.mean(some != row) > 1.5 * MOST_DEVIATING:
        return None
    deviating = table != row
    if np.count_nonzero(deviating) > MOST_DEVIATING * table.size:
        return None
    rows = _gather(table, deviating, row)
    return None if rows is None else (rows, torch.from_numpy(row))


def _spread(size: int, count: int) -> np.ndarray:
    """At most so many numbers below `size`, evenly spread."""
    return np.unique(np.linspace(0, size - 1, count).astype(int))


def _most_common(some: np.ndarray) -> np.ndarray:
    """The median of every column: a number that more than half of the samples have."""
    return np.asarray(np.quantile(some, 0.5, axis=0, method="lower"), some.dtype)


def _gather(table: np.ndarray, deviating: np.ndarray, row: np.ndarray) -> scipy.sparse.csr_matrix | None:
    """The entries of a table where they deviate from a row, in the order in which they lie in memory."""
    by_columns = deviating.flags.f_contiguous
    flat = deviating.T.ravel() if by_columns else deviating.ravel()
    outer, inner = np.divmod(np.flatnonzero(flat), deviating.shape[0] if by_columns else deviating.shape[1])
    starts = np.searchsorted(outer, np.arange((deviating.shape[1] if by_columns else deviating.shape[0]) + 1))
    rows, columns = (inner, outer) if by_columns else (outer, inner)
    differences = table[rows, columns].astype(float) - row[columns]
    entries = differences.astype(table.dtype)
    if not np.array_equal(entries, differences):
        return None
    kind = scipy.sparse.csc_matrix if by_columns else scipy.sparse.csr_matrix
    return kind((entries, inner, starts), shape=table.shape).tocsr()
