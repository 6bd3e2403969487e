"""What a bounded coefficient contributes to a lower bound, against a fine grid of its values."""

import numpy as np
import pytest
import torch

from psfit.problem.box import CoefficientBox, score


@pytest.mark.parametrize(("low", "high"), [(-0.7, 0.3), (0.0, 2.0), (-3.0, 0.0), (0.0, 0.0)])
@pytest.mark.parametrize("error", [0.0, 0.4])
def test_the_score_is_the_largest_value_between_the_bounds(low, high, error):
    g = torch.linspace(-3, 3, 25, dtype=torch.float64)
    ridge = torch.full_like(g, 1.5)
    found = score(g, error, ridge, torch.full_like(g, low), torch.full_like(g, high)).numpy()
    x = np.linspace(low, high, 20001)
    shifted = g.numpy()[:, None] + np.array([-error, 0.0, error])
    grid = (-shifted[..., None] * x - 0.75 * x**2).max(axis=(1, 2))
    assert (found >= grid - 1e-12).all()
    np.testing.assert_allclose(found, grid, atol=1e-6)


def test_a_score_without_bounds_is_that_of_the_ridge():
    g = torch.tensor([-2.0, 0.5], dtype=torch.float64)
    nothing = torch.full_like(g, torch.inf)
    free = score(g, 0.1, torch.ones_like(g), None, None)
    torch.testing.assert_close(score(g, 0.1, torch.ones_like(g), -nothing, nothing), free)


def test_points_are_moved_into_the_box_and_intercepts_stay():
    low, high = torch.tensor([[0.0], [-1.0]]), torch.tensor([[torch.inf], [0.0]])
    box = CoefficientBox(low.double(), high.double())
    Z = torch.tensor([[-2.0], [-3.0], [-9.0]], dtype=torch.float64)
    assert box.clip(Z).flatten().tolist() == [0.0, -1.0, -9.0]
    assert box.clip_signs(Z).flatten().tolist() == [0.0, -3.0, -9.0]
