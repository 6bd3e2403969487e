"""Losses whose prox has no closed form: Newton's method on a scalar equation of each sample."""

from abc import abstractmethod

import torch
from torch import Tensor

from psfit.losses.base import Loss

NEWTON_STEPS = 60
# Reading a number from the device needs a synchronisation, so only some steps test whether they are the last.
CHECK_EVERY = 4
# Steps towards a dual point, which needs no accurate prox. They may end after a step of at most this share, since the
# next one would be of its square. On a GPU they all cost less than such a test.
FEW_STEPS = 8
SHORT_STEP = 1e-4


class NewtonProxLoss(Loss):
    """A loss with a prox by Newton's method, which converges quadratically."""

    @abstractmethod
    def approach(self, v: Tensor, b: Tensor, step: Tensor | float, steps: int, tolerance: float | None) -> Tensor:
        """The prox after so many steps; without a `tolerance` all are made, else they end as `is_last` says."""

    def prox(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        # After a step as small as this tolerance, the next would be only rounding.
        return self.approach(v, b, step, NEWTON_STEPS, torch.finfo(v.dtype).eps ** 0.75)

    def dual_point(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        tolerance = SHORT_STEP if v.device.type == "cpu" else None
        return self.gradient(self.approach(v, b, step, FEW_STEPS, tolerance), b)


def is_last(number: int, move: Tensor, at: Tensor, tolerance: float | None) -> bool:
    """Whether no entry has moved by more than the relative tolerance in the step of this number, if it is tested."""
    if tolerance is None or number % CHECK_EVERY:
        return False
    return bool((move.abs() <= tolerance * (1 + at.abs())).all())
