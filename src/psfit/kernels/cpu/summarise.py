"""What is measured of an iteration, in one pass over its arrays."""

import numpy as np
import torch
from numba import njit  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.floating]
Three = tuple[Tensor, Tensor, Tensor]


def summarise(parts: Three, z: Tensor, before: Tensor, tables: Three, separate: bool) -> tuple[Tensor, Tensor]:
    """Norms and counts for every problem; each output is one if they are `separate`, else all outputs are one.

    Parameters
    ----------
    parts : three of Tensor (N, n, c)
    z, before : Tensor (n, c)
    tables : three of Tensor (problems, size)
        The items of z; two arrays whose supports are compared.
    separate : bool

    Returns
    -------
    squares : Tensor (3, N, problems)
        Squared norms of the parts.
    numbers : Tensor (4, problems)
        The norms of ``z`` and ``z - before``, the nonzeros among the items, and one if the supports are the same.
    """
    arrays = [array.contiguous().numpy() for array in (*parts, z, before, *tables)]
    nodes, _, outputs = arrays[0].shape
    problems = outputs if separate else 1
    squares = np.empty((3, nodes, problems), arrays[0].dtype)
    numbers = np.empty((4, problems), arrays[0].dtype)
    _add_squares(*arrays[:5], squares, numbers)
    _count(*arrays[5:], numbers)
    return torch.from_numpy(squares), torch.from_numpy(numbers)


def compile_kernels() -> None:
    """Compile the kernels for both precisions."""
    for dtype in (torch.float64, torch.float32):
        x = torch.ones(1, 1, 1, dtype=dtype)
        summarise((x, x, x), x[0], x[0], (x[0], x[0], x[0]), True)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _add_squares(
    first: Array, second: Array, third: Array, z: Array, before: Array, squares: Array, numbers: Array
) -> None:
    """Sums are in float64."""
    nodes, n, outputs = first.shape
    problems = squares.shape[2]
    sums = np.zeros((3, problems))
    for i in range(nodes):
        sums[:] = 0.0
        for j in range(n):
            for k in range(outputs):
                problem = k if problems > 1 else 0
                sums[0, problem] += first[i, j, k] ** 2
                sums[1, problem] += second[i, j, k] ** 2
                sums[2, problem] += third[i, j, k] ** 2
        squares[:, i] = sums
    sums[:] = 0.0
    for j in range(n):
        for k in range(outputs):
            problem = k if problems > 1 else 0
            sums[0, problem] += z[j, k] ** 2
            sums[1, problem] += (z[j, k] - before[j, k]) ** 2
    numbers[:2] = np.sqrt(sums[:2])


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _count(packed: Array, s: Array, before: Array, numbers: Array) -> None:
    problems, size = packed.shape
    for k in range(problems):
        nonzeros, same = 0, True
        for j in range(size):
            nonzeros += packed[k, j] != 0
            same &= (s[k, j] != 0) == (before[k, j] != 0)
        numbers[2, k] = nonzeros
        numbers[3, k] = same
