"""Hinge loss ``max(0, 1 - b eta)`` with labels ``b`` in {-1, +1}."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.losses.base import Box, Loss


@dataclass(frozen=True)
class Hinge(Loss):
    """The support vector machine; not differentiable at margin one."""

    name: ClassVar[str] = "hinge"
    fits: ClassVar[str | None] = "a linear support vector machine (hinge)"
    formula: ClassVar[str | None] = "max(0, 1 \u2212 y\u03b7), y = \u22121 or +1"
    curvature_vanishes: ClassVar[bool | None] = True
    smooth: ClassVar[bool] = False

    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        return (1 - b * eta).clamp(min=0)

    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        return torch.where(b * eta < 1, -b, 0.0)

    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        return torch.zeros_like(eta)

    def prox(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        # In the margin t = b v, the prox goes up by at most `step`, and never beyond the kink at one.
        margin = b * v
        moved = torch.minimum(margin + step, torch.ones_like(margin))
        return torch.where(margin >= 1, v, b * moved)

    def dual_point(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        return -b * ((1 - b * v) / step).clamp(0, 1)

    def broad_curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        # The slope changes by one over margins from zero to two.
        return 0.5 * ((1 - b * eta).abs() <= 1).to(eta.dtype)

    def envelope(self, width: float) -> Loss:
        return HingeEnvelope(width)

    def box(self, b: Tensor) -> Box:
        return Box((-b).clamp(max=0), (-b).clamp(min=0), b, 0.0)

    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        margin = a * b
        return torch.where((margin >= -1) & (margin <= 0), margin, torch.inf)

    def nearest_slope(self, a: Tensor, b: Tensor) -> Tensor:
        return b * (a * b).clamp(-1, 0)

    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        return 1.0


@dataclass(frozen=True)
class HingeEnvelope(Loss):
    """The least of ``hinge(t) + (t - eta)^2 / (2 width)`` over t: a parabola in place of the kink, for proofs."""

    width: float = 1.0
    name: ClassVar[str] = "hinge_envelope"

    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        short = (1 - b * eta).clamp(min=0)
        inner = short.clamp(max=self.width)
        return inner * (short - inner / 2) / self.width

    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        return -b * ((1 - b * eta) / self.width).clamp(0, 1)

    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        short = 1 - b * eta
        return ((short > 0) & (short < self.width)).to(eta.dtype) / self.width

    def prox(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        # Envelopes of envelopes are envelopes.
        further = Hinge().prox(v, b, step + self.width)
        return v + (step / (step + self.width)) * (further - v)

    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        return Hinge().conjugate(a, b) + self.width * a.square() / 2

    def nearest_slope(self, a: Tensor, b: Tensor) -> Tensor:
        return Hinge().nearest_slope(a, b)

    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        return 1 / self.width
