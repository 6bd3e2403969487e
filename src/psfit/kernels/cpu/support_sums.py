"""Products with the columns of many supports at once, as plain loops: predictors and gradients.

A support is a row of places in a table with one row for each column of the data. For small data these loops take less
time than the calls of a library for the columns of all supports together.
"""

import numpy as np

from psfit.kernels.cpu.compiler import compile_sums

# Samples are taken in blocks, so that their predictors stay in the first cache.
BLOCK = 512


def predict(table: np.ndarray, places: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Predictors ``(B, m)`` of the variables ``x (B, d)`` in ``places (B, d)`` of ``table (r, m)``."""
    eta = np.empty((len(x), table.shape[1]))
    _predict(table, places, x, eta)
    return eta


def sum_columns(table: np.ndarray, places: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """``A_S' slope (B, d)`` for the columns S of each support and its ``slopes (B, m)``."""
    sums = np.empty(places.shape)
    _sum_columns(table, places, slopes, sums)
    return sums


@compile_sums
def _predict(table: np.ndarray, places: np.ndarray, x: np.ndarray, eta: np.ndarray) -> None:
    """Two columns at a time, so that predictors are read and written half as often."""
    (rows, samples), d = eta.shape, places.shape[1]
    for row in range(rows):
        for first in range(0, samples, BLOCK):
            last = min(first + BLOCK, samples)
            for i in range(first, last):
                eta[row, i] = 0.0
            for a in range(0, d - 1, 2):
                p, q, u, v = places[row, a], places[row, a + 1], x[row, a], x[row, a + 1]
                for i in range(first, last):
                    eta[row, i] += u * table[p, i] + v * table[q, i]
            if d % 2:
                p, u = places[row, d - 1], x[row, d - 1]
                for i in range(first, last):
                    eta[row, i] += u * table[p, i]


@compile_sums
def _sum_columns(table: np.ndarray, places: np.ndarray, slopes: np.ndarray, sums: np.ndarray) -> None:
    """Two columns at a time, so that slopes are read half as often."""
    rows, d = places.shape
    for row in range(rows):
        for a in range(0, d - 1, 2):
            p, q, u, v = places[row, a], places[row, a + 1], 0.0, 0.0
            for i in range(table.shape[1]):
                u += slopes[row, i] * table[p, i]
                v += slopes[row, i] * table[q, i]
            sums[row, a], sums[row, a + 1] = u, v
        if d % 2:
            p, u = places[row, d - 1], 0.0
            for i in range(table.shape[1]):
                u += slopes[row, i] * table[p, i]
            sums[row, d - 1] = u


def compile_kernels() -> None:
    """Compile the functions, or load them from the disk."""
    table, places, x = np.ones((2, 3)), np.zeros((1, 1), np.int64), np.ones((1, 1))
    sum_columns(table, places, predict(table, places, x))
