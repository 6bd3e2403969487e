"""What to solve: the problem, the supports it allows, and the problem posed on data."""

from psfit.problem.constraints import NO_CONSTRAINTS, Constraints
from psfit.problem.domain import Domain
from psfit.problem.groups import GroupItems, OutputGroupItems
from psfit.problem.items import EntryItems, Items, OutputItems, RowItems, largest
from psfit.problem.local_model import LocalModel
from psfit.problem.problem import Problem, Sparsity
from psfit.problem.supports import all_supports, are_few

__all__ = [
    "NO_CONSTRAINTS",
    "Constraints",
    "Domain",
    "EntryItems",
    "GroupItems",
    "Items",
    "LocalModel",
    "OutputGroupItems",
    "OutputItems",
    "Problem",
    "RowItems",
    "Sparsity",
    "all_supports",
    "are_few",
    "largest",
]
