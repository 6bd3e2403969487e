"""Results of the procedures that look at many models: paths, choices of a limit, stability, all that are close."""

from psfit.estimators.results.near_optimal import NearOptimal
from psfit.estimators.results.path import SparsePath
from psfit.estimators.results.selection import Selection
from psfit.estimators.results.stability import Stability

__all__ = ["NearOptimal", "Selection", "SparsePath", "Stability"]
