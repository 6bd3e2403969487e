"""Model files: JSON with everything that prediction needs, and nothing that could be executed."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from psfit import estimators
from psfit.estimators._base import SparseModel
from psfit.files import write_whole
from psfit.result import Result, Status

FORMAT = 2


def save(model: SparseModel, path: str | Path) -> None:
    """Write a fitted model; the file is either whole or not there."""
    result = {f.name: getattr(model.result_, f.name) for f in fields(Result) if f.name != "history"}
    rows, columns = np.nonzero(model.result_.coef)
    content = {
        "format": FORMAT,
        "model": type(model).__name__,
        "parameters": {k: v for k, v in model.get_params().items() if k not in ("solver", "grid")},
        "learned": {name: vars(model)[name] for name in _LEARNED if name in vars(model)},
        "coef": {
            "shape": model.result_.coef.shape,
            "rows": rows,
            "columns": columns,
            "values": model.result_.coef[rows, columns],
        },
        "result": {name: value for name, value in result.items() if name != "coef"},
    }
    text = json.dumps(content, indent=1, default=_plain)
    write_whole(Path(path), lambda file: file.write(text.encode()))


def load(path: str | Path) -> SparseModel:
    """The model that `save` wrote: it predicts, and knows its result except for the history."""
    try:
        content = json.loads(Path(path).read_text())
        form = content["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a model file ({type(error).__name__}: {error})") from None
    if form != FORMAT:
        raise ValueError(f"{path} has format {form}, this version reads {FORMAT}; fit the model again")
    name = content["model"]
    if name not in estimators.__all__:
        raise ValueError(f"{path} holds a model {name!r} that this version does not know")
    model: SparseModel = getattr(estimators, name)(**content["parameters"])
    for key, value in content["learned"].items():
        kind = object if key == "feature_names_in_" else None
        setattr(model, key, np.array(value, dtype=kind) if isinstance(value, list) else value)
    coef = np.zeros(content["coef"]["shape"])
    coef[content["coef"]["rows"], content["coef"]["columns"]] = content["coef"]["values"]
    stored = content["result"] | {"coef": coef, "status": Status[content["result"]["status"]], "history": ()}
    stored["kappa"] = tuple(stored["kappa"])
    for key in ("intercept", "objectives", "lower_bounds"):
        stored[key] = np.array(stored[key], dtype=np.float64)
    model.result_ = Result(**stored)
    return model


# What estimators learn besides their result.
_LEARNED = ("n_features_in_", "feature_names_in_", "classes_", "_single")


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Status):
        return value.name
    raise TypeError(f"a model file cannot hold {value!r}")
