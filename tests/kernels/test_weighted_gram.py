"""Compiled Gram matrices of few columns against sums in extended precision."""

import numpy as np
import pytest
import torch

from psfit.data import strip
from psfit.data.strip import DenseStrip


@pytest.mark.parametrize("rows", [1, 3, 4, 50, 51, 53])
@pytest.mark.parametrize("columns", [1, 2, 7, 21])
def test_products_of_few_columns_are_exact_up_to_rounding(rows, columns):
    generator = np.random.default_rng(rows + columns)
    values, weights = generator.standard_normal((rows, columns)), generator.random((rows, 1))
    wide = values.astype(np.longdouble)
    expected = (wide.T @ (weights * wide)).astype(float)
    part = DenseStrip(torch.from_numpy(values))
    assert part._suits_loops
    np.testing.assert_allclose(part.gram(torch.from_numpy(weights)).numpy(), expected, rtol=0, atol=1e-13 * rows)


def test_other_layouts_and_more_columns_are_left_to_the_library(monkeypatch):
    values, weights = torch.randn(30, 8, dtype=torch.float64), torch.rand(30, 1, dtype=torch.float64)
    known = DenseStrip(values).gram(weights)
    turned = DenseStrip(values.T.contiguous().T)
    assert not turned._suits_loops
    torch.testing.assert_close(turned.gram(weights), known)
    monkeypatch.setattr(strip, "FEW_COLUMNS", 7)
    assert not DenseStrip(values)._suits_loops
    torch.testing.assert_close(DenseStrip(values).gram(weights), known)
