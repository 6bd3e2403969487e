"""Losses at predictors with an offset: a fixed number for each sample is added to its predictor.

A target with an offset is a complex number: its real part is the target itself, its imaginary part the offset. So both
go together through rows, outputs, copies and devices, and only this file knows. A loss of residuals needs none of it:
there the offset is subtracted from the target.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.losses.base import Box, Loss

# Facts about a loss that do not change with an offset.
FACTS = (
    "name",
    "joint",
    "smooth",
    "quadratic",
    "steady",
    "fits",
    "formula",
    "meanings",
    "likelihood",
    "most_curvature",
    "of_differences",
    "curvature_vanishes",
)


@dataclass(frozen=True)
class OffsetLoss(Loss):
    """The loss `plain` at ``eta + offset``; its targets come from `add_offset`."""

    plain: Loss
    name: ClassVar[str] = "offset"

    def __post_init__(self) -> None:
        for fact in FACTS:
            object.__setattr__(self, fact, getattr(self.plain, fact))

    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        return self.plain.value(eta + b.imag, b.real)

    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        return self.plain.gradient(eta + b.imag, b.real)

    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        return self.plain.curvature(eta + b.imag, b.real)

    def coupling(self, eta: Tensor, b: Tensor) -> Tensor:
        return self.plain.coupling(eta + b.imag, b.real)

    def cross_curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        return self.plain.cross_curvature(eta + b.imag, b.real)

    def broad_curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        return self.plain.broad_curvature(eta + b.imag, b.real)

    def prox(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        return self.plain.prox(v + b.imag, b.real, step) - b.imag

    def dual_point(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        return self.plain.dual_point(v + b.imag, b.real, step)

    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        moved = a * b.imag
        return self.plain.conjugate(a, b.real) - (moved.sum(dim=1, keepdim=True) if self.joint else moved)

    def conjugate_sizes(self, a: Tensor, b: Tensor) -> Tensor:
        return self.plain.conjugate_sizes(a, b.real) + (a * b.imag).abs()

    def nearest_slope(self, a: Tensor, b: Tensor) -> Tensor:
        return self.plain.nearest_slope(a, b.real)

    def box(self, b: Tensor) -> Box | None:
        plain = self.plain.box(b.real)
        return None if plain is None else Box(plain.low, plain.high, plain.centre - b.imag, plain.bend)

    def constant_predictor(self, mean_target: Tensor) -> Tensor:
        return self.plain.constant_predictor(mean_target)

    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        return self.plain.typical_curvature(mean_target, outputs)


def add_offset(loss: Loss, target: Tensor, offset: Tensor) -> tuple[Loss, Tensor]:
    """The loss at predictors plus ``offset (m, c)`` as a loss of the predictors alone, and its targets ``(m, c)``."""
    if loss.of_residual:
        return loss, target - offset
    return OffsetLoss(loss), torch.complex(target, offset)


def plain_targets(target: Tensor) -> Tensor:
    """Targets without their offsets."""
    return target.real if target.is_complex() else target


def convert_targets(target: Tensor, dtype: torch.dtype) -> Tensor:
    """Targets, and offsets if they have some, in a precision of real numbers."""
    return target.to(dtype.to_complex() if target.is_complex() else dtype)
