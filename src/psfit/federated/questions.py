"""Questions that clients answer after the fit, in the same run: paths, stability, lists of near-optimal models.

The answers are the library's own objects. Between client and server they travel as JSON.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from psfit.comm import Grid
from psfit.common.status import Status
from psfit.estimators import NearOptimal, SparsePath, Stability, near_optimal, sparse_path, stability_selection
from psfit.estimators.model import SparseModel
from psfit.estimators.registry import LOSSES

# What each question calls, and what it returns.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "path": sparse_path,
    "stability": stability_selection,
    "near_optimal": near_optimal,
}
ANSWERS: dict[str, type] = {"path": SparsePath, "stability": Stability, "near_optimal": NearOptimal}
# Arguments that the samples and the federation give, or that belong to one machine.
NOT_ASKED = {"model", "X", "y", "sample_weight", "target", "offset", "loss", "grid", "solver"}
NOT_ASKED |= {"verbose", "callback", "time_limit"}
Found = SparsePath | Stability | NearOptimal


@dataclass(frozen=True)
class Samples:
    """The samples that a client fits, and the grid of all clients; no grid if they hold everything already."""

    X: Any
    y: np.ndarray
    weight: np.ndarray | None
    offset: np.ndarray | None
    grid: Grid | None


def object_to(questions: Mapping[str, Any], pooled: bool) -> str | None:
    """Why these questions cannot be asked; None if they can."""
    for kind, arguments in questions.items():
        if kind not in FUNCTIONS:
            return f"{kind!r} is no question; there are {', '.join(FUNCTIONS)}"
        if pooled and kind == "stability":
            return "stability needs the samples, and pooled=true leaves only their products"
        known = set(inspect.signature(FUNCTIONS[kind]).parameters) - NOT_ASKED
        if not isinstance(arguments, Mapping) or not set(arguments) <= known:
            return f"{kind} takes a table of arguments: {', '.join(sorted(known))}"
    return None


def answer(kind: str, asked: Mapping[str, Any], model: SparseModel, shared: Mapping[str, Any], own: Samples) -> Found:
    """The answer to a question, with the arguments of the estimator that it shares."""
    samples: dict[str, Any] = {"sample_weight": own.weight, "offset": own.offset}
    if kind == "near_optimal":
        return near_optimal(model, own.X, own.y, **samples, **asked)
    loss = model.result_.loss
    unknown = sorted(set(LOSSES[loss].parameters.values()) & set(shared))
    if unknown:
        raise ValueError(f"questions: {kind} has no argument {', '.join(unknown)}, so it cannot answer for this loss")
    known = inspect.signature(FUNCTIONS[kind]).parameters
    arguments = {name: value for name, value in shared.items() if name in known}
    if kind == "path" and "gamma" in shared:
        arguments["gammas"] = shared["gamma"]
    found: Found = FUNCTIONS[kind](own.X, own.y, **(arguments | samples | dict(asked)), loss=loss, grid=own.grid)
    return found


def to_facts(found: Found) -> dict[str, Any]:
    """An answer as JSON can hold it; what it has learned about the data is the model's."""
    values = {one.name: getattr(found, one.name) for one in fields(found) if one.name != "learned"}
    return {name: _plain(value) for name, value in values.items()}


def from_facts(kind: str, facts: Mapping[str, Any], model: SparseModel) -> Found:
    """The answer in facts of `to_facts`."""
    made: dict[str, Any] = {"learned": model.learned_} if kind == "path" else {}
    for one in fields(ANSWERS[kind]):
        if one.name != "learned":
            made[one.name] = _restore(one.name, str(one.type), facts[one.name])
    found: Found = ANSWERS[kind](**made)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value.name if isinstance(value, Status) else value


def _restore(name: str, kind: str, value: Any) -> Any:
    if value is None:
        return None
    if "ndarray" in kind:
        return np.array(value, dtype=object if name == "feature_names" else None)
    if name == "ended":
        return Status[value]
    return tuple(value) if kind.startswith("tuple") else value
