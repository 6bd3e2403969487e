"""Gamma loss ``exp(r) - r - 1`` with ``r = b - eta``, where ``b`` is the logarithm of the target.

It is half the deviance of a Gamma distribution whose mean is ``exp(eta)``: ``y / mean - log(y / mean) - 1``.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.losses.base import Loss
from psfit.losses.special import wright_omega


@dataclass(frozen=True)
class Gamma(Loss):
    """Regression of positive numbers with a log link, whose spread grows with their mean.

    It is no likelihood: that would need the shape of the distribution.
    """

    name: ClassVar[str] = "gamma"
    fits: ClassVar[str | None] = "Gamma regression with a log link"
    formula: ClassVar[str | None] = "y exp(\u2212\u03b7) \u2212 log y + \u03b7 \u2212 1"
    curvature_vanishes: ClassVar[bool | None] = True
    of_residual: ClassVar[bool] = True

    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        r = b - eta
        return r.expm1() - r

    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        return -(b - eta).expm1()

    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        return (b - eta).exp()

    def prox(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        # In r = b - w: r + step exp(r) = q, so that e = q - r = step exp(r) solves e + log e = q + log(step).
        step = torch.as_tensor(step, dtype=v.dtype, device=v.device)
        q = b - v + step
        e = wright_omega(q + step.log())
        # Where e is large, q - e cancels; log(e / step) is the same number without the cancellation.
        return b - torch.where(e > 1, e.clamp(min=1).log() - step.log(), q - e)

    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        inner = torch.special.xlog1py(1 - a.clamp(max=1), -a.clamp(max=1)) + a + a * b
        return torch.where(a <= 1, inner, torch.inf)

    def nearest_slope(self, a: Tensor, b: Tensor) -> Tensor:
        return a.clamp(max=1)

    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        return 1.0
