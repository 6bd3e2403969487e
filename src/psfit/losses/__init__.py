"""Losses: one small file each; all follow the contract of `Loss`."""

from psfit.losses.base import Box, Loss
from psfit.losses.hinge import Hinge
from psfit.losses.huber import Huber
from psfit.losses.logistic import Logistic
from psfit.losses.poisson import Poisson
from psfit.losses.softmax import Softmax
from psfit.losses.squared import Squared
from psfit.losses.squared_hinge import SquaredHinge

__all__ = ["Box", "Hinge", "Huber", "Logistic", "Loss", "Poisson", "Softmax", "Squared", "SquaredHinge"]
