"""Targets: one small class for each kind of y."""

from psfit.estimators.targets.base import Target
from psfit.estimators.targets.counts import Counts
from psfit.estimators.targets.labels import Labels, LogitLabels
from psfit.estimators.targets.numbers import Numbers

__all__ = ["Counts", "Labels", "LogitLabels", "Numbers", "Target"]
