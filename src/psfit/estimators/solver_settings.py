"""Settings of the solver as parameters of an estimator: ``effort`` and so on, and all of them as ``solver__effort``."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from psfit.admm.bicadmm import BiCADMM

PREFIX = "solver__"


def make_solver(solver: BiCADMM | None, given: Mapping[str, Any]) -> BiCADMM:
    """The solver of an estimator that also takes some settings itself; None means that a setting is not given.

    A setting that the solver has with another value than its default cannot be given as well.
    """
    base, usual = solver or BiCADMM(), BiCADMM()
    own = {name: value for name, value in given.items() if value is not None}
    for name, value in own.items():
        there = getattr(base, name)
        if there not in (getattr(usual, name), value):
            raise ValueError(
                f"{name}={value!r}, but solver=BiCADMM({name}={there!r}); give {name} in one of the two places"
            )
    return replace(base, **own)


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
