"""Local solvers: the prox of each node's data."""

from psfit.admm.local.base import LocalSolver, LocalState, Subproblem
from psfit.admm.local.choose import BY_NAME, choose
from psfit.admm.local.direct import Direct
from psfit.admm.local.feature_split import FeatureSplit
from psfit.admm.local.majoriser import Majoriser
from psfit.admm.local.newton import Newton

__all__ = [
    "BY_NAME",
    "Direct",
    "FeatureSplit",
    "LocalSolver",
    "LocalState",
    "Majoriser",
    "Newton",
    "Subproblem",
    "choose",
]
