"""Huber loss: ``r^2`` up to ``|r| = delta``, then ``2 delta |r| - delta^2``."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.losses.base import Box, Loss


@dataclass(frozen=True)
class Huber(Loss):
    """Regression with little influence of outliers: residuals above `delta` count linearly."""

    delta: float = 1.35
    name: ClassVar[str] = "huber"
    fits: ClassVar[str | None] = "robust linear regression (Huber loss)"
    formula: ClassVar[str | None] = "r\u00b2 for r = |\u03b7 \u2212 y| \u2264 \u03b4, else 2\u03b4r \u2212 \u03b4\u00b2"
    meanings: ClassVar[dict[str, str]] = {"delta": "larger residuals count linearly"}
    curvature_vanishes: ClassVar[bool | None] = True
    most_curvature: ClassVar[float | None] = 2.0
    of_residual: ClassVar[bool] = True

    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        r = (eta - b).abs()
        inner = r.clamp(max=self.delta)
        return inner * (2 * r - inner)

    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        return 2 * (eta - b).clamp(-self.delta, self.delta)

    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        return 2 * ((eta - b).abs() <= self.delta).to(eta.dtype)

    def broad_curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        # The curvature of the parabola that touches the loss at both residuals of this size.
        return 2 * self.delta / (eta - b).abs().clamp(min=self.delta)

    def box(self, b: Tensor) -> Box:
        most = torch.full_like(b, 2 * self.delta)
        return Box(-most, most, b, 0.5)

    def prox(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        r = v - b
        shrunk = r / (1 + 2 * step)
        return torch.where(shrunk.abs() <= self.delta, b + shrunk, v - 2 * step * self.delta * r.sign())

    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        inside = a.abs() <= 2 * self.delta
        return torch.where(inside, a.square() / 4 + a * b, torch.inf)

    def nearest_slope(self, a: Tensor, b: Tensor) -> Tensor:
        return a.clamp(-2 * self.delta, 2 * self.delta)

    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        return 2.0
