"""Inverses by products of blocks, against NumPy; on a CPU, where the library is used otherwise."""

import numpy as np
import pytest
import torch

from psfit.kernels import blocks


@pytest.fixture(autouse=True)
def use_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "DEVICES", ["cpu"])


def definite(*shape, dtype=torch.float64):
    """Gram matrices ``(..., n, n)`` of AR(1) columns with a small ridge."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(*shape[:-1], 2 * shape[-1], shape[-1]))
    for j in range(1, shape[-1]):
        A[..., j] += 0.8 * A[..., j - 1]
    return torch.from_numpy(np.swapaxes(A, -1, -2) @ A + 0.1 * np.eye(shape[-1])).to(dtype)


@pytest.mark.parametrize(("dtype", "accuracy"), [(torch.float64, 1e-11), (torch.float32, 2e-3)], ids=["f64", "f32"])
@pytest.mark.parametrize("shape", [(1024,), (1, 1100), (2, 1030)], ids=str)
def test_large_inverses_are_those_of_numpy(shape, dtype, accuracy):
    H = definite(*shape, dtype=dtype)
    assert blocks.inverts_by_blocks(H)
    found, wanted = blocks.invert(torch.linalg.cholesky(H)), np.linalg.inv(H.double().numpy())
    assert float(np.abs(found.double().numpy() - wanted).max()) <= accuracy * float(np.abs(wanted).max())


def test_small_matrices_are_left_to_the_library():
    H = definite(2, 40)
    assert not blocks.inverts_by_blocks(H)
    np.testing.assert_allclose(blocks.invert(torch.linalg.cholesky(H)).numpy(), np.linalg.inv(H.numpy()), rtol=1e-9)
