"""The Python lines that make the same model again."""

import inspect
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from psfit.comm import Grid, GridSpec
from psfit.estimators.results import SparsePath

# What changes nothing about the answer.
SILENT = ("callback", "interruptible", "verbose", "warm_start")


def model_recipe(model: Any) -> str:
    """Imports, the estimator with what differs from its defaults, and the fit."""
    known = model.get_params(deep=False)
    if isinstance(known["grid"], Grid):
        known["grid"] = known["grid"].spec
    given = {
        name: known[name]
        for name, one in inspect.signature(type(model).__init__).parameters.items()
        if name in known and name not in SILENT and not _same(known[name], one.default)
    }
    if "solver" in given and not _differing(given["solver"]):
        del given["solver"]
    # In a single process the grid is what it would be without one.
    if given.get("grid") == GridSpec() and model.result_.nodes == 1:
        del given["grid"]
    for name in ("kappas", "gammas"):
        if name in given:
            # An iterable may be used up; what came out of it is remembered.
            given[name] = getattr(model.selection_, name).tolist()
    kinds = {type(model), *(type(value) for value in given.values() if is_dataclass(value))}
    lines = [*_imports(kinds), ""]
    lines += _call(f"model = {type(model).__name__}", given)
    return "\n".join([*lines, "model.fit(X, y)"])


def _imports(kinds: set[type]) -> list[str]:
    """A line for what comes from here, and one for each other module, which a class of one's own comes from."""
    homes: dict[str, list[str]] = {}
    for kind in kinds:
        own = kind.__module__.split(".")[0] == "psfit"
        homes.setdefault("psfit" if own else kind.__module__, []).append(kind.__name__)
    return [f"from {home} import {', '.join(sorted(homes[home], key=str.lower))}" for home in sorted(homes)]


def path_recipe(path: SparsePath) -> str:
    """The call that makes the same path, as far as the path knows it."""
    given: dict[str, Any] = {
        "kappas": path.kappas.tolist(),
        "gammas": path.gammas.tolist() if len(path.gammas) > 1 else float(path.gammas[0]),
        "loss": path.loss,
    } | path.settings
    defaults = {"gammas": 1.0, "loss": "squared", "fit_intercept": True, "standardize": False, "sparsity": "element"}
    kept = {name: value for name, value in given.items() if name not in defaults or value != defaults[name]}
    return "\n".join(["from psfit import sparse_path", "", *_call("path = sparse_path", kept, "X, y")])


def _call(function: str, arguments: dict[str, Any], first: str = "") -> list[str]:
    """A call on one line if it fits, else one argument a line."""
    parts = [*([first] if first else []), *(f"{name}={_written(value)}" for name, value in arguments.items())]
    line = f"{function}({', '.join(parts)})"
    if len(line) <= 88:
        return [line]
    return [f"{function}(", *(f"    {part}," for part in parts), ")"]


def _written(value: Any) -> str:
    """A value as Python would read it; of settings only what differs from their defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = ", ".join(f"{name}={_written(one)}" for name, one in _differing(value).items())
        return f"{type(value).__name__}({kept})"
    if isinstance(value, (np.ndarray, np.generic)):
        return repr(value.tolist())
    if isinstance(value, list) and len(value) > 3 and value == list(range(value[0], value[-1] + 1)):
        return f"range({value[0]}, {value[-1] + 1})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_written(key)}: {_written(one)}" for key, one in value.items()) + "}"
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return " ".join(repr(value).split())


def _differing(settings: Any) -> dict[str, Any]:
    """The fields of settings that are not as they would be anyway."""
    known = {one.name: (getattr(settings, one.name), one.default) for one in fields(settings)}
    return {name: value for name, (value, default) in known.items() if name not in SILENT and not _same(value, default)}


def _same(value: Any, default: Any) -> bool:
    """Whether a value is its default; arrays never are."""
    return value is default or (not isinstance(value, np.ndarray) and bool(value == default))
