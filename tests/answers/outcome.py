"""What is kept of an answer: plain lists and numbers that do not depend on the machine."""

from typing import Any

import numpy as np

from psfit import Result, Stability


def of_fit(result: Result) -> dict[str, Any]:
    """One fit: an objective for each independent problem, a support for each output."""
    return {
        "objectives": result.objectives.tolist(),
        "lower_bounds": bounds(result.lower_bounds),
        "supports": supports(result.coef),
        "iterations": result.n_iter,
        "status": result.status.name,
    }


def of_path(path: Any) -> dict[str, Any]:
    """A path: one entry for each gamma and limit, of supports one for each output of each."""
    return {
        "objectives": path.objectives.ravel().tolist(),
        "lower_bounds": bounds(path.lower_bounds),
        "supports": supports(path.coefs),
        "status": None if path.ended is None else path.ended.name,
    }


def of_choice(model: Any) -> dict[str, Any]:
    """A model that has chosen its limit."""
    return of_fit(model.result_) | {
        "kappa": model.kappa_,
        "gamma": model.gamma_,
        "scores": model.selection_.scores.ravel().tolist(),
    }


def of_stability(stability: Stability) -> dict[str, Any]:
    """A stability selection."""
    return {"supports": [stability.support.tolist()], "scores": stability.frequencies.ravel().tolist()}


def bounds(values: np.ndarray) -> list[float | None]:
    """Lower bounds; none where none was asked for."""
    return [value if np.isfinite(value) else None for value in values.ravel().tolist()]


def supports(coef: np.ndarray) -> list[list[int]]:
    """The nonzeros of coefficients ``(..., p, c)``, for one output after the other."""
    columns = np.moveaxis(coef, -1, -2).reshape(-1, coef.shape[-2])
    return [np.flatnonzero(column).tolist() for column in columns]
