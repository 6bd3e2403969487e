"""Settings of the solver as parameters of an estimator: ``effort`` and so on, and all of them as ``solver__effort``."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from psfit.admm.bicadmm import BiCADMM
from psfit.estimators.shared_arguments import SOLVER_DEFAULTS

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


class SolverSettings:
    """The settings of the solver among the parameters of an estimator.

    Parameters
    ----------
    effort : {"low", "medium", "high"} or None, default=None
        How long to search for the features, see `BiCADMM`. None means what `solver` says; this holds for the next five,
        too. A setting that `solver` has changed cannot be given here as well.
    tol : float or None, default=None
        Relative tolerance of the iteration.
    max_iter : int or None, default=None
        Most iterations.
    time_limit : float or None, default=None
        Seconds after which the fit ends with the best answer so far.
    n_jobs : int or None, default=None
        Most threads on a CPU; -1 means all cores, None as many as torch uses.
    random_state : int or None, default=None
        Seed of the random numbers of searches; None means 0, so that the same call has the same answer.
    """

    solver: BiCADMM | None

    def _make_solver(self) -> BiCADMM:
        """The solver with the settings that the estimator was given itself."""
        return make_solver(self.solver, {name: getattr(self, name) for name in SOLVER_DEFAULTS})

    def set_params(self, **params: Any) -> Any:
        """Set parameters, also those of the solver: ``set_params(solver__effort="high")``."""
        own, solver = split_solver_settings(params)
        super().set_params(**own)  # type: ignore[misc]
        if solver:
            self.solver = replace(self.solver or BiCADMM(), **solver)
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; with `deep` also those of the solver, as ``solver__effort`` and so on."""
        found: dict[str, Any] = super().get_params(deep)  # type: ignore[misc]
        return found | solver_settings(found.get("solver")) if deep else found
