"""Softmax loss ``logsumexp(eta) - b'eta`` with one-hot targets ``b`` over ``c`` classes."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.losses.newton_prox import NewtonProxLoss, is_last
from psfit.losses.special import negative_entropy, wright_omega


@dataclass(frozen=True)
class Softmax(NewtonProxLoss):
    """Classification into several classes; its outputs form one problem."""

    name: ClassVar[str] = "softmax"
    fits: ClassVar[str | None] = "softmax regression"
    formula: ClassVar[str | None] = "log \u03a3 exp(\u03b7) \u2212 \u03b7 of the sample's class"
    likelihood: ClassVar[bool] = True
    curvature_vanishes: ClassVar[bool | None] = True
    most_curvature: ClassVar[float | None] = 0.5
    of_differences: ClassVar[bool] = True
    joint: ClassVar[bool] = True

    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        # The label's predictor is subtracted first, so that no large numbers cancel. If the label has the largest
        # predictor, its own term is one, and `log1p` keeps the digits of the others.
        ahead = eta - (b * eta).sum(dim=1, keepdim=True)
        others = ((1 - b) * ahead.clamp(max=0).exp()).sum(dim=1, keepdim=True)
        leads = (ahead <= 0).all(dim=1, keepdim=True)
        return torch.where(leads, others.log1p(), ahead.logsumexp(dim=1, keepdim=True))

    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        # For the label, minus the sum of the other probabilities: its probability minus one, without cancellation.
        others = (1 - b) * eta.softmax(dim=1)
        return others - b * others.sum(dim=1, keepdim=True)

    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        probability = eta.softmax(dim=1)
        return probability * (1 - probability)

    def coupling(self, eta: Tensor, b: Tensor) -> Tensor:
        return eta.softmax(dim=1)

    def approach(self, v: Tensor, b: Tensor, step: Tensor | float, steps: int, tolerance: float | None) -> Tensor:
        """The c-dimensional prox of each sample, reduced to one scalar equation.

        With ``u = v + step b`` the minimiser is ``w = u - step pi``, ``pi = softmax(w)``. Given ``L =
        logsumexp(w)`` each ``r = step pi_k`` solves ``r + log r = u_k - L + log step``, a Wright omega function, and
        ``L`` is such that the probabilities sum to one. That sum is convex and decreasing in ``L`` and at least one
        at ``max(u) - step``, so Newton's method increases to the root.
        """
        step = torch.as_tensor(step, dtype=v.dtype, device=v.device).expand(v.shape[0], 1)
        u = v + step * b
        top = u.amax(dim=1, keepdim=True)
        shifted = u - top + step.log()
        level = -step
        for k in range(1, steps + 1):
            r = wright_omega(shifted - level)
            slope = (r / (1 + r)).sum(dim=1, keepdim=True)
            move = (r.sum(dim=1, keepdim=True) - step) / slope
            level = level + move
            if is_last(k, move, level, tolerance):
                break
        return u - wright_omega(shifted - level)

    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        y = a + b
        slack = 8 * y.shape[1] * torch.finfo(y.dtype).eps
        inside = (y >= 0).all(dim=1, keepdim=True) & ((y.sum(dim=1, keepdim=True) - 1).abs() <= slack)
        return torch.where(inside, negative_entropy(y.clamp(min=0)).sum(dim=1, keepdim=True), torch.inf)

    def nearest_slope(self, a: Tensor, b: Tensor) -> Tensor:
        y = (a + b).clamp(min=0)
        return y / y.sum(dim=1, keepdim=True) - b

    def constant_predictor(self, mean_target: Tensor) -> Tensor:
        return mean_target.clamp(min=torch.finfo(mean_target.dtype).tiny).log()

    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        return (outputs - 1) / outputs**2
