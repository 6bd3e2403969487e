"""The bilinear step of each problem in plain loops: no sort, and no temporary arrays but one."""

import math

import numpy as np
import torch
from numba import njit  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.floating]


def sparsify(center: Tensor, s: Tensor, v: Tensor, kappa: Tensor, ratio: Tensor) -> tuple[Tensor, ...]:
    """The new ``z, s (problems, size)`` and ``t, v, residual (problems, 1)``; float32 or float64."""
    z, signs = np.empty(center.shape, s.numpy().dtype), np.empty(center.shape, s.numpy().dtype)
    numbers = np.empty((3, len(z), 1), z.dtype)
    _sparsify(
        center.contiguous().numpy(),
        s.contiguous().numpy(),
        v.contiguous().numpy(),
        kappa.contiguous().numpy(),
        ratio.double().contiguous().numpy(),
        z,
        signs,
        numbers,
    )
    t, v, residual = torch.from_numpy(numbers).unbind()
    return torch.from_numpy(z), torch.from_numpy(signs), t, v, residual


def compile_kernels() -> None:
    """Compile the kernel for both precisions."""
    for dtype in (torch.float64, torch.float32):
        one = torch.ones(1, 1, dtype=dtype)
        sparsify(one, one, one, torch.ones(1, 1, dtype=torch.int64), one)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _sparsify(
    center: Array, s: Array, v: Array, kappa: NDArray[np.int64], ratio: Array, z: Array, signs: Array, numbers: Array
) -> None:
    """Every problem, as in `admm.bilinear`; sums are in float64."""
    problems, size = center.shape
    magnitudes = np.empty(size, center.dtype)
    for k in range(problems):
        c, old, new, fresh = center[k], s[k], z[k], signs[k]
        tau = _threshold(c, old, v[k, 0], ratio[k, 0])
        if not math.isfinite(tau):
            # What is not finite must be seen, and the search below needs numbers that can be ordered.
            new[:], fresh[:], numbers[:, k, 0] = math.nan, 0.0, math.nan
            continue
        length = reach = 0.0
        for j in range(size):
            w = 1 - old[j] * np.sign(c[j])
            magnitudes[j] = max(abs(c[j]) - tau * w, 0.0)
            new[j] = math.copysign(magnitudes[j], c[j])
            length += magnitudes[j]
            reach += old[j] * new[j]
        t = max(length, reach + v[k, 0])
        limit = kappa[k, 0]
        least = _select(magnitudes, limit)
        ties = limit
        for j in range(size):
            ties -= abs(new[j]) > least
        reach = 0.0
        for j in range(size):
            chosen = abs(new[j]) > least
            if abs(new[j]) == least and ties > 0:
                chosen, ties = True, ties - 1
            fresh[j] = np.sign(new[j]) if chosen else 0.0
            reach += fresh[j] * new[j]
        share = min(max((t - v[k, 0]) / reach, -1.0), 1.0) if reach > 0 else 1.0
        if share != 1.0:
            reach = 0.0
            for j in range(size):
                fresh[j] *= share
                reach += fresh[j] * new[j]
        numbers[0, k, 0] = t
        numbers[1, k, 0] = v[k, 0] + (reach - t)
        numbers[2, k, 0] = abs(reach - t)


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _threshold(c: Array, s: Array, v: float, ratio: float) -> float:
    """The root of `admm.bilinear.threshold` by Newton's method; not finite if some number is not.

    The function is concave and increasing: steps from the left stay on the left, and the active set only shrinks.
    """
    tau, before = 0.0, len(c) + 1
    while True:
        first, second, count = 0.0, 0.0, 0
        for j in range(len(c)):
            w = 1 - s[j] * np.sign(c[j])
            # An entry that is not a number is active, so that it reaches the sums.
            if not abs(c[j]) <= tau * w and w != 0:
                first += w * abs(c[j])
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


@njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _select(values: Array, count: int) -> float:
    """The number at place `count` in falling order; changes the order of `values`.

    If there are fewer numbers, it is below all of them, and above them if `count` is zero.
    """
    if count > len(values):
        return -1.0
    if count < 1:
        return math.inf
    place, low, high = count - 1, 0, len(values) - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return values[place]
