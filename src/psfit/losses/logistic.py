"""Logistic loss ``log(1 + exp(-b eta))`` with labels ``b`` in {-1, +1}."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.losses.newton_prox import NewtonProxLoss, is_last
from psfit.losses.special import negative_entropy

# The largest mean of targets that counts: beyond it, one class has hardly any samples.
LARGEST_MEAN = 1 - 1e-9


@dataclass(frozen=True)
class Logistic(NewtonProxLoss):
    """Binary classification with probabilities."""

    name: ClassVar[str] = "logistic"
    fits: ClassVar[str | None] = "logistic regression"
    formula: ClassVar[str | None] = "log(1 + exp(\u2212y\u03b7)), y = \u22121 or +1"
    likelihood: ClassVar[bool] = True
    curvature_vanishes: ClassVar[bool | None] = True
    most_curvature: ClassVar[float | None] = 0.25

    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        return torch.logaddexp(-b * eta, torch.zeros_like(eta))

    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        return -b * torch.sigmoid(-b * eta)

    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        return torch.sigmoid(eta) * torch.sigmoid(-eta)

    def approach(self, v: Tensor, b: Tensor, step: Tensor | float, steps: int, tolerance: float | None) -> Tensor:
        """Root of ``t - u - step sigma(-t)`` in the margins ``t = b w``, ``u = b v``.

        The function increases, is convex left of zero and concave right of it, and the sign of the root is known.
        Newton's method, started on the correct side, approaches the root from that side and never overshoots. In the
        exponential tail a step has a length of about one, so there are up to log(step) steps.
        """
        u = b * v
        t = torch.where(u + step / 2 > 0, u.clamp(min=0), (u + step).clamp(max=0))
        for k in range(1, steps + 1):
            down = torch.sigmoid(-t)
            move = (u + step * down - t) / (1 + step * down * (1 - down))
            t = t + move
            if is_last(k, move, t, tolerance):
                break
        return b * t

    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        y = -a * b
        inside = (y >= 0) & (y <= 1)
        y = y.clamp(0, 1)
        return torch.where(inside, negative_entropy(y) + negative_entropy(1 - y), torch.inf)

    def nearest_slope(self, a: Tensor, b: Tensor) -> Tensor:
        return b * (a * b).clamp(-1, 0)

    def constant_predictor(self, mean_target: Tensor) -> Tensor:
        # Targets are -1 and 1.
        return 2 * mean_target.clamp(-LARGEST_MEAN, LARGEST_MEAN).atanh()

    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        return 0.25
