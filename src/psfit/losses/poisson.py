"""Poisson loss ``exp(eta) - b eta`` with counts ``b >= 0`` (the log-factorial of the target is left out)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.losses.base import Loss
from psfit.losses.special import negative_entropy, wright_omega


@dataclass(frozen=True)
class Poisson(Loss):
    """Regression of counts with a log link."""

    name: ClassVar[str] = "poisson"
    fits: ClassVar[str | None] = "Poisson regression with a log link"
    formula: ClassVar[str | None] = "exp(\u03b7) \u2212 y\u03b7"
    likelihood: ClassVar[bool] = True
    curvature_vanishes: ClassVar[bool | None] = True

    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        return eta.exp() - b * eta

    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        return eta.exp() - b

    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        return eta.exp()

    def prox(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        # w + step exp(w) = q, so that r = q - w = step exp(w) solves r + log r = q + log(step).
        step = torch.as_tensor(step, dtype=v.dtype, device=v.device)
        q = v + step * b
        rate = wright_omega(q + step.log())
        # Where r is large, q - r cancels; log(r / step) is the same number without the cancellation.
        return torch.where(rate > 1, rate.clamp(min=1).log() - step.log(), q - rate)

    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        y = a + b
        return torch.where(y >= 0, negative_entropy(y.clamp(min=0)) - y, torch.inf)

    def nearest_slope(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.maximum(a, -b)

    def constant_predictor(self, mean_target: Tensor) -> Tensor:
        return mean_target.clamp(min=torch.finfo(mean_target.dtype).tiny).log()

    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        return max(mean_target, 1e-3)
