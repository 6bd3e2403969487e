"""A smooth stand-in for a loss with kinks: its Moreau envelope, shifted by a multiplier per sample.

For ``min_x sum loss(A x) + r(x)`` the augmented Lagrangian of the splitting ``omega = A x`` with multiplier ``y`` is

    r(x) + sum  env(A x + step y) - step y^2 / 2,      env(q) = min_omega loss(omega) + (q - omega)^2 / (2 step),

differentiable in x, so Newton's method applies. Then ``y = env'(A x + step y)`` and a smaller step; on piecewise
linear losses this reaches the exact minimiser after a few rounds.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.losses import Loss


@dataclass(frozen=True)
class Envelope(Loss):
    """The term of one sample; its target is the label and the multiplier side by side, ``(m, 2c)``."""

    inner: Loss
    step: float
    name: ClassVar[str] = "envelope"

    def _parts(self, eta: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        label, y = b.chunk(2, dim=1)
        return eta + self.step * y, label, y

    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        q, label, y = self._parts(eta, b)
        omega = self.inner.prox(q, label, self.step)
        near = (q - omega).square() / (2 * self.step) - self.step * y.square() / 2
        return self.inner.value(omega, label) + near

    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        q, label, _ = self._parts(eta, b)
        return (q - self.inner.prox(q, label, self.step)) / self.step

    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        q, label, _ = self._parts(eta, b)
        return (1 - self.inner.prox_slope(q, label, self.step)) / self.step

    def prox(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        raise TypeError("an envelope is only ever minimised by Newton's method")

    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        raise TypeError("an envelope is only ever minimised by Newton's method")

    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        return 1 / self.step

    def duality_gap(self, eta: Tensor, b: Tensor) -> Tensor:
        """``loss(eta) + loss*(y) - y eta >= 0`` for the new multiplier ``y``: what is left to gain on this sample."""
        q, label, _ = self._parts(eta, b)
        omega = self.inner.prox(q, label, self.step)
        y = (q - omega) / self.step
        return self.inner.value(eta, label) - self.inner.value(omega, label) - y * (eta - omega)


def with_multiplier(label: Tensor, y: Tensor) -> Tensor:
    """The target of an `Envelope`."""
    return torch.cat([label.to(y.dtype), y], dim=1)
