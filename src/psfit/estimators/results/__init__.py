"""Results of the procedures that fit many models: paths, choices of a limit, stability."""

from psfit.estimators.results.path import SparsePath
from psfit.estimators.results.selection import Selection
from psfit.estimators.results.stability import Stability

__all__ = ["Selection", "SparsePath", "Stability"]
