"""Constraints in the words of users: features by name, bounds, groups; and from there to numbers of columns."""

from psfit.estimators.constraints.arguments import (
    RULES,
    Constrained,
    ConstraintArguments,
    add_parameters,
    complete_arguments,
    given_arguments,
)
from psfit.estimators.constraints.resolve import Resolved, resolve

__all__ = [
    "RULES",
    "Constrained",
    "ConstraintArguments",
    "Resolved",
    "add_parameters",
    "complete_arguments",
    "given_arguments",
    "resolve",
]
