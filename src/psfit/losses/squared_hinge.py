"""Squared hinge loss ``max(0, 1 - b eta)^2`` with labels ``b`` in {-1, +1}."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.losses.base import Loss


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """The support vector machine with a differentiable loss."""

    name: ClassVar[str] = "squared_hinge"
    fits: ClassVar[str | None] = "a linear support vector machine (squared hinge)"
    formula: ClassVar[str | None] = "max(0, 1 \u2212 y\u03b7)\u00b2, y = \u22121 or +1"
    curvature_vanishes: ClassVar[bool | None] = True
    most_curvature: ClassVar[float | None] = 2.0

    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        return (1 - b * eta).clamp(min=0).square()

    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        return -2 * b * (1 - b * eta).clamp(min=0)

    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        return 2 * (b * eta < 1).to(eta.dtype)

    def prox(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        margin = b * v
        return torch.where(margin >= 1, v, b * (margin + 2 * step) / (1 + 2 * step))

    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        margin = a * b
        return torch.where(margin <= 0, margin + margin.square() / 4, torch.inf)

    def nearest_slope(self, a: Tensor, b: Tensor) -> Tensor:
        return b * (a * b).clamp(max=0)

    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        return 2.0
