"""Constraints in the words of users: features by name, bounds, groups; and from there to numbers of columns."""

from psfit.estimators.constraints.arguments import (
    RULES,
    Constrained,
    ConstraintArguments,
    given_arguments,
)
from psfit.estimators.constraints.resolve import Resolved, resolve

__all__ = [
    "RULES",
    "Constrained",
    "ConstraintArguments",
    "Resolved",
    "given_arguments",
    "resolve",
]
