"""Minima of small quadratic functions in a box, against SciPy's bounded least squares."""

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear

from psfit.kernels.box_minimum import minimise_in_box


@pytest.mark.parametrize("seed", range(20))
def test_the_minimum_is_that_of_bounded_least_squares(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    A = rng.normal(size=(40, n)) @ (np.eye(n) + rng.normal(size=(n, n)))
    y = A @ rng.normal(size=n) + rng.normal(size=40)
    low, high = -np.abs(rng.normal(size=n)) * 0.3, np.abs(rng.normal(size=n)) * 0.3
    low[rng.random(n) < 0.3], high[rng.random(n) < 0.3] = -np.inf, np.inf
    low[rng.random(n) < 0.3] = 0.0
    H, q = A.T @ A, A.T @ y
    found = minimise_in_box(*(torch.from_numpy(part) for part in (H, q, low, high))).numpy()
    assert (found >= low).all()
    assert (found <= high).all()
    expected = lsq_linear(A, y, (low, high), method="bvls", tol=1e-14).cost
    assert 0.5 * np.square(A @ found - y).sum() <= expected * (1 + 1e-9)
