"""What is measured of an iteration, in one pass over its arrays."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psfit.kernels.cpu.compiler import compile_loops

Array = NDArray[np.float64]
Three = tuple[Tensor, Tensor, Tensor]


def summarise(
    parts: Three, z: Tensor, before: Tensor, tables: Three, columns: Three, tol: float, separate: bool
) -> tuple[Tensor, Tensor]:
    """Norms and counts for every problem; each output is one if they are `separate`, else all outputs are one.

    Parameters
    ----------
    parts : three of Tensor (N, n, c)
    z, before : Tensor (n, c)
    tables : three of Tensor (problems, size)
        The items of z; two arrays whose supports are compared.
    columns : three of Tensor (problems, 1)
        A counter, a residual, and what the residual is compared with.
    tol : float
    separate : bool

    Returns
    -------
    squares : Tensor (3, N, problems)
        Squared norms of the parts.
    numbers : Tensor (4, problems)
        The norms of ``z`` and ``z - before``, the nonzeros among the items, and the counter: one more if the supports
        are the same and the residual is at most `tol` times the other number, else zero.
    """
    arrays = [np.ascontiguousarray(a.numpy(), np.float64) for a in (*parts, z, before, *tables, *columns)]
    nodes, _, outputs = arrays[0].shape
    problems = outputs if separate else 1
    squares, numbers = np.empty((3, nodes, problems)), np.empty((4, problems))
    _summarise(*arrays, tol, squares, numbers)  # type: ignore[call-arg, arg-type, unused-ignore]
    return torch.from_numpy(squares).to(z.dtype), torch.from_numpy(numbers).to(z.dtype)


def compile_kernels() -> None:
    """Compile the kernel."""
    x = torch.ones(1, 1, 1, dtype=torch.float64)
    summarise((x, x, x), x[0], x[0], (x[0], x[0], x[0]), (x[0], x[0], x[0]), 1.0, True)


@compile_loops
def _summarise(
    first: Array,
    second: Array,
    third: Array,
    z: Array,
    before: Array,
    packed: Array,
    s: Array,
    s_before: Array,
    counter: Array,
    residual: Array,
    size: Array,
    tol: float,
    squares: Array,
    numbers: Array,
) -> None:
    """Every problem. There are no expressions with whole arrays: they take long to compile."""
    nodes, n, outputs = first.shape
    problems = squares.shape[2]
    for k in range(problems):
        low, high = (k, k + 1) if problems > 1 else (0, outputs)
        for i in range(nodes):
            one = two = three = 0.0
            for j in range(n):
                for q in range(low, high):
                    one += first[i, j, q] * first[i, j, q]
                    two += second[i, j, q] * second[i, j, q]
                    three += third[i, j, q] * third[i, j, q]
            squares[0, i, k], squares[1, i, k], squares[2, i, k] = one, two, three
        length = moved = 0.0
        for j in range(n):
            for q in range(low, high):
                length += z[j, q] * z[j, q]
                step = z[j, q] - before[j, q]
                moved += step * step
        nonzeros, same = 0, residual[k, 0] <= tol * size[k, 0]
        for j in range(packed.shape[1]):
            nonzeros += packed[k, j] != 0
            same &= (s[k, j] != 0) == (s_before[k, j] != 0)
        numbers[0, k], numbers[1, k], numbers[2, k] = math.sqrt(length), math.sqrt(moved), nonzeros
        numbers[3, k] = counter[k, 0] + 1 if same else 0.0
