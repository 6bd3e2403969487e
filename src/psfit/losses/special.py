"""Special functions that the proximal operators need, vectorised over tensors."""

import torch
from torch import Tensor


def wright_omega(x: Tensor) -> Tensor:
    """The root ``w > 0`` of ``w + log w = x``, to machine accuracy, for any ``x`` whose square is finite.

    Below `tail` the equation is ``w = exp(x)`` up to rounding. Elsewhere a fourth-order iteration on the residual
    of the logarithmic form starts from the leading asymptotic terms; three iterations reach float64.
    """
    tail = -37.0
    inner = x.clamp(min=tail)
    large = inner - inner.clamp(min=1.0).log()
    w = torch.where(inner > 1.0, large, torch.where(inner < -1.0, inner.clamp(max=0).exp(), (inner + 1.8) / 5))
    for _ in range(3):
        r = inner - w - w.log()
        one = 1 + w
        lift = 2 * one * (one + 2 * r / 3)
        w = w * (1 + (r / one) * (lift - r) / (lift - 2 * r))
    return torch.where(x > tail, w, x.clamp(max=tail).exp())


def negative_entropy(y: Tensor) -> Tensor:
    """``y log y`` with its limit 0 at zero."""
    return torch.special.xlogy(y, y)
