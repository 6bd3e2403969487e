"""The largest numbers against a sorted array."""

import numpy as np
import pytest

from psfit.kernels.cpu.selection import move_largest_first


@pytest.mark.parametrize("count", [1, 2, 20, 40, 41])
@pytest.mark.parametrize("kinds", [1, 5, 1000])
def test_the_largest_are_first_and_the_least_of_them_is_last(count, kinds):
    values = np.random.default_rng(count).integers(0, kinds, 41).astype(float)
    falling = np.sort(values)[::-1]
    move_largest_first(values, count)
    assert values[count - 1] == falling[count - 1]
    np.testing.assert_array_equal(np.sort(values[:count])[::-1], falling[:count])
    np.testing.assert_array_equal(np.sort(values)[::-1], falling)
