"""Model files: a zip of JSON and NumPy arrays with all that prediction and reports need, and no code."""

from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from psfit import estimators
from psfit.admm.record import Record
from psfit.comm import Grid
from psfit.common.output_files import write_whole
from psfit.common.status import Status
from psfit.common.version import __version__
from psfit.estimators.constraints import RULES as CONSTRAINT_RULES
from psfit.estimators.model import SparseModel
from psfit.estimators.persistence import checks
from psfit.estimators.persistence.archive import ModelFileError, pack, unpack
from psfit.estimators.persistence.constraint_values import write_argument
from psfit.estimators.persistence.table_checks import check_table
from psfit.estimators.posing import Learned
from psfit.estimators.reading import Features
from psfit.estimators.registry import LOSSES
from psfit.estimators.results import Selection
from psfit.estimators.selecting import SelectingModel
from psfit.estimators.targets import Labels, Target
from psfit.pipeline.result import Result
from psfit.search.explore import Contribution

FORMAT = 3
# Endings of the model files that commands write.
MODELS = (".psfit",)
# The parts of the JSON; files of the first versions do not have the environment of the fit ("surroundings").
NEEDED = {"format", "psfit", "model", "parameters", "learned", "shape", "result"}
OPTIONAL = {"surroundings", "selection", "schema"}


def save(model: SparseModel, path: str | Path) -> None:
    """Write a fitted model; the file is complete or absent, never partial.

    Splitters, scorers and local solvers that are objects are left out, and so is the folder of checkpoints: a new fit
    needs them, prediction does not. Of a grid that was built, the request for it is written.
    """
    if hasattr(model, "to_local"):
        raise ModelFileError(f"a {type(model).__name__} belongs to an engine; save model.to_local(), a plain estimator")
    if not hasattr(model, "result_"):
        raise ModelFileError(f"this {type(model).__name__} is not fitted yet; call fit first")
    if type(model) is not getattr(estimators, type(model).__name__, None):
        raise ModelFileError(f"{type(model).__name__} is not one of PsFiT's own models; `load` could not read it")
    arrays: dict[str, np.ndarray] = {}
    result, table = model.result_, model.learned_.features.schema
    rows, columns = np.nonzero(result.coef)
    arrays |= {"coef_rows": rows, "coef_columns": columns, "coef_values": result.coef[rows, columns]}
    arrays |= {name: getattr(result, name) for name in ("intercept", "objectives", "lower_bounds")}
    if result.spreads is not None:
        arrays["spreads"] = result.spreads
    for field in fields(Record):
        values = [getattr(record, field.name) for record in result.history]
        arrays[f"history_{field.name}"] = np.array([np.nan if value is None else value for value in values])
    content: dict[str, Any] = {
        "format": FORMAT,
        "psfit": __version__,
        "model": type(model).__name__,
        "parameters": _parameters(model),
        "learned": _learned_content(model),
        "surroundings": model.learned_.surroundings,
        "schema": None if table is None else table.to_dict(),
        "shape": result.coef.shape,
        "result": {f.name: getattr(result, f.name) for f in fields(Result) if f.name not in checks.APART},
    }
    if isinstance(model, SelectingModel):
        content["selection"], chosen = _selection_content(model)
        arrays |= chosen
    packed = pack(content, arrays, _json_value)
    write_whole(Path(path), lambda file: file.write(packed))


def load(path: str | Path) -> SparseModel:
    """Read a model that `save` wrote: it can predict, and it has its result.

    Nothing in the file is executed, and all of it is checked: a file that `save` cannot have written is refused with a
    `ModelFileError`. The folder for checkpoints is not in the file; set it again before the next fit.
    """
    content, arrays = unpack(path)
    _require_format(path, content)
    try:
        return _make_model(content, arrays)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, MemoryError, RecursionError) as error:
        # The checks cover all values; any other error is also the fault of the file.
        raise ModelFileError(f"{path} cannot be used as a model: {error}") from None


def _require_format(path: str | Path, content: dict[str, Any]) -> None:
    name = content.get("model")
    if content.get("format") != FORMAT:
        raise ModelFileError(
            f"{path} has format {content.get('format')!r}, written by psfit {content.get('psfit', '?')!r}; this "
            f"version reads {FORMAT}. Use that version, or fit the model again"
        )
    kind = getattr(estimators, name, None) if isinstance(name, str) and name in estimators.__all__ else None
    if not isinstance(kind, type) or not issubclass(kind, SparseModel):
        raise ModelFileError(f"{path} holds a model {name!r} that this version does not know; install a newer psfit")


def _make_model(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> SparseModel:
    """Check every part of the file, and make the model."""
    odd = (content.keys() - NEEDED - OPTIONAL) | (NEEDED - content.keys())
    checks.require(not odd, f"it lacks or adds {sorted(odd)}")
    kind: type[SparseModel] = getattr(estimators, content["model"])
    model = kind(**checks.check_parameters(kind, content["parameters"]))
    shape = checks.check_shape(content["shape"])
    model.learned_ = _make_learned(model, content, *shape)
    # Files of earlier versions say nothing about the ridge of the fit: it was that of the parameters, or of the choice.
    ridge = {"gamma": content["learned"].get("gamma_", model.gamma), "standardize": model.standardize}
    model.result_ = checks.check_result(model, content["result"], ridge, shape, arrays)
    if "spreads" in arrays:
        spreads = arrays.pop("spreads")
        fits = spreads.shape == model.result_.support.shape and spreads.dtype.kind == "f" and bool((spreads >= 0).all())
        checks.require(fits, "the spreads of its features are not a number from zero for each of them")
        model.result_ = replace(model.result_, spreads=spreads)
    checks.require(
        ("selection" in content) == isinstance(model, SelectingModel),
        "it has a choice of the limit that its model does not have, or the other way round",
    )
    if isinstance(model, SelectingModel):
        _set_selection(model, content["selection"], arrays)
    checks.require(not arrays, f"it holds arrays {sorted(arrays)}, which no such model has")
    return model


def _make_learned(model: Any, content: dict[str, Any], p: int, c: int) -> Learned:
    """What the estimator has learned about its data."""
    learned, around = content["learned"], content.get("surroundings")
    labels = issubclass(LOSSES[model.loss].target, Labels)
    known = {"n_features_in_", "feature_names_in_", "classes_" if labels else "_single"}
    known |= {"kappa_"} if isinstance(model, SelectingModel) else set()
    # Files of earlier versions have the gamma that was chosen here, not in the result.
    known |= {"offset", "weight", "gamma_"}
    checks.require(isinstance(learned, dict), "what it has learned is not an object")
    # Files of earlier versions say nothing about offsets and weights.
    odd = (known - {"feature_names_in_", "offset", "weight", "gamma_"} - learned.keys()) | (learned.keys() - known)
    checks.require(not odd, f"a {type(model).__name__} that lacks or adds {sorted(odd)}")
    checks.require(learned["n_features_in_"] == p, f"its number of features is not {p}")
    names, table = learned.get("feature_names_in_"), content.get("schema")
    if "feature_names_in_" in learned:
        names = checks.check_labels(names, p, lambda name: isinstance(name, str), "names")
    target = _make_target(model, learned, c)
    if isinstance(model, SelectingModel):
        checks.require(checks.is_count(learned["kappa_"], 1), "the limit that it chose is not a positive number")
        model.kappa_ = learned["kappa_"]
    texts = around is None or (isinstance(around, dict) and all(map(checks.is_text, around.values())))
    checks.require(texts, "its environment is not text")
    offset, weight = learned.get("offset", False), learned.get("weight", False)
    checks.require(isinstance(offset, (bool, str)), "its offset is neither a column nor absent")
    checks.require(isinstance(weight, (bool, str)), "its weights are neither a column nor absent")
    features = Features(p, names, None if table is None else check_table(table, names))
    return Learned(features, target, around, offset, weight)


def _make_target(model: Any, learned: dict[str, Any], c: int) -> Target:
    """The targets of the fit, in agreement with the outputs of the model."""
    kind: Any = LOSSES[model.loss].target
    if not issubclass(kind, Labels):
        single = learned["_single"]
        checks.require(isinstance(single, bool) and (c == 1 or not single), "its targets are not those of its outputs")
        return kind.of(single, model.get_params(deep=False))
    classes = checks.check_labels(learned["classes_"], None, checks.is_label, "classes")
    checks.require(len(classes) >= 2 and np.unique(classes).tolist() == classes.tolist(), "its classes are not sorted")
    target = kind(classes)
    outputs = {target.outputs(loss) for loss in checks.possible_losses(model, target)}
    checks.require(c in outputs, f"its {len(classes)} classes need {min(outputs)} output(s), but it has {c}")
    return target


def _set_selection(model: SelectingModel, chosen: Any, arrays: dict[str, np.ndarray]) -> None:
    """Set how the limit was chosen."""
    checks.require(isinstance(chosen, dict) and chosen.keys() <= {"choice", "params"}, "its choice is malformed")
    choice = chosen["choice"]
    names = {"label", "kappa", "gamma", "best_kappa", "best_gamma"}
    # Files of earlier versions, and choices by other scores, have no losses to compare with.
    checks.require(isinstance(choice, dict) and choice.keys() - {"losses"} == names, "its choice is malformed")
    losses = choice.pop("losses", None)
    if losses is not None:
        numbers = (
            isinstance(losses, list)
            and len(losses) == 3
            and all(checks.is_number(one) and np.isfinite(one) for one in losses[1:])
        )
        checks.require(numbers and losses[0] in ("R2", "D2"), "the losses of its choice are malformed")
    kappas, gammas, scores = (arrays.pop(f"selection_{name}") for name in ("kappas", "gammas", "scores"))
    errors = arrays.pop("selection_errors", None)
    table = (len(gammas), len(kappas))
    checks.require(kappas.ndim == gammas.ndim == 1 and kappas.dtype.kind in "iu", "its limits are not whole numbers")
    checks.require(bool((kappas >= 1).all() and (gammas > 0).all()), "its limits or ridges are not above zero")
    shapes = scores.shape == table and (errors is None or errors.shape == table)
    checks.require(shapes, "its scores are not one for each limit and ridge")
    places = {"kappa": kappas, "best_kappa": kappas, "gamma": gammas, "best_gamma": gammas}
    among = all(choice[name] in values.tolist() for name, values in places.items())
    checks.require(among and checks.is_text(choice["label"]), "its choice is not one of its limits and ridges")
    checks.require(
        (model.kappa_, model.gamma_) == (choice["kappa"], choice["gamma"])
        and set(model.result_.kappa) == {model.kappa_},
        "it was fitted with a limit that it did not choose",
    )
    model.selection_ = Selection(
        kappas, gammas, scores, errors, **choice, losses=None if losses is None else tuple(losses)
    )
    if "params" in chosen:
        model.cv_results_ = _cv_results(chosen["params"], kappas, gammas, arrays)


def _cv_results(params: Any, kappas: np.ndarray, gammas: np.ndarray, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The table of a search in scikit-learn's form."""
    expected = [{"gamma": gamma, "kappa": kappa} for gamma in gammas.tolist() for kappa in kappas.tolist()]
    checks.require(params == expected, "its table of scores is not that of its limits and ridges")
    names = [name for name in arrays if checks.CV_ARRAY.fullmatch(name)]
    found = {name.removeprefix("cv_"): arrays.pop(name) for name in names}
    checks.require(all(values.shape == (len(params),) for values in found.values()), "its scores have other lengths")
    masked = {key: np.ma.MaskedArray(found[key], mask=False) for key in ("param_gamma", "param_kappa")}
    return found | masked | {"params": params}


def _parameters(model: SparseModel) -> dict[str, Any]:
    """The constructor's arguments that can be written as JSON."""
    kept: dict[str, Any] = {}
    for name, value in model.get_params(deep=False).items():
        if isinstance(value, Grid):
            kept[name] = _setting_values(value.spec)
        elif name in checks.SETTINGS:
            kept[name] = None if value is None else _setting_values(value)
        elif name in CONSTRAINT_RULES:
            kept[name] = write_argument(name, value)
        elif name == "class_weight" and isinstance(value, dict):
            kept[name] = [
                [_json_value(label) if isinstance(label, np.generic) else label, w] for label, w in value.items()
            ]
        elif value is None or isinstance(value, (bool, int, float, str, np.generic)):
            kept[name] = value
        elif name in ("kappas", "gammas"):
            # The argument may be an iterator that is exhausted; the selection has its values.
            kept[name] = getattr(model.selection_, name).tolist()
    return kept


def _setting_values(setting: Any) -> dict[str, Any]:
    """The plain values of a dataclass of settings, without the folder of checkpoints."""
    values = {field.name: getattr(setting, field.name) for field in fields(setting) if field.name != "checkpoint"}
    values |= {key: value.item() for key, value in values.items() if isinstance(value, np.generic)}
    return {key: value for key, value in values.items() if value is None or isinstance(value, (bool, int, float, str))}


def _learned_content(model: Any) -> dict[str, Any]:
    """What the estimator has learned about its data, by the names of its attributes."""
    target, names = model.learned_.target, model.learned_.features.names
    found = {"n_features_in_": model.n_features_in_} | ({} if names is None else {"feature_names_in_": names})
    found |= {"classes_": target.classes} if isinstance(target, Labels) else {"_single": target.single}
    kept = {"offset": model.learned_.offset, "weight": model.learned_.weight}
    found |= {name: one for name, one in kept.items() if one}
    if isinstance(model, SelectingModel):
        found |= {"kappa_": model.kappa_}
    return {name: _array_as_list(value) for name, value in found.items()}


def _array_as_list(value: Any) -> Any:
    """An array as a list with its type; any other value as it is."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == object and not all(isinstance(one, (str, int, float, bool)) for one in value):
        raise ModelFileError(f"labels such as {value[0]!r} cannot be written to a model file; use text or numbers")
    return {"dtype": "object" if value.dtype == object else value.dtype.str, "values": value.tolist()}


def _selection_content(model: SelectingModel) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """How the limit was chosen: small values for the JSON, and arrays."""
    choice = model.selection_
    arrays = {f"selection_{name}": getattr(choice, name) for name in ("kappas", "gammas", "scores")}
    if choice.errors is not None:
        arrays["selection_errors"] = choice.errors
    small = {name: getattr(choice, name) for name in ("label", "kappa", "gamma", "best_kappa", "best_gamma")}
    small |= {} if choice.losses is None else {"losses": list(choice.losses)}
    content: dict[str, Any] = {"choice": small}
    results = getattr(model, "cv_results_", None)
    if results is not None:
        content["params"] = results["params"]
        arrays |= {f"cv_{key}": np.asarray(value) for key, value in results.items() if key != "params"}
    return content, arrays


def _json_value(value: Any) -> Any:
    if isinstance(value, np.longdouble):
        # Its `tolist` returns a longdouble again.
        return float(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Status):
        return value.name
    if isinstance(value, Contribution):
        return asdict(value)
    raise ModelFileError(f"a model file cannot hold {value!r}")
