"""The bilinear step of each problem in plain loops: no sort, and no temporary arrays but one."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psfit.kernels.cpu.compiler import compile_inner_loops, compile_loops
from psfit.kernels.cpu.selection import move_largest_first

Array = NDArray[np.float64]


def sparsify(center: Tensor, s: Tensor, v: Tensor, kappa: Tensor, ratio: Tensor) -> tuple[Tensor, ...]:
    """The new ``z, s (problems, size)`` and ``t, v, residual (problems, 1)``; computed in float64."""
    arrays = [np.ascontiguousarray(array.numpy(), np.float64) for array in (center, s, v, ratio)]
    limits = np.ascontiguousarray(kappa.numpy(), np.int64)
    tables, numbers = np.empty((2, *center.shape)), np.empty((3, len(center), 1))
    _sparsify(*arrays, limits, tables, numbers)  # type: ignore[call-arg, arg-type, unused-ignore]
    z, signs = torch.from_numpy(tables).to(s.dtype).unbind()
    t, v, residual = torch.from_numpy(numbers).to(s.dtype).unbind()
    return z, signs, t, v, residual


def compile_kernels() -> None:
    """Compile the kernel."""
    one = torch.ones(1, 1, dtype=torch.float64)
    sparsify(one, one, one, one, one)


@compile_loops
def _sparsify(
    center: Array, s: Array, v: Array, ratio: Array, kappa: NDArray[np.int64], tables: Array, numbers: Array
) -> None:
    """Every problem, as in `admm.bilinear`. There are no expressions with whole arrays: they take long to compile."""
    problems, size = center.shape
    magnitudes = np.empty(size)
    for k in range(problems):
        tau = _threshold(center, s, k, v[k, 0], ratio[k, 0])
        if not math.isfinite(tau):
            # What is not finite must be seen, and the selection below needs numbers that can be ordered.
            for j in range(size):
                tables[0, k, j], tables[1, k, j] = math.nan, 0.0
            numbers[0, k, 0] = numbers[1, k, 0] = numbers[2, k, 0] = math.nan
            continue
        length = reach = 0.0
        for j in range(size):
            sign = (center[k, j] > 0) - (center[k, j] < 0)
            entry = sign * max(abs(center[k, j]) - tau * (1 - s[k, j] * sign), 0.0)
            tables[0, k, j], magnitudes[j] = entry, abs(entry)
            length += abs(entry)
            reach += s[k, j] * entry
        t = max(length, reach + v[k, 0])
        least = _select(magnitudes, kappa[k, 0])
        ties, reach = kappa[k, 0], 0.0
        for j in range(size):
            ties -= abs(tables[0, k, j]) > least
        for j in range(size):
            entry, chosen = tables[0, k, j], abs(tables[0, k, j]) > least
            if abs(entry) == least and ties > 0:
                chosen, ties = True, ties - 1
            tables[1, k, j] = (entry > 0) - (entry < 0) if chosen else 0
            reach += tables[1, k, j] * entry
        share = min(max((t - v[k, 0]) / reach, -1.0), 1.0) if reach > 0 else 1.0
        for j in range(size):
            tables[1, k, j] *= share
        numbers[0, k, 0] = t
        numbers[1, k, 0] = v[k, 0] + (share * reach - t)
        numbers[2, k, 0] = abs(share * reach - t)


@compile_inner_loops
def _threshold(center: Array, s: Array, k: int, v: float, ratio: float) -> float:
    """The root of `admm.bilinear.threshold` for row k by Newton's method; not finite if some number is not.

    The function is concave and increasing: steps from the left stay on the left, and the active set only shrinks.
    """
    tau, before = 0.0, center.shape[1] + 1
    while True:
        first, second, count = 0.0, 0.0, 0
        for j in range(center.shape[1]):
            c = center[k, j]
            w = 1 - s[k, j] * ((c > 0) - (c < 0))
            # An entry that is not a number is active, so that it reaches the sums.
            if not abs(c) <= tau * w and w != 0:
                first += w * abs(c)
                second += w * w
                count += 1
        if tau > 0 and count >= before:
            break
        before = count
        following = ratio * (first - v) / (1 + ratio * second)
        if not following > tau:
            return following if math.isnan(following) else tau
        tau = following
    return tau


@compile_inner_loops
def _select(values: Array, count: int) -> float:
    """The number at place `count` in falling order; changes the order of `values`.

    If there are fewer numbers, it is below all of them, and above them if `count` is zero.
    """
    if count > len(values):
        return -1.0
    if count < 1:
        return math.inf
    move_largest_first(values, count)
    return values[count - 1]
