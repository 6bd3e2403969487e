"""The settings of a fit, and the rules for the arguments that estimators and procedures share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.settings import RULES as SOLVER_RULES
from psfit.comm import Grid, GridSpec, build_grid
from psfit.common.arguments import BOOLEAN, CALLABLE, GAMMA, NONE, Rule, instance, integer, number, one_of, several
from psfit.estimators.constraints import RULES as CONSTRAINT_RULES
from psfit.estimators.shared_arguments import SOLVER_DEFAULTS
from psfit.problem import Sparsity

# The value of gamma, or of gammas, that stands for the automatic ones.
AUTO = "auto"
GAMMAS = GAMMA | one_of(AUTO) | several("a sequence of such numbers", GAMMA)
RULES: dict[str, Rule] = {
    "kappa": integer(1, floats=True) | number("a share between 0 and 1", lambda value: 0 < value < 1) | NONE,
    "gamma": GAMMA | one_of(AUTO),
    "fit_intercept": BOOLEAN,
    "standardize": BOOLEAN,
    "sparsity": one_of("element", "feature"),
    "solver": instance("a psfit.BiCADMM", BiCADMM) | NONE,
    "grid": instance("a psfit.GridSpec or a grid that was built from one", GridSpec, Grid) | NONE,
    "certify": BOOLEAN,
    "warm_start": BOOLEAN,
    "verbose": BOOLEAN | integer(0),
    "callback": CALLABLE | NONE,
    **{name: SOLVER_RULES[name] | NONE for name in SOLVER_DEFAULTS},
    **CONSTRAINT_RULES,
}


@dataclass(frozen=True)
class Settings:
    """The problem without the data, on whose features and targets the rest depends.

    `loss` is a name in the registry. `parameters` are those of an estimator, by name; the loss, the target and the
    constraints use some of them.
    """

    loss: str
    kappa: int | float | None = None
    gamma: float | str = AUTO
    fit_intercept: bool = True
    standardize: bool = False
    sparsity: Sparsity = "element"
    parameters: Mapping[str, Any] = field(default_factory=dict)


def start_grid(rules: Mapping[str, Rule], arguments: Mapping[str, Any], X: Any) -> Grid:
    """Build the grid, and check on every rank that every argument follows its rule.

    If the grid has no device and X is a tensor, the grid gets the device of X.
    """
    asked = RULES["grid"]("grid", arguments["grid"])
    grid = build_grid(asked, X.device if isinstance(X, Tensor) else None)
    grid.run_together(lambda: [rules[name](name, value) for name, value in arguments.items()])
    return grid


def read_gammas(gammas: float | str | Sequence[float]) -> list[float] | None:
    """The gammas of a path as a list; None if they are automatic, so that they depend on the data."""
    given = GAMMAS("gammas", gammas)
    if given == AUTO:
        return None
    return given if isinstance(given, list) else [given]
