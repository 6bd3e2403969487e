"""Losses: one small file each; all follow the contract of `Loss`."""

from psfit.losses.base import Box, Loss
from psfit.losses.gamma import Gamma
from psfit.losses.hinge import Hinge
from psfit.losses.huber import Huber
from psfit.losses.logistic import Logistic
from psfit.losses.offset import add_offset, convert_targets, plain_targets
from psfit.losses.poisson import Poisson
from psfit.losses.softmax import Softmax
from psfit.losses.squared import Squared
from psfit.losses.squared_hinge import SquaredHinge
from psfit.losses.tweedie import Tweedie

__all__ = [
    "Box",
    "Gamma",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Poisson",
    "Softmax",
    "Squared",
    "SquaredHinge",
    "Tweedie",
    "add_offset",
    "convert_targets",
    "plain_targets",
]
