"""Bounds on the variables of many quadratic forms at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.kernels.linalg import cholesky

EVERY = slice(None)
# Steps towards the minimum of a form between bounds.
STEPS = 4


@dataclass(frozen=True, eq=False)
class BatchBounds:
    """Matrices ``H (B, d, d)`` of forms, and the bounds ``low, high (B, d)`` of their variables; zero is between them.

    A variable at a bound is held there if its derivative points beyond it. The others move as if they had no bounds.
    """

    H: Tensor
    low: Tensor
    high: Tensor

    def clip(self, x: Tensor, index: Tensor | slice = EVERY) -> Tensor:
        """Variables ``(k, d)`` between their bounds."""
        return torch.minimum(torch.maximum(x, self.low[index]), self.high[index])

    def choose_moves(self, x: Tensor, gradient: Tensor, index: Tensor | slice = EVERY) -> tuple[Tensor, Tensor]:
        """Gradients without the variables that are held, and steps of the others, ``(k, d, 1)`` each."""
        slope = gradient.squeeze(2)
        held = ((x <= self.low[index]) & (slope > 0)) | ((x >= self.high[index]) & (slope < 0))
        free = (~held).double()
        H = self.H[index] * free.unsqueeze(1) * free.unsqueeze(2) + torch.diag_embed(1 - free)
        gradient = gradient * free.unsqueeze(2)
        return gradient, torch.cholesky_solve(gradient, cholesky(H))

    def approach(self, x: Tensor, q: Tensor) -> Tensor:
        """Points close to the minima of ``x'Hx / 2 - q'x`` between the bounds, from ``x (B, d)``."""
        x = self.clip(x)
        for _ in range(STEPS):
            slope = (self.H @ x.unsqueeze(2)) - q.unsqueeze(2)
            x = self.clip(x - self.choose_moves(x, slope)[1].squeeze(2))
        return x
