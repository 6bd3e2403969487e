"""Squared loss ``(eta - b)^2``, without a half, as in the paper."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.losses.base import Loss


@dataclass(frozen=True)
class Squared(Loss):
    """Linear regression."""

    name: ClassVar[str] = "squared"
    fits: ClassVar[str | None] = "linear regression"
    formula: ClassVar[str | None] = "(\u03b7 \u2212 y)\u00b2"
    likelihood: ClassVar[bool] = True
    curvature_vanishes: ClassVar[bool | None] = False
    most_curvature: ClassVar[float | None] = 2.0
    quadratic: ClassVar[bool] = True
    of_residual: ClassVar[bool] = True

    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        return (eta - b).square()

    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        return 2 * (eta - b)

    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        return torch.full_like(eta, 2.0)

    def prox(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        return (v + 2 * step * b) / (1 + 2 * step)

    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        return a.square() / 4 + a * b

    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        return 2.0
