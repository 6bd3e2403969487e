"""The arguments that estimators and procedures share: names, types and defaults, each written once.

A constructor or function takes them as ``**shared: Unpack[...]`` of one of the classes below. `add_parameters` puts
them into its signature, so that scikit-learn and the help see plain keyword parameters.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, get_args

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import Grid, GridSpec
from psfit.common.progress import Callback
from psfit.estimators.constraints.arguments import DEFAULTS as CONSTRAINT_DEFAULTS
from psfit.estimators.constraints.arguments import ConstraintArguments
from psfit.problem import Sparsity

T = TypeVar("T", bound=Callable[..., Any])


class SolverArguments(TypedDict, total=False):
    """Settings of the solver that estimators take themselves; None leaves them to `solver`."""

    effort: str | None
    tol: float | None
    max_iter: int | None
    time_limit: float | None
    n_jobs: int | None
    random_state: int | None


class CommonArguments(SolverArguments, ConstraintArguments, total=False):
    """What all estimators take."""

    fit_intercept: bool
    standardize: bool
    sparsity: Sparsity
    solver: BiCADMM | None
    grid: GridSpec | Grid | None
    certify: bool
    verbose: int
    callback: Callback | None


class ModelArguments(CommonArguments, total=False):
    """What estimators with a given limit take."""

    gamma: float | str
    warm_start: bool


class SelectionArguments(CommonArguments, total=False):
    """What estimators that choose their limit take."""

    gammas: float | str | Sequence[float]
    criterion: str
    cv: Any
    scoring: Any
    one_standard_error: bool


SOLVER_DEFAULTS: dict[str, Any] = dict.fromkeys(SolverArguments.__annotations__)

# The defaults of all arguments above, in the order of the signatures.
DEFAULTS: dict[str, Any] = {
    "gamma": "auto",
    "gammas": "auto",
    "criterion": "cv",
    "cv": None,
    "scoring": None,
    "one_standard_error": False,
    "fit_intercept": True,
    "standardize": False,
    "sparsity": "element",
    **SOLVER_DEFAULTS,
    "solver": None,
    "grid": None,
    "certify": True,
    "warm_start": False,
    "verbose": 0,
    "callback": None,
    **CONSTRAINT_DEFAULTS,
}


def complete_arguments(given: Mapping[str, Any], kind: type, owner: str) -> dict[str, Any]:
    """All arguments of a kind, with defaults for those that are not given; others are refused as Python does."""
    for name in given:
        if name not in kind.__annotations__:
            raise TypeError(f"{owner}() got an unexpected keyword argument {name!r}")
    return {name: given.get(name, default) for name, default in DEFAULTS.items() if name in kind.__annotations__}


def add_parameters(function: T) -> T:
    """Show the arguments in the signature of a function whose last parameter is ``**shared: Unpack[...]``."""
    signature = inspect.signature(function)
    *own, last = signature.parameters.values()
    kinds = get_args(last.annotation)
    if last.kind is not last.VAR_KEYWORD or not kinds:
        return function
    types = kinds[0].__annotations__
    added = [
        inspect.Parameter(name, last.KEYWORD_ONLY, default=default, annotation=types[name])
        for name, default in DEFAULTS.items()
        if name in types
    ]
    function.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    return function
