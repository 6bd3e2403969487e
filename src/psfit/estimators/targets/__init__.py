"""Targets: one small class for each kind of y.

scikit-learn's models and scores are imported where they are used, because that takes time.
"""

from psfit.estimators.targets.amounts import Amounts, Totals
from psfit.estimators.targets.base import Target
from psfit.estimators.targets.counts import Counts
from psfit.estimators.targets.labels import Labels, LogitLabels
from psfit.estimators.targets.numbers import Numbers

__all__ = ["Amounts", "Counts", "Labels", "LogitLabels", "Numbers", "Target", "Totals"]
