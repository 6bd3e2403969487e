"""The smallest eigenvalue of matrices whose eigenvalues are known by construction."""

import numpy as np
import pytest
import torch

from psfit.kernels.eigenvalues import least_eigenvalue


@pytest.mark.parametrize("least", [1.0, 1e-6, 0.0])
@pytest.mark.parametrize("size", [40, 600])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_smallest_eigenvalue_is_never_overstated(size, least, device):
    rng = np.random.default_rng(size)
    turn = np.linalg.qr(rng.normal(size=(size, size)))[0]
    values = np.concatenate([[least], rng.uniform(max(least, 1e-9), 10.0, size - 1)])
    M = torch.from_numpy((turn * values) @ turn.T)
    found = least_eigenvalue(((M + M.T) / 2).to(device))
    rounding = 1e-12 * size
    assert found <= least + rounding
    assert found >= 0.5 * least - rounding
