"""The smallest eigenvalue of matrices whose eigenvalues are known by construction."""

import numpy as np
import pytest
import torch

from psfit.kernels import blocks
from psfit.kernels.eigenvalues import least_eigenvalue

DEVICE = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
LEAST = pytest.mark.parametrize("least", [1.0, 1e-6, 0.0])


@LEAST
@DEVICE
def test_an_inverse_by_blocks_does_not_overstate_it_either(least, device, monkeypatch):
    monkeypatch.setattr(blocks, "DEVICES", ["cpu", "cuda"])
    monkeypatch.setattr(blocks, "LARGE", 500)
    check(600, least, device)


@LEAST
@pytest.mark.parametrize("size", [40, 600])
@DEVICE
def test_a_smallest_eigenvalue_is_never_overstated(size, least, device):
    check(size, least, device)


def check(size, least, device):
    rng = np.random.default_rng(size)
    turn = np.linalg.qr(rng.normal(size=(size, size)))[0]
    values = np.concatenate([[least], rng.uniform(max(least, 1e-9), 10.0, size - 1)])
    M = torch.from_numpy((turn * values) @ turn.T)
    found = least_eigenvalue(((M + M.T) / 2).to(device))
    rounding = 1e-12 * size
    assert found <= least + rounding
    assert found >= 0.5 * least - rounding
