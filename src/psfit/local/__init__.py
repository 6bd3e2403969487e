"""Local solvers: the prox of each node's data."""

from psfit.local.base import LocalSolver, LocalState, Subproblem
from psfit.local.choose import BY_NAME, choose
from psfit.local.direct import Direct
from psfit.local.feature_split import FeatureSplit
from psfit.local.newton import Newton

__all__ = ["BY_NAME", "Direct", "FeatureSplit", "LocalSolver", "LocalState", "Newton", "Subproblem", "choose"]
