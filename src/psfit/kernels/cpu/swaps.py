"""Sums of entries, compiled: a stand-in for the swap search."""

import numpy as np
from numba import njit


@njit(cache=True)
def add_up(values: np.ndarray) -> float:
    """The sum of the entries."""
    total = 0.0
    for value in values:
        total += value
    return total


def compile_kernels() -> None:
    """Call every compiled function once, with tiny arrays."""
    add_up(np.zeros(1))
