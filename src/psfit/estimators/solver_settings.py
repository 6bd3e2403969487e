"""Settings of the solver as parameters of an estimator, ``solver__effort`` and so on, for scikit-learn's searches."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from psfit.admm.bicadmm import BiCADMM

PREFIX = "solver__"


def solver_settings(solver: BiCADMM | None) -> dict[str, Any]:
    """The settings of a solver, or the defaults, with the prefix."""
    chosen = solver if isinstance(solver, BiCADMM) else BiCADMM()
    return {f"{PREFIX}{field.name}": getattr(chosen, field.name) for field in fields(chosen)}


def split_solver_settings(params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters without the prefix, and settings of the solver without it; unknown settings are an error."""
    own = {name: value for name, value in params.items() if not name.startswith(PREFIX)}
    solver = {name.removeprefix(PREFIX): value for name, value in params.items() if name.startswith(PREFIX)}
    known = [field.name for field in fields(BiCADMM)]
    for name in solver:
        if name not in known:
            raise ValueError(f"{PREFIX}{name} is not a setting of the solver; it has {', '.join(known)}")
    return own, solver
