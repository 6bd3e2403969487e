"""Compiled products with the columns of many supports against sums in extended precision."""

import numpy as np
import pytest

from psfit.kernels.cpu.support_sums import BLOCK, predict, sum_columns


@pytest.mark.parametrize("samples", [1, 7, BLOCK, BLOCK + 3])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_products_are_exact_up_to_rounding(samples, width):
    generator = np.random.default_rng(samples + width)
    table = generator.standard_normal((9, samples))
    places = np.stack([generator.permutation(9)[:width] for _ in range(4)])
    x, slopes = generator.standard_normal((4, width)), generator.standard_normal((4, samples))
    eta, sums = predict(table, places, x), sum_columns(table, places, slopes)
    wide = table.astype(np.longdouble)
    for row in range(4):
        np.testing.assert_allclose(eta[row], (x[row] @ wide[places[row]]).astype(float), rtol=0, atol=1e-13)
        np.testing.assert_allclose(sums[row], (wide[places[row]] @ slopes[row]).astype(float), rtol=0, atol=1e-12)
