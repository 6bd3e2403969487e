"""The compiled search between bounds: supports that no swap improves, judged by minima in the box."""

import itertools

import numpy as np
import pytest
import torch

from psfit.kernels.box_minimum import minimise_in_box
from psfit.kernels.cpu.bounded_swaps import Bounds, walk


def make_form(rng, n):
    A = rng.normal(size=(30, n)) @ (np.eye(n) + 0.5 * rng.normal(size=(n, n)))
    H, q = 2 * A.T @ A + 0.1 * np.eye(n), 2 * A.T @ (A @ rng.normal(size=n) + rng.normal(size=30))
    low, high = -0.5 * np.abs(rng.normal(size=n)), 0.5 * np.abs(rng.normal(size=n))
    if rng.random() < 0.6:
        low, high = (0 * low, high + np.inf) if rng.random() < 0.5 else (low - np.inf, 0 * high)
    return H, q, low, high


def value_of(form, items):
    H, q, low, high = form
    index = sorted(items)
    parts = H[np.ix_(index, index)], q[index], low[index], high[index]
    x = minimise_in_box(*(torch.from_numpy(np.ascontiguousarray(part)) for part in parts)).numpy()
    return x @ (0.5 * parts[0] @ x - parts[1])


@pytest.mark.parametrize("seed", range(30))
def test_no_swap_improves_the_end(seed):
    rng = np.random.default_rng(seed)
    n, limit = int(rng.integers(4, 9)), int(rng.integers(1, 4))
    form = make_form(rng, n)
    group = np.arange(n) // 2 if seed % 3 == 0 else np.full(n, -1)
    most = np.ones(n, np.int64)
    fixed = np.zeros(n, bool)
    fixed[rng.integers(n)] = seed % 2
    start = fixed & (rng.random() < 0.5)
    bounds = Bounds(form[2], form[3], group, most)
    member, swaps = walk(form[0], form[1], bounds, fixed, 1e-11, start, limit, 100, (1e-12, 0.0))
    assert swaps >= 0
    chosen = set(np.flatnonzero(member).tolist())
    assert (member & fixed == start).all()
    value = value_of(form, chosen)
    for out, into in itertools.product(chosen, set(range(n)) - chosen):
        other = chosen - {out} | {into}
        crowded = seed % 3 == 0 and len({group[item] for item in other}) < len(other)
        if not (fixed[out] or fixed[into] or crowded):
            assert value_of(form, other) >= value - 1e-8 * abs(value)
