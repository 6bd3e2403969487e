"""The smooth loss below the hinge: its values, slopes, conjugate and prox belong to one function, the envelope."""

import pytest
import torch
from scipy.optimize import minimize_scalar

from psfit.losses import Hinge

ETA = torch.linspace(-3, 3, 25, dtype=torch.float64).unsqueeze(1)


@pytest.mark.parametrize("width", [1.0, 0.1])
@pytest.mark.parametrize("label", [1.0, -1.0])
def test_it_is_the_envelope_of_the_hinge(width, label):
    smooth, b = Hinge().envelope(width), torch.full_like(ETA, label)
    value, hinge = smooth.value(ETA, b), Hinge().value(ETA, b)
    for eta, found in zip(ETA.flatten().tolist(), value.flatten().tolist(), strict=True):

        def distance(t, eta=eta):
            return max(0.0, 1 - label * t) + (t - eta) ** 2 / (2 * width)

        least = minimize_scalar(distance, bounds=(eta - 2 * width, eta + 2 * width), method="bounded").fun
        assert found == pytest.approx(least, abs=1e-6)
    assert bool(((value <= hinge + 1e-12) & (value >= hinge - width / 2 - 1e-12)).all())
    moving = ETA.clone().requires_grad_()
    smooth.value(moving, b).sum().backward()
    slope = smooth.gradient(ETA, b)
    torch.testing.assert_close(slope, moving.grad)
    # Its slopes are slopes of the hinge, and what they prove for the hinge is more.
    torch.testing.assert_close(Hinge().nearest_slope(slope, b), slope)
    torch.testing.assert_close(slope * ETA - smooth.conjugate(slope, b), value)
    assert bool((Hinge().conjugate(slope, b) <= smooth.conjugate(slope, b)).all())


def test_its_prox_and_curvature():
    smooth, b, step = Hinge().envelope(0.5), torch.ones_like(ETA), 0.7
    w = smooth.prox(ETA, b, step)
    torch.testing.assert_close(w + step * smooth.gradient(w, b), ETA)
    inside = smooth.curvature(ETA, b).flatten()
    assert set(inside.tolist()) == {0.0, 2.0}
    near = ((1 - ETA > 0) & (1 - ETA < 0.5)).flatten()
    assert float(inside[near].min()) == smooth.typical_curvature(0.0, 1) == 2.0
