"""Tweedie loss: half the deviance of a Tweedie distribution with mean ``exp(eta)`` and a power from 1 to 2.

With ``up = 2 - power`` and ``down = power - 1`` it is ``y^up (E(up, s) + E(down, -s))`` for a target ``y > 0``, where
``s = eta - log y`` and ``E(k, s) = (exp(k s) - 1) / k``, whose limit at ``k = 0`` is ``s``. For ``y = 0`` it is
``exp(up eta) / up``. A power of 1 is the Poisson deviance, a power of 2 that of the Gamma distribution. Powers
outside of this range give no convex function of ``eta``.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.losses.newton_prox import NEWTON_STEPS, NewtonProxLoss, is_last
from psfit.losses.special import negative_entropy, wright_omega

# How far from the logarithm of the target a slope at the end of the conjugate's domain is looked for: the exponential
# of minus this is less than rounding.
FAR = 40.0


@dataclass(frozen=True)
class Tweedie(NewtonProxLoss):
    """Regression of numbers that are zero or positive, such as total claims, with a log link.

    It is no likelihood: that would need the dispersion, and has no closed form.
    """

    power: float = 1.5
    name: ClassVar[str] = "tweedie"
    fits: ClassVar[str | None] = "Tweedie regression with a log link"
    formula: ClassVar[str | None] = (
        "exp((2\u2212p)\u03b7)/(2\u2212p) + y exp((1\u2212p)\u03b7)/(p\u22121), less its least value"
    )
    meanings: ClassVar[dict[str, str]] = {"power": "the variance of a target is a multiple of this power of its mean"}
    curvature_vanishes: ClassVar[bool | None] = True

    def __post_init__(self) -> None:
        if not 1 <= self.power <= 2:
            raise ValueError(f"power={self.power} must be a number from 1 to 2")

    @property
    def up(self) -> float:
        """The exponent of the part that rises with the predictor."""
        return 2 - self.power

    @property
    def down(self) -> float:
        """The exponent of the part that falls with the predictor."""
        return self.power - 1

    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        s = eta - _log(b)
        known = b.pow(self.up) * (_rise(self.up, s) + _rise(self.down, -s))
        return torch.where(b > 0, known, (self.up * eta).exp() / self.up if self.up else torch.inf)

    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        # Near the target the two exponentials are nearly equal: their difference keeps its digits in this form.
        s = eta - _log(b)
        known = b.pow(self.up) * ((self.up * s).expm1() - (-self.down * s).expm1())
        return torch.where(b > 0, known, (self.up * eta).exp())

    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        falling = torch.where(b > 0, self.down * b * (-self.down * eta).exp(), 0.0)
        return self.up * (self.up * eta).exp() + falling

    def approach(self, v: Tensor, b: Tensor, step: Tensor | float, steps: int, tolerance: float | None) -> Tensor:
        """Newton's method between two points that enclose the prox; a step that leaves them is a bisection.

        The prox lies between ``v`` and the logarithm of the target. It is above the prox of the rising part alone and
        below that of the falling part alone, which are Wright omega functions. The one of them that lies between the
        same two points is the start. For a target of zero there is only a rising part.
        """
        step = torch.as_tensor(step, dtype=v.dtype, device=v.device)
        least, best = _balance(v, step, self.up), _log(b)
        most = -_balance(-v, step * b, self.down)
        low, high = torch.maximum(least, torch.minimum(v, best)), torch.minimum(most, torch.maximum(v, best))
        w = torch.where(v > best, low, high)
        for k in range(1, steps + 1):
            off = w - v + step * self.gradient(w, b)
            low, high = torch.where(off < 0, w, low), torch.where(off > 0, w, high)
            newton = w - off / (1 + step * self.curvature(w, b))
            inside = (newton >= low) & (newton <= high)
            move = torch.where(b > 0, torch.where(inside, newton, (low + high) / 2) - w, 0.0)
            w = w + move
            if is_last(k, move, w, tolerance):
                break
        return torch.where(b > 0, w, least)

    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        s = self._place(a, b)
        known = a * (_log(b) + s) - b.pow(self.up) * (_rise(self.up, s) + _rise(self.down, -s))
        zero = (negative_entropy(a.clamp(min=0)) - a) / self.up if self.up else torch.inf
        found = torch.where(b > 0, known, torch.where(a >= 0, zero, torch.inf))
        return torch.where(a == self.nearest_slope(a, b), found, torch.inf)

    def conjugate_sizes(self, a: Tensor, b: Tensor) -> Tensor:
        eta = _log(b) + self._place(a, b)
        zero = a.abs() * (1 + a.abs().clamp(min=torch.finfo(a.dtype).tiny).log().abs()) / max(self.up, 1e-3)
        return torch.where(b > 0, a.abs() * (1 + eta.abs()) + self.value(eta, b), zero)

    def _place(self, a: Tensor, b: Tensor) -> Tensor:
        """``eta - log b`` where the loss has the slope `a`, for targets above zero."""
        relative = torch.where(b > 0, a / torch.where(b > 0, b, 1.0).pow(self.up), 0.0)
        if self.down == 0:
            return relative.clamp(min=-1).log1p().clamp(-FAR, FAR)
        if self.up == 0:
            return -(-relative.clamp(max=1)).log1p().clamp(-FAR, FAR)
        size = relative.abs()
        rising = torch.where(relative > 0, self.up, self.down)
        falling = 1 - rising
        # The root of rising s - log(size + exp(-falling s)), which rises and is concave: steps from the left stay left.
        s = (size.clamp(min=torch.finfo(size.dtype).tiny).log() / rising).clamp(min=0)
        for k in range(1, NEWTON_STEPS + 1):
            rest = (-falling * s).exp()
            both = size + rest
            move = (both.log() - rising * s) / (rising + falling * rest / both)
            s = s + move
            if is_last(k, move, s, torch.finfo(s.dtype).eps ** 0.75):
                break
        return torch.where(relative > 0, s, -s)

    def nearest_slope(self, a: Tensor, b: Tensor) -> Tensor:
        if self.down == 0:
            return torch.maximum(a, -b)
        if self.up == 0:
            return a.clamp(max=1)
        return torch.where(b > 0, a, a.clamp(min=0))

    def constant_predictor(self, mean_target: Tensor) -> Tensor:
        return mean_target.clamp(min=torch.finfo(mean_target.dtype).tiny).log()

    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        return max(mean_target**self.up, 1e-3)


def _rise(rate: float, s: Tensor) -> Tensor:
    """``(exp(rate s) - 1) / rate``, and its limit ``s`` at a rate of zero."""
    return (rate * s).expm1() / rate if rate else s


def _balance(v: Tensor, factor: Tensor, rate: float) -> Tensor:
    """The root ``w`` of ``w + factor exp(rate w) = v``."""
    if not rate:
        return v - factor
    shift = (rate * factor).log()
    r = wright_omega(rate * v + shift)
    # Where r is large, v - r / rate cancels; log(r / (rate factor)) / rate is the same number without the cancellation.
    return torch.where(r > 1, (r.clamp(min=1).log() - shift) / rate, v - r / rate)


def _log(b: Tensor) -> Tensor:
    """The logarithms of targets; zero where a target is zero."""
    return torch.where(b > 0, b, 1.0).log()
