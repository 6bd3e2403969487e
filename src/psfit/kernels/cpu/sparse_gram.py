"""The weighted Gram matrix of sparse rows, by plain loops over the pairs of entries of every row."""

from functools import partial
from itertools import pairwise

import numpy as np

from psfit.kernels.cpu.compiler import compile_loops
from psfit.kernels.cpu.threads import run_parts

# Threads share a product in so many ranges of rows, if each of them has at least so many operations. The ranges do not
# depend on the number of threads, so that the result does not.
RANGES = 4
LEAST_WORK = 1 << 21


def add_up_gram(
    starts: np.ndarray, places: np.ndarray, values: np.ndarray, weights: np.ndarray, columns: int
) -> np.ndarray:
    """``S' diag(weights) S (columns, columns)`` in float64 for compressed rows S.

    Those of row i are the entries ``starts[i]`` to ``starts[i + 1] - 1``: their columns are ``places`` in rising order.
    """
    rows = len(starts) - 1
    # About the pairs of all rows, and what it costs to add up the parts.
    work, apart = len(values) ** 2 / (2 * max(rows, 1)), columns**2
    count = RANGES if work > RANGES * max(LEAST_WORK, 4 * apart) else 1
    bounds = list(pairwise(rows * k // count for k in range(count + 1)))
    totals = np.zeros((count, columns, columns))
    parts = [
        partial(_add_pairs, starts, places, values, weights, total, *pair)
        for total, pair in zip(totals, bounds, strict=True)
    ]
    run_parts(parts)
    lower = totals[0] if count == 1 else totals.sum(axis=0)
    return np.asarray(lower + np.tril(lower, -1).T)


@compile_loops
def _add_pairs(
    starts: np.ndarray,
    places: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray,
    total: np.ndarray,
    first: int,
    last: int,
) -> None:
    """Add the products of all pairs of entries in the rows `first` to `last` - 1, on and below the diagonal.

    Places are numbers without a sign: others would be tested for whether they count from the end, in half of the time.
    """
    flat, width, one = total.ravel(), np.uint64(total.shape[1]), np.uint64(1)
    for i in range(first, last):
        begin, end = np.uint64(starts[i]), np.uint64(starts[i + 1])
        for e in range(begin, end):
            scaled, row = weights[i] * values[e], width * np.uint64(places[e])
            for f in range(begin, e + one):
                flat[row + np.uint64(places[f])] += scaled * values[f]


def compile_kernels() -> None:
    """Compile the function, or load it from the disk."""
    add_up_gram(np.array([0, 1], np.int32), np.zeros(1, np.int32), np.ones(1), np.ones(1), 1)
