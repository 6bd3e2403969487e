"""Special functions against SciPy's."""

import numpy as np
import pytest
import torch
from scipy.special import entr, wrightomega

from psfit.losses.special import negative_entropy, wright_omega

every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])


@every_dtype
def test_wright_omega(dtype):
    info = torch.finfo(dtype)
    # Dense where the three starting formulas meet (-37, -1 and 1), sparse far out.
    parts = [np.linspace(-60, 60, 20_001), np.linspace(-2, 2, 20_001), np.logspace(2, 8, 200)]
    x = torch.tensor(np.concatenate([*parts, [-37.0, -1.0, 0.0, 1.0]]), dtype=dtype)
    expected = wrightomega(x.double().numpy())
    actual = wright_omega(x)
    assert actual.dtype == dtype
    # The relative condition number is |x| / (1 + omega): rounding x already costs that much.
    condition = 1 + np.abs(x.double().numpy()) / (1 + expected)
    error = np.abs(actual.double().numpy() - expected) / expected
    assert (error <= 4 * info.eps * condition).all()


@every_dtype
def test_wright_omega_far_below_zero(dtype):
    x = torch.tensor([-80.0, -1e3, -1e4, -1e6], dtype=dtype)
    np.testing.assert_allclose(wright_omega(x), wrightomega(x.double().numpy()), rtol=1e-5)


@every_dtype
def test_negative_entropy(dtype):
    y = torch.tensor([0.0, 1e-30, 0.1, 0.5, 1.0, 40.0], dtype=dtype)
    np.testing.assert_allclose(negative_entropy(y), -entr(y.double().numpy()), rtol=1e-5, atol=0)
