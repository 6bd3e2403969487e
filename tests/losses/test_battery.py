"""One battery for every loss: value, derivatives, prox and conjugate belong to one function."""

from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
import torch
from oracles import (
    assert_prox_optimal,
    kink_distance,
    loss_gradient,
    loss_value,
    prox_residual,
    random_targets,
)
from scipy.special import entr
from torch.func import grad, jacrev, vmap

from psfit.losses import Gamma, Hinge, Huber, Logistic, Loss, Poisson, Softmax, Squared, SquaredHinge, Tweedie

SAMPLES = 24


@dataclass(frozen=True)
class Case:
    """A loss and its number of outputs."""

    loss: Loss
    outputs: int

    def __str__(self) -> str:
        return "-".join(map(str, [self.loss.name, *(vars(self.loss).values() or [self.outputs])]))


CASES = [
    Case(Squared(), 2),
    Case(Huber(1.35), 2),
    Case(Huber(0.2), 2),
    Case(Logistic(), 2),
    Case(Softmax(), 2),
    Case(Softmax(), 4),
    Case(Hinge(), 2),
    Case(SquaredHinge(), 2),
    Case(Poisson(), 2),
    Case(Gamma(), 2),
    Case(Tweedie(1.0), 2),
    Case(Tweedie(1.2), 2),
    Case(Tweedie(1.95), 2),
    Case(Tweedie(2.0), 2),
]
# Losses beyond every floating-point number at predictors of these signs, far from zero.
OVERFLOWS = {"poisson": (1,), "gamma": (-1,), "tweedie": (-1, 1)}
SMOOTH = [case for case in CASES if case.loss.smooth]
every_loss = pytest.mark.parametrize("case", CASES, ids=str)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])


def draw(case: Case, dtype: torch.dtype, spread: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Predictors and targets, representable in `dtype`."""
    rng = np.random.default_rng(7)
    eta = spread * rng.normal(size=(SAMPLES, case.outputs))
    b = random_targets(case.loss, SAMPLES, case.outputs, rng)
    return torch.tensor(eta, dtype=dtype), torch.tensor(b, dtype=dtype)


def draw_smooth(case: Case, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The same without rows on a kink, where derivatives are a matter of convention."""
    eta, b = draw(case, dtype)
    away = (kink_distance(case.loss, eta.numpy(), b.numpy()) > 1e-3).all(axis=1)
    assert away.sum() > SAMPLES // 2
    return eta[away], b[away]


def as64(*tensors: torch.Tensor) -> list[np.ndarray]:
    return [tensor.double().numpy() for tensor in tensors]


def one_sample(loss: Loss):
    """The loss of a single sample as a function of vectors, for autograd."""
    return lambda eta, b: loss.value(eta.unsqueeze(0), b.unsqueeze(0)).sum()


def close(actual: torch.Tensor, expected, dtype: torch.dtype) -> None:
    assert actual.dtype == dtype
    tolerance = 64 * torch.finfo(dtype).eps
    np.testing.assert_allclose(*as64(actual), np.asarray(expected), rtol=tolerance, atol=tolerance)


@every_loss
@every_dtype
def test_value_is_the_formula(case, dtype):
    eta, b = draw(case, dtype)
    close(case.loss.value(eta, b), loss_value(case.loss, *as64(eta, b)), dtype)


@every_loss
@every_dtype
def test_gradient_is_that_of_the_value(case, dtype):
    eta, b = draw_smooth(case, dtype)
    close(case.loss.gradient(eta, b), vmap(grad(one_sample(case.loss)))(eta, b), dtype)


@every_loss
@every_dtype
def test_curvature_is_that_of_the_value(case, dtype):
    eta, b = draw_smooth(case, dtype)
    second = vmap(jacrev(grad(one_sample(case.loss))))(eta, b)
    close(case.loss.curvature(eta, b), second.diagonal(dim1=1, dim2=2), dtype)
    close(case.loss.cross_curvature(eta, b), second, dtype)
    if not case.loss.joint:
        with pytest.raises(TypeError, match="independent"):
            case.loss.coupling(eta, b)


@every_loss
def test_no_curvature_is_above_the_largest_and_some_comes_close(case):
    most = case.loss.most_curvature
    if most is None:
        assert case.loss.name in ("hinge", *OVERFLOWS)
        return
    eta, b = draw(case, torch.float64, spread=1.5)
    # Two classes with equal probabilities have the largest curvature.
    eta = torch.cat([eta, torch.tensor([[0.0, 0.0] + [-30.0] * (case.outputs - 2)], dtype=torch.float64)])
    b = torch.cat([b, b[:1]])
    eigenvalues = torch.linalg.eigvalsh(case.loss.cross_curvature(eta, b))
    assert float(eigenvalues.max()) == pytest.approx(most, rel=1e-9)


@pytest.mark.parametrize("case", [case for case in CASES if case.loss.joint], ids=str)
def test_a_shift_of_all_outputs_does_not_change_a_loss_of_differences(case):
    eta, b = draw(case, torch.float64)
    assert case.loss.of_differences
    shift = torch.linspace(-2, 2, SAMPLES, dtype=torch.float64).unsqueeze(1)
    close(case.loss.value(eta + shift, b), case.loss.value(eta, b), torch.float64)
    close(case.loss.gradient(eta, b).sum(dim=1), torch.zeros(SAMPLES), torch.float64)


@every_loss
def test_typical_curvature_is_that_of_the_best_constant(case):
    if not case.loss.smooth:
        assert case.loss.typical_curvature(0.0, case.outputs) > 0
        return
    mean = 2.5
    # The best constant predictor of counts is their log mean; of balanced classes it is zero.
    logarithmic = case.loss.name in ("poisson", "tweedie")
    eta = torch.full((1, case.outputs), np.log(mean) if logarithmic else 0.0)
    b = torch.full((1, case.outputs), mean if case.loss.name == "tweedie" else 0.0)
    expected = case.loss.curvature(eta, b).mean().item()
    assert case.loss.typical_curvature(mean, case.outputs) == pytest.approx(expected, rel=1e-6)


@every_loss
@every_dtype
@pytest.mark.parametrize("step", [1e-3, 1e-2, 0.3, 1.0, 10.0, 1e3])
def test_prox_beats_brute_force(case, dtype, step):
    v, b = draw(case, dtype)
    w = case.loss.prox(v, b, step)
    assert w.dtype == dtype
    steps = np.full((SAMPLES, 1 if case.loss.joint else case.outputs), step)
    check_prox(case.loss, w, v, b, steps)


@every_loss
@pytest.mark.parametrize("step", [1e-2, 0.3, 1.0, 10.0, 1e3])
def test_a_dual_point_is_valid_and_close_to_the_step_of_the_prox(case, step):
    """By Moreau's identity; far in the tail of a loss it may stop short of the prox, but it is always valid."""
    v, b = draw(case, torch.float64)
    a = case.loss.dual_point(v, b, step)
    assert case.loss.conjugate(a, b).isfinite().all()
    moved = (v - case.loss.prox(v, b, step)) / step
    np.testing.assert_allclose(a.numpy(), moved.numpy(), atol=1e-6)


SHAPES = [(), (1, 1), ("m", 1), (1, "c"), ("m", "c")]
# The prox of a joint loss has one step per sample.
STEPS = [(case, shape) for case in CASES for shape in SHAPES if not (case.loss.joint and "c" in shape)]


@every_dtype
@pytest.mark.parametrize(("case", "shape"), STEPS, ids=str)
def test_prox_takes_steps_that_broadcast(case, dtype, shape):
    v, b = draw(case, dtype)
    sizes = {1: 1, "m": SAMPLES, "c": case.outputs}
    step = torch.tensor(10.0 ** np.random.default_rng(3).uniform(-3, 3, size=[sizes[k] for k in shape]), dtype=dtype)
    w = case.loss.prox(v, b, step)
    assert w.dtype == dtype
    columns = 1 if case.loss.joint else case.outputs
    check_prox(case.loss, w, v, b, *as64(step.expand(SAMPLES, columns)))


def check_prox(loss: Loss, w: torch.Tensor, v: torch.Tensor, b: torch.Tensor, step: np.ndarray):
    """As good as brute force, and stationary to machine accuracy."""
    eps = torch.finfo(w.dtype).eps
    assert_prox_optimal(loss, *as64(w, v, b), step, eps, np.random.default_rng(5))
    assert_stationary(loss, w, v, b, step)


def assert_stationary(loss: Loss, w: torch.Tensor, v: torch.Tensor, b: torch.Tensor, step: np.ndarray):
    """The residual of ``w - v + step g(w) = 0`` is what rounding its terms makes of it."""
    eps = torch.finfo(w.dtype).eps
    slope = 1 + step * loss.curvature(w.double(), b.double()).numpy()
    w, v, b = as64(w, v, b)
    # Softmax adds step b to v, and so is exact relative to their sum.
    terms = 1 + np.abs(v) + np.abs(w) + (step if loss.joint else np.abs(w - v))
    assert (prox_residual(loss, w, v, b, step) <= 16 * eps * slope * terms).all()


@every_loss
@every_dtype
def test_fenchel_young(case, dtype):
    eta, b = draw(case, dtype)
    rounding = 64 * torch.finfo(dtype).eps

    def surplus(eta, a):
        """``loss(eta) + conjugate(a) - a'eta >= 0``, relative to its terms."""
        inner = a * eta
        inner = inner.sum(dim=1, keepdim=True) if case.loss.joint else inner
        value, conjugate = case.loss.value(eta, b), case.loss.conjugate(a, b)
        assert value.shape == conjugate.shape == inner.shape
        return (value + conjugate - inner) / (1 + value.abs() + inner.abs())

    a = case.loss.gradient(eta, b)
    assert (surplus(eta, a).abs() <= rounding).all()
    generator = torch.Generator().manual_seed(1)
    for spread in (0.1, 1.0, 3.0):
        other = eta + spread * torch.randn(eta.shape, generator=generator, dtype=dtype)
        # Slopes taken elsewhere lie in the domain; slopes drawn at random mostly do not.
        assert (surplus(other, a) >= -rounding).all()
        wild = spread * torch.randn(eta.shape, generator=generator, dtype=dtype)
        assert (surplus(eta, wild) >= -rounding).all()


# The ends of the conjugate's domain, as slopes for a target b: (target, end, step outwards).
ENDS = [
    (Huber(1.35), 0.7, 2.7, 1),
    (Huber(1.35), 0.7, -2.7, -1),
    (Huber(0.2), -3.0, 0.4, 1),
    (Logistic(), 1.0, -1.0, -1),
    (Logistic(), 1.0, 0.0, 1),
    (Logistic(), -1.0, 1.0, 1),
    (Hinge(), 1.0, -1.0, -1),
    (Hinge(), 1.0, 0.0, 1),
    (Hinge(), -1.0, 1.0, 1),
    (SquaredHinge(), 1.0, 0.0, 1),
    (SquaredHinge(), -1.0, 0.0, -1),
    (Poisson(), 3.0, -3.0, -1),
    (Gamma(), 0.5, 1.0, 1),
    (Tweedie(1.0), 3.0, -3.0, -1),
    (Tweedie(1.0), 0.0, 0.0, -1),
    (Tweedie(1.5), 0.0, 0.0, -1),
    (Tweedie(2.0), 3.0, 1.0, 1),
]


@every_dtype
@pytest.mark.parametrize(("loss", "target", "end", "outwards"), ENDS)
def test_conjugate_ends_where_its_domain_does(loss, target, end, outwards, dtype):
    def conjugate(slope):
        return loss.conjugate(slope.reshape(1, 1), torch.full((1, 1), target, dtype=dtype)).item()

    at_end = torch.tensor(end, dtype=dtype)
    past = torch.nextafter(at_end, torch.tensor(outwards * torch.inf, dtype=dtype))
    past = past if end else torch.tensor(outwards * torch.finfo(dtype).tiny, dtype=dtype)
    # The supremum over a long grid, attained or approached at its end.
    eta = np.linspace(-50, 50, 100_001)[:, None]
    supremum = (end * eta - loss_value(loss, eta, np.full_like(eta, target))).max()
    assert conjugate(at_end) == pytest.approx(supremum, abs=1e-5)
    assert conjugate(past) == np.inf


@every_dtype
def test_conjugate_inside_the_domain_of_the_hinge(dtype):
    # The hinge's slopes are all ends of its domain; between them the supremum is at the kink.
    b = torch.tensor([[1.0], [-1.0]], dtype=dtype)
    eta = np.linspace(-50, 50, 100_001)
    for share in (0.2, 0.5, 0.9):
        expected = [(-share * y * eta - np.maximum(1 - y * eta, 0)).max() for y in (1, -1)]
        conjugate = Hinge().conjugate(-share * b, b)
        np.testing.assert_allclose(conjugate.flatten(), expected, atol=1e-5)


@every_dtype
def test_conjugate_of_softmax_lives_on_the_simplex(dtype):
    corner, edge, inside = [1.0, 0, 0], [0.25, 0.75, 0], [0.5, 0.25, 0.25]
    y = torch.tensor([corner, edge, inside], dtype=dtype)
    b = torch.eye(3, dtype=dtype)[[1, 0, 2]]
    close(Softmax().conjugate(y - b, b), -entr(y.double().numpy()).sum(1, keepdims=True), dtype)
    heavy = torch.tensor([[0.5, 0.501, 0.0], [0.2, 0.2, 0.2], [1.01, -0.01, 0.0]], dtype=dtype)
    assert (Softmax().conjugate(heavy - b, b) == torch.inf).all()


@every_loss
@every_dtype
@pytest.mark.parametrize("size", [-1e4, 1e4])
def test_extreme_margins(case, dtype, size):
    _, b = draw(case, dtype)
    eta = torch.full_like(b, size)
    # All predictors equal say nothing to softmax; there the first class is the extreme one.
    eta[:, case.outputs // 2 :] = 0.0 if case.loss.joint else size
    value, gradient = case.loss.value(eta, b), case.loss.gradient(eta, b)
    if np.sign(size) in OVERFLOWS.get(case.loss.name, ()):
        # exp(1e4) is beyond every floating-point number, and the loss says so.
        with np.errstate(over="ignore"):
            expected = loss_value(case.loss, *as64(eta, b))
        finite = np.isfinite(value.numpy())
        np.testing.assert_allclose(value[finite], expected[finite], rtol=1e5 * torch.finfo(dtype).eps, atol=1e-30)
        assert (expected[~finite] > 0.1 * torch.finfo(dtype).max).all()
    else:
        close(value, loss_value(case.loss, *as64(eta, b)), dtype)
        if case.loss.smooth:
            close(gradient, loss_gradient(case.loss, *as64(eta, b)), dtype)
    assert gradient.isnan().sum() == 0
    for step in (1e-3, 1.0, 1e3):
        w = case.loss.prox(eta, b, step)
        assert w.isfinite().all()
        assert_stationary(case.loss, w, eta, b, np.full((SAMPLES, 1), step))


@pytest.mark.parametrize("loss", [Hinge(), Huber(), Huber(0.1)], ids=str)
def test_a_box_of_slopes_is_the_loss(loss):
    eta = torch.linspace(-7, 7, 141, dtype=torch.float64).unsqueeze(1)
    b = torch.where(torch.arange(141) % 3 > 0, 1.0, -1.0).unsqueeze(1).double()
    box = loss.box(b)
    share = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    a = box.low + share * (box.high - box.low)
    best = (a * (eta - box.centre) - box.bend * a.square() / 2).max(dim=1, keepdim=True).values
    np.testing.assert_allclose(best, loss.value(eta, b), atol=1e-7)


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_smooth_losses_have_no_box_but_huber(case):
    _, b = draw(case, torch.float64)
    assert (case.loss.box(b) is None) == (case.loss.name != "huber")


def test_a_parabola_with_the_broad_curvature_lies_above_the_huber_loss():
    loss = Huber()
    start = torch.linspace(-50, 50, 101, dtype=torch.float64).unsqueeze(1)
    b = torch.zeros_like(start)
    move = torch.linspace(-100, 100, 2001, dtype=torch.float64)
    bend = loss.broad_curvature(start, b)
    above = loss.value(start, b) + loss.gradient(start, b) * move + bend * move.square() / 2
    assert bool((above >= loss.value(start + move, b) - 1e-9).all())


def test_the_broad_curvature_of_the_hinge_adds_up_to_the_change_of_its_slope():
    margins = torch.linspace(-2, 4, 60_001, dtype=torch.float64).unsqueeze(1)
    bend = Hinge().broad_curvature(margins, torch.ones_like(margins))
    np.testing.assert_allclose(float(bend.mean()) * 6, 1.0, rtol=1e-3)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_slopes_that_rounding_has_moved_out_of_the_domain_come_back(case):
    eta, b = draw(case, torch.float64)
    exact = case.loss.gradient(eta * 10, b)
    rounded = exact.float().double() * (1 + 1e-7)
    near = case.loss.nearest_slope(rounded, b)
    assert bool(case.loss.conjugate(near, b).isfinite().all())
    np.testing.assert_allclose(near, exact, rtol=1e-6, atol=1e-6)


def test_the_softmax_loss_keeps_its_digits_where_it_is_small():
    eta = torch.tensor([[30.0, 0.0, -1.0], [0.0, 700.0, 3.0]], dtype=torch.float64)
    b = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    small = [mpmath.exp(-30) + mpmath.exp(-31), mpmath.exp(-700) + mpmath.exp(-697)]
    np.testing.assert_allclose(Softmax().value(eta, b)[:, 0], [float(mpmath.log1p(s)) for s in small], rtol=1e-14)
    slope = Softmax().gradient(eta, b)
    np.testing.assert_allclose([-slope[0, 0], -slope[1, 1]], [float(s / (1 + s)) for s in small], rtol=1e-14)
