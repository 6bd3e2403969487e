"""The lines of Python that make the same model again."""

import inspect
import math
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from psfit.comm import Grid, GridSpec
from psfit.data import FileSource, SampleSource
from psfit.data.table_rules import rules_of
from psfit.data.table_source import TableSource
from psfit.estimators.constraints.arguments import as_mapping
from psfit.estimators.results import SparsePath

# Parameters that do not change the answer.
WITHOUT_EFFECT = ("callback", "interruptible", "verbose", "warm_start")


def model_recipe(model: Any, source: SampleSource | None = None) -> str:
    """The imports, the estimator with all arguments that differ from their defaults, and the call of fit.

    The `source` is that of the fit, if it is known.
    """
    known = model.get_params(deep=False)
    if isinstance(known["grid"], Grid):
        known["grid"] = known["grid"].spec
    given = {
        name: known[name]
        for name, one in inspect.signature(type(model).__init__).parameters.items()
        if name in known and name not in WITHOUT_EFFECT and not _is_default(known[name], one.default)
    }
    if "solver" in given and not _nondefault_fields(given["solver"]):
        del given["solver"]
    # In a single process, this grid is the same as none.
    if given.get("grid") == GridSpec() and model.result_.nodes == 1:
        del given["grid"]
    for name in ("kappas", "gammas"):
        if name in given:
            # The argument may be an iterator that is exhausted; the selection has its values.
            given[name] = getattr(model.selection_, name).tolist()
    made, samples, kind = _samples(model.learned_, source)
    kinds = {type(model), *kind, *(type(value) for value in given.values() if is_dataclass(value))}
    lines = [*_imports(kinds), "", *made]
    lines += _call_lines(f"model = {type(model).__name__}", given)
    return "\n".join([*lines, f"model.fit({samples})"])


def _samples(learned: Any, source: SampleSource | None) -> tuple[list[str], str, set[type]]:
    """Lines that make a source, the samples in a call, and the class of the source.

    Files are named if they are known. A table needs a source if it is read with rules, or has weights or offsets.
    """
    # Weights and offsets that are no columns are passed as arrays.
    named = {"sample_weight": learned.weight, "offset": learned.offset}
    if isinstance(source, FileSource):
        given = {name: _plain_path(value) for name, value in _nondefault_fields(source).items()}
        return _call_lines("source = FileSource", given), "source", {FileSource}
    schema = learned.features.schema
    is_table = schema is not None and len(schema.columns) > 0
    columns = {name: one for name, one in named.items() if isinstance(one, str)} if is_table else {}
    arrays = "".join(f", {name}={name}" for name, one in named.items() if one and name not in columns)
    rules = rules_of(schema) if is_table else {}
    if not rules and not columns:
        return [], f"X, y{arrays}", set()
    target = {} if schema.target_name is None else {"target": schema.target_name}
    made = _call_lines("source = TableSource", target | columns | rules, "table")
    return made, f"source{'' if target else ', y'}{arrays}", {TableSource}


def _plain_path(value: Any) -> Any:
    """A path as text; other values as they are."""
    if isinstance(value, tuple):
        return tuple(map(_plain_path, value))
    return str(value) if isinstance(value, Path) else value


def _imports(kinds: set[type]) -> list[str]:
    """One line for classes of psfit, and one for each other module, such as the user's own."""
    homes: dict[str, list[str]] = {}
    for kind in kinds:
        own = kind.__module__.split(".")[0] == "psfit"
        homes.setdefault("psfit" if own else kind.__module__, []).append(kind.__name__)
    return [f"from {home} import {', '.join(sorted(homes[home], key=str.lower))}" for home in sorted(homes)]


def path_recipe(path: SparsePath, source: SampleSource | None = None) -> str:
    """The call that makes the same path, with all arguments that the path has kept."""
    given: dict[str, Any] = {
        "kappas": path.kappas.tolist(),
        "gammas": path.gammas.tolist() if len(path.gammas) > 1 else float(path.gammas[0]),
        "loss": path.loss,
    } | path.settings
    defaults = {"loss": "squared", "fit_intercept": True, "standardize": False, "sparsity": "element"}
    kept = {name: value for name, value in given.items() if name not in defaults or value != defaults[name]}
    made, samples, kind = _samples(path.learned, source)
    lines = [*made, *_call_lines("path = sparse_path", kept, samples)]
    sources = "".join(f", {one.__name__}" for one in kind)
    return "\n".join([f"from psfit import sparse_path{sources}", "", *lines])


def _call_lines(function: str, arguments: dict[str, Any], first: str = "") -> list[str]:
    """A call on one line if it fits, else one argument per line."""
    parts = [*([first] if first else []), *(f"{name}={_as_code(value)}" for name, value in arguments.items())]
    line = f"{function}({', '.join(parts)})"
    if len(line) <= 88:
        return [line]
    return [f"{function}(", *(f"    {part}," for part in parts), ")"]


def _as_code(value: Any) -> str:
    """A value as Python code; of a dataclass only the fields that differ from their defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = ", ".join(f"{name}={_as_code(one)}" for name, one in _nondefault_fields(value).items())
        return f"{type(value).__name__}({kept})"
    value = as_mapping(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return _as_code(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    whole = isinstance(value, list) and len(value) > 3 and all(type(one) is int for one in value)
    if whole and value == list(range(value[0], value[-1] + 1)):
        return f"range({value[0]}, {value[-1] + 1})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_as_code(key)}: {_as_code(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        ends = "[]" if isinstance(value, list) else "()"
        alone = "," if isinstance(value, tuple) and len(value) == 1 else ""
        return f"{ends[0]}{', '.join(map(_as_code, value))}{alone}{ends[1]}"
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return " ".join(repr(value).split())


def _nondefault_fields(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults."""
    known = {one.name: (getattr(settings, one.name), one.default) for one in fields(settings)}
    return {
        name: value
        for name, (value, default) in known.items()
        if name not in WITHOUT_EFFECT and not _is_default(value, default)
    }


def _is_default(value: Any, default: Any) -> bool:
    """Whether a value equals its default; an array or a column of a table never does."""
    return value is default or (not hasattr(value, "__array__") and bool(value == default))
