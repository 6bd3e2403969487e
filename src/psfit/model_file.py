"""Model files: a zip of JSON and NumPy arrays with everything that prediction and reports need, and no code.

The comment at the end of the zip is a digest of all bytes before it, so that a file that was cut, damaged or edited is
refused before anything in it is believed. Any zip tool can open the file.
"""

import hashlib
import io
import json
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from psfit import estimators
from psfit._version import __version__
from psfit.bicadmm import BiCADMM
from psfit.comm import GridSpec
from psfit.estimators._base import SparseModel
from psfit.estimators._selection import SelectingModel, Selection
from psfit.files import write_whole
from psfit.result import Record, Result, Status

FORMAT = 3
MARK = b"psfit sha256 "
# How the names of files that commands write end.
MODELS = (".psfit",)
# Zip members carry a date; a fixed one keeps equal models in equal files.
DATE = (1980, 1, 1, 0, 0, 0)
# What estimators learn besides their result.
LEARNED = ("n_features_in_", "feature_names_in_", "classes_", "_single", "kappa_", "gamma_")
SETTINGS: dict[str, type] = {"solver": BiCADMM, "grid": GridSpec}


class ModelFileError(ValueError):
    """A model file cannot be used; the message says why."""


def save(model: SparseModel, path: str | Path) -> None:
    """Write a fitted model; the file is either whole or not there.

    Splitters, scorers and local solvers that are objects are left out: they are needed to fit again, not to predict.
    """
    if not hasattr(model, "result_"):
        raise ModelFileError(f"this {type(model).__name__} is not fitted yet; call fit first")
    if type(model) is not getattr(estimators, type(model).__name__, None):
        raise ModelFileError(f"{type(model).__name__} is not one of PsFiT's own models; `load` would not know it")
    arrays: dict[str, np.ndarray] = {}
    result = model.result_
    rows, columns = np.nonzero(result.coef)
    arrays |= {"coef_rows": rows, "coef_columns": columns, "coef_values": result.coef[rows, columns]}
    arrays |= {name: getattr(result, name) for name in ("intercept", "objectives", "lower_bounds")}
    for field in fields(Record):
        values = [getattr(record, field.name) for record in result.history]
        arrays[f"history_{field.name}"] = np.array([np.nan if value is None else value for value in values])
    apart = ("coef", "intercept", "objectives", "lower_bounds", "history")
    content: dict[str, Any] = {
        "format": FORMAT,
        "psfit": __version__,
        "model": type(model).__name__,
        "parameters": _parameters(model),
        "learned": {name: _listed(vars(model)[name]) for name in LEARNED if name in vars(model)},
        "surroundings": getattr(model, "_surroundings", None),
        "shape": result.coef.shape,
        "result": {f.name: getattr(result, f.name) for f in fields(Result) if f.name not in apart},
    }
    if isinstance(model, SelectingModel):
        content["selection"], chosen = _selection(model)
        arrays |= chosen
    write_whole(Path(path), lambda file: file.write(_packed(content, arrays)))


def load(path: str | Path) -> SparseModel:
    """The model that `save` wrote: it predicts, and knows its result."""
    content, arrays = read(path)
    name = content["model"]
    if name not in estimators.__all__ or not name.startswith("Sparse"):
        raise ModelFileError(f"{path} holds a model {name!r} that this version does not know; install a newer psfit")
    parameters = content["parameters"]
    for key, kind in SETTINGS.items():
        if parameters.get(key) is not None:
            parameters[key] = kind(**parameters[key])
    if isinstance(parameters.get("class_weight"), list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    model: SparseModel = getattr(estimators, name)(**parameters)
    for key, value in content["learned"].items():
        setattr(model, key, np.array(value["values"], dtype=value["dtype"]) if isinstance(value, dict) else value)
    if content.get("surroundings") is not None:
        # Absent from files of the first versions.
        model._surroundings = content["surroundings"]
    model.result_ = _result(content, arrays)
    if isinstance(model, SelectingModel) and "selection" in content:
        chosen = content["selection"]
        errors = arrays.get("selection_errors")
        model.selection_ = Selection(
            arrays["selection_kappas"],
            arrays["selection_gammas"],
            arrays["selection_scores"],
            errors,
            **chosen["choice"],
        )
        if "params" in chosen:
            found = {key.removeprefix("cv_"): value for key, value in arrays.items() if key.startswith("cv_")}
            masked = {key: np.ma.MaskedArray(found[key], mask=False) for key in ("param_gamma", "param_kappa")}
            model.cv_results_ = found | masked | {"params": chosen["params"]}
    return model


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON and the arrays of a model file, once its digest has been found to be right."""
    data = Path(path).read_bytes()
    if not zipfile.is_zipfile(io.BytesIO(data)):
        raise ModelFileError(f"{path} is not a model file, or it was cut short")
    length = len(MARK) + 64
    body, comment = data[:-length], data[-length:]
    if not comment.startswith(MARK):
        raise ModelFileError(f"{path} is a zip, but no model file: it does not end with its digest")
    if comment != MARK + hashlib.sha256(body).hexdigest().encode():
        raise ModelFileError(f"{path} is damaged: its bytes do not have the digest they were written with")
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        content = json.loads(packed.read("model.json"))
        if content["format"] != FORMAT:
            raise ModelFileError(
                f"{path} has format {content['format']}, written by psfit {content.get('psfit', '?')}; this version "
                f"reads {FORMAT}. Use that version, or fit the model again"
            )
        names = [name for name in packed.namelist() if name.endswith(".npy")]
        arrays = {
            name.removesuffix(".npy"): np.load(io.BytesIO(packed.read(name)), allow_pickle=False) for name in names
        }
    return content, arrays


def _packed(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """The bytes of the file."""
    members = {"model.json": json.dumps(content, indent=1, default=_plain).encode()}
    for name, values in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, values, allow_pickle=False)
        members[f"{name}.npy"] = buffer.getvalue()
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in members.items():
            packed.writestr(zipfile.ZipInfo(name, DATE), data, zipfile.ZIP_DEFLATED)
        # The length of the comment is part of what is digested.
        packed.comment = MARK + b"0" * 64
    body = whole.getvalue()[: -len(MARK) - 64]
    return body + MARK + hashlib.sha256(body).hexdigest().encode()


def _parameters(model: SparseModel) -> dict[str, Any]:
    """The constructor's arguments, as far as they can be written down."""
    kept: dict[str, Any] = {}
    for name, value in model.get_params(deep=False).items():
        if name in SETTINGS:
            kept[name] = None if value is None else _written(value)
        elif name == "class_weight" and isinstance(value, dict):
            kept[name] = [[_plain(label) if isinstance(label, np.generic) else label, w] for label, w in value.items()]
        elif value is None or isinstance(value, (bool, int, float, str, np.generic)):
            kept[name] = value
        elif name in ("kappas", "gammas"):
            # An iterable may be used up; what came out of it is remembered.
            kept[name] = getattr(model.selection_, name).tolist()
    return kept


def _written(setting: Any) -> dict[str, Any]:
    """A dataclass of settings without what is no plain value."""
    values = {field.name: getattr(setting, field.name) for field in fields(setting)}
    values |= {key: str(value) for key, value in values.items() if isinstance(value, Path)}
    values |= {key: value.item() for key, value in values.items() if isinstance(value, np.generic)}
    return {key: value for key, value in values.items() if value is None or isinstance(value, (bool, int, float, str))}


def _listed(value: Any) -> Any:
    """An array as a list with its type, anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == object and not all(isinstance(one, (str, int, float, bool)) for one in value):
        raise ModelFileError(f"labels such as {value[0]!r} cannot be written to a model file; use text or numbers")
    return {"dtype": "object" if value.dtype == object else value.dtype.str, "values": value.tolist()}


def _selection(model: SelectingModel) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """How a limit was chosen: small things for the JSON, arrays apart."""
    choice = model.selection_
    arrays = {f"selection_{name}": getattr(choice, name) for name in ("kappas", "gammas", "scores")}
    if choice.errors is not None:
        arrays["selection_errors"] = choice.errors
    small = {name: getattr(choice, name) for name in ("label", "kappa", "gamma", "best_kappa", "best_gamma")}
    content: dict[str, Any] = {"choice": small}
    results = getattr(model, "cv_results_", None)
    if results is not None:
        content["params"] = results["params"]
        arrays |= {f"cv_{key}": np.asarray(value) for key, value in results.items() if key != "params"}
    return content, arrays


def _result(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> Result:
    coef = np.zeros(content["shape"])
    coef[arrays["coef_rows"], arrays["coef_columns"]] = arrays["coef_values"]
    history = {field.name: arrays[f"history_{field.name}"].tolist() for field in fields(Record)}
    # Only the objective may be unknown; a residual that is not a number stays one.
    history["objective"] = [None if value != value else value for value in history["objective"]]
    stored = content["result"]
    stored |= {"status": Status[stored["status"]], "kappa": tuple(stored["kappa"]), "coef": coef}
    stored |= {name: arrays[name] for name in ("intercept", "objectives", "lower_bounds")}
    return Result(**stored, history=tuple(Record(*values) for values in zip(*history.values(), strict=True)))


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Status):
        return value.name
    raise ModelFileError(f"a model file cannot hold {value!r}")
