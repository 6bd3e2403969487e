"""A loss with an offset is the loss at the sum of predictor and offset."""

import numpy as np
import pytest
import torch
from oracles import random_targets

from psfit.losses import (
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Poisson,
    Softmax,
    Squared,
    SquaredHinge,
    Tweedie,
    add_offset,
    convert_targets,
    plain_targets,
)

LOSSES = [Squared(), Huber(), Gamma(), Logistic(), Softmax(), Hinge(), SquaredHinge(), Poisson(), Tweedie()]
WRAPPED = [loss for loss in LOSSES if not loss.of_residual]


def draw(loss):
    rng = np.random.default_rng(2)
    eta, offset, a = torch.tensor(rng.normal(size=(3, 20, 3)))
    return eta, torch.tensor(random_targets(loss, 20, 3, rng)), 2 * offset, a


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_value_and_its_derivatives_are_those_at_the_sum(loss):
    eta, b, offset, _ = draw(loss)
    moved, target = add_offset(loss, b, offset)
    for method in ("value", "gradient", "curvature", "cross_curvature", "broad_curvature"):
        expected = getattr(loss, method)(eta + offset, b)
        np.testing.assert_allclose(getattr(moved, method)(eta, target), expected, rtol=1e-9, atol=1e-12)
    assert moved.name == loss.name
    assert moved.typical_curvature(2.0, 3) == loss.typical_curvature(2.0, 3)


@pytest.mark.parametrize("loss", WRAPPED, ids=lambda loss: loss.name)
def test_prox_and_dual_point_are_those_of_the_moved_predictor(loss):
    eta, b, offset, _ = draw(loss)
    moved, target = add_offset(loss, b, offset)
    w = moved.prox(eta, target, 0.7)
    np.testing.assert_allclose(w + offset, loss.prox(eta + offset, b, 0.7), atol=1e-12)
    np.testing.assert_allclose(moved.dual_point(eta, target, 0.7), loss.dual_point(eta + offset, b, 0.7), atol=1e-12)


@pytest.mark.parametrize("loss", WRAPPED, ids=lambda loss: loss.name)
def test_fenchel_young_holds_with_equality_at_the_gradient(loss):
    eta, b, offset, wild = draw(loss)
    moved, target = add_offset(loss, b, offset)

    def surplus(eta, a):
        inner = (a * eta).sum(dim=1, keepdim=True) if loss.joint else a * eta
        return moved.value(eta, target) + moved.conjugate(a, target) - inner

    a = moved.gradient(eta, target)
    np.testing.assert_allclose(surplus(eta, a), 0.0, atol=1e-11)
    assert bool((surplus(eta + wild, a) >= -1e-11).all())
    assert bool((surplus(eta, moved.nearest_slope(0.1 * wild, target)) >= -1e-11).all())
    assert bool((moved.conjugate_sizes(a, target) >= loss.conjugate_sizes(a, b)).all())


def test_a_box_of_slopes_is_the_hinge_with_its_offset():
    eta, b, offset, _ = draw(Hinge())
    moved, target = add_offset(Hinge(), b, offset)
    box = moved.box(target)
    ends = torch.stack([a * (eta - box.centre) for a in (box.low, box.high)])
    np.testing.assert_allclose(ends.amax(dim=0), Hinge().value(eta + offset, b), atol=1e-12)
    assert add_offset(Logistic(), b, offset)[0].box(target) is None


def test_targets_keep_their_offsets_in_every_precision():
    _, b, offset, _ = draw(Logistic())
    _, target = add_offset(Logistic(), b, offset)
    single = convert_targets(target, torch.float32)
    assert single.dtype == torch.complex64
    np.testing.assert_array_equal(single.imag, offset.float())
    np.testing.assert_array_equal(plain_targets(single), b.float())
    np.testing.assert_array_equal(plain_targets(b), b)
    assert convert_targets(b, torch.float32).dtype == torch.float32


@pytest.mark.parametrize("power", [0.0, 0.5, 2.5, 3.0])
def test_powers_without_a_convex_loss_are_refused(power):
    with pytest.raises(ValueError, match="from 1 to 2"):
        Tweedie(power)
