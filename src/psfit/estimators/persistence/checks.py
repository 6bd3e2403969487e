"""Checks of a model file: every value has the right type, lies in its range, and agrees with the others."""

import math
import re
from collections.abc import Callable, Collection
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.record import Record
from psfit.comm import GridSpec
from psfit.common.status import Status
from psfit.data import memory
from psfit.estimators.constraints import RULES as CONSTRAINT_RULES
from psfit.estimators.criteria import CRITERIA
from psfit.estimators.model import SparseModel
from psfit.estimators.persistence.constraint_values import check_coefficients, read_argument
from psfit.estimators.registry import entry_for, losses_of
from psfit.estimators.settings import AUTO
from psfit.estimators.targets import Target
from psfit.losses import Loss
from psfit.pipeline.result import Result
from psfit.search.explore import Contribution

SETTINGS: dict[str, type] = {"solver": BiCADMM, "grid": GridSpec}
# Parts of a result that are stored as arrays, not in the JSON.
APART = ("coef", "intercept", "objectives", "lower_bounds", "history", "spreads")
# A bound may be above its objective by this share, because of rounding.
SLACK = 1e-6
# Bytes that a list of texts may take when all have the same length, even if the texts are short.
MOST_PADDING = 64 << 20
CV_ARRAY = re.compile(
    r"cv_((mean|std)_(fit_time|score_time|test_score)|param_(gamma|kappa)|rank_test_score|split\d{1,6}_test_score)"
)


class ContentError(ValueError):
    """A model file has a value that no model can have."""


def require(fine: bool, what: str) -> None:
    """Refuse the file with a reason, unless all is `fine`."""
    if not fine:
        raise ContentError(what)


def is_count(value: Any, least: int = 0) -> bool:
    """Whether this is a whole number of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


def is_number(value: Any) -> bool:
    """Whether this is a number; NaN and infinity are allowed, integers of more than 64 bits are not."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)


def is_positive(value: Any) -> bool:
    """Whether this is a finite number above zero."""
    return is_number(value) and 0 < value < math.inf


def is_gamma(value: Any) -> bool:
    """Whether this is a number above zero, or infinity."""
    return is_number(value) and value > 0


def is_text(value: Any) -> bool:
    """Whether this is a text, of any length."""
    return isinstance(value, str)


def _is_number_or_text(value: Any) -> bool:
    return is_number(value) or is_text(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or (is_count(value) and value < 2)


def is_none_or(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A test that also allows None."""
    return lambda value: value is None or test(value)


def are_all(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A test for lists whose entries all pass."""
    return lambda value: isinstance(value, list) and all(map(test, value))


def is_one_of(names: Collection[str]) -> Callable[[Any], bool]:
    """A test for texts that are among some names."""
    return lambda value: isinstance(value, str) and value in names


def _is_weight(pair: Any) -> bool:
    """Whether this is a label and its weight."""
    return isinstance(pair, list) and len(pair) == 2 and is_label(pair[0]) and is_number(pair[1]) and pair[1] >= 0


def is_label(value: Any) -> bool:
    """Whether this can be the name of a class."""
    return isinstance(value, (str, bool)) or (is_number(value) and math.isfinite(value))


PARAMETERS: dict[str, Callable[[Any], bool]] = {
    "kappa": is_none_or(is_positive),
    "gamma": lambda value: is_gamma(value) or value == AUTO,
    "kappas": is_none_or(are_all(lambda value: is_count(value, 1))),
    "gammas": lambda value: is_gamma(value) or value == AUTO or are_all(is_gamma)(value),
    "sparsity": is_one_of(("element", "feature")),
    "loss": is_text,
    "huber_delta": is_positive,
    "power": lambda value: is_number(value) and 1 <= value <= 2,
    "class_weight": is_none_or(lambda value: value == "balanced" or are_all(_is_weight)(value)),
    "criterion": is_one_of(("cv", *CRITERIA)),
    "cv": is_none_or(lambda value: is_count(value, 2)),
    "scoring": is_none_or(is_text),
    "effort": is_none_or(is_one_of(("low", "medium", "high"))),
    **dict.fromkeys(("tol", "time_limit"), is_none_or(is_positive)),
    "max_iter": is_none_or(lambda value: is_count(value, 1)),
    "n_jobs": is_none_or(lambda value: is_count(value, 1) or value == -1),
    "random_state": is_none_or(is_count),
    "verbose": lambda value: _is_flag(value) or is_number(value),
    "callback": lambda value: value is None,
    **dict.fromkeys(("fit_intercept", "standardize", "certify", "warm_start", "one_standard_error"), _is_flag),
}


def check_parameters(kind: type[SparseModel], parameters: Any) -> dict[str, Any]:
    """The arguments of the estimator, without the folder for checkpoints: a file must not choose a folder."""
    require(isinstance(parameters, dict), "its parameters are not an object")
    known = kind._get_param_names()
    # Files of older versions have no groups.
    found: dict[str, Any] = {"groups": None}
    for name, value in parameters.items():
        require(name in known, f"{kind.__name__} has no parameter {name!r}")
        if name in SETTINGS:
            found[name] = None if value is None else _setting(name, value)
        elif name in CONSTRAINT_RULES:
            found[name] = read_argument(name, value)
        else:
            require(PARAMETERS[name](value), f"{name}={_short(value)} is not a value of this parameter")
            if name == "loss":
                own = "; if it is a loss of your own, register it before you load the model"
                require(value in losses_of(kind.__name__), f"{kind.__name__} has no loss {_short(value)}{own}")
            found[name] = dict(value) if name == "class_weight" and isinstance(value, list) else value
    return found


def _setting(name: str, values: Any) -> Any:
    """The solver or the grid; each field must have the type of its default. A default of None allows several types."""
    kind = SETTINGS[name]
    require(isinstance(values, dict), f"its {name} is not an object")
    known = {field.name: field.default for field in fields(kind)}
    kept = {key: value for key, value in values.items() if key != "checkpoint"}
    for key, value in kept.items():
        default = known.get(key, MISSING)
        fits = default is not MISSING and (value is default or _test_of(key, default)(value))
        require(fits, f"{key}={_short(value)} is not a setting of its {name}")
    try:
        return kind(**kept)
    except (TypeError, ValueError) as error:
        raise ContentError(f"its {name} cannot be used ({error})") from None


def _test_of(key: str, default: Any) -> Callable[[Any], bool]:
    """The test for values of a setting with this default."""
    if key == "nodes":
        return is_none_or(lambda nodes: is_count(nodes, 1))
    if isinstance(default, bool):
        return _is_flag
    return is_number if is_number(default) else _is_number_or_text


def check_shape(shape: Any) -> tuple[int, int]:
    """The numbers of features and outputs; memory must be able to hold that many coefficients."""
    require(
        isinstance(shape, list) and len(shape) == 2 and all(is_count(n, 1) for n in shape),
        "its shape is not two positive whole numbers",
    )
    p, c = shape
    require(8 * p * c <= memory.available() // 2, f"{p:,} x {c:,} coefficients do not fit in memory")
    return p, c


def check_labels(value: Any, count: int | None, test: Callable[[Any], bool], what: str) -> np.ndarray:
    """The array of the names of features or classes."""
    require(isinstance(value, dict) and value.keys() == {"dtype", "values"}, f"its {what} are not a list with a type")
    values, kind = value["values"], value["dtype"]
    require(isinstance(values, list) and all(map(test, values)), f"its {what} have values that are not allowed")
    require(count is None or len(values) == count, f"it has {len(values)} {what}, but needs {count}")
    require(
        isinstance(kind, str) and re.fullmatch(r"object|[<|>][biufU]\d{1,9}", kind) is not None,
        f"its {what} have no known type",
    )
    room = 4 * int(kind[2:] or 0) * len(values) if kind[1] == "U" else 0
    require(
        room <= MOST_PADDING + 64 * sum(map(len, map(str, values))),
        f"its {what} are shorter than their type {kind} says",
    )
    made = np.array(values, dtype=kind)
    require(made.shape == (len(values),) and made.tolist() == values, f"its {what} are not of their type {kind}")
    return made


def check_result(
    model: SparseModel, stored: Any, ridge: dict[str, Any], shape: tuple[int, int], arrays: dict[str, np.ndarray]
) -> Result:
    """The result of the fit; its values must agree with each other and with the kind of model.

    The `ridge` is that of files that say nothing about it.
    """
    # Files of older versions say nothing about starts and constraints.
    before = {"starts": [], "constraints": [], "counted": ""} | ridge
    stored = before | stored if isinstance(stored, dict) else stored
    _check_facts(model, stored)
    kappa, coef = stored["kappa"], _coefficients(arrays, shape)
    wrong = check_coefficients(model, stored["loss"], stored["sparsity"], coef, kappa)
    require(not wrong, wrong)
    intercept = _vector(arrays, "intercept", shape[1], "f")
    objectives, bounds = (_vector(arrays, name, len(kappa), "f") for name in ("objectives", "lower_bounds"))
    require(bool(np.isfinite(intercept).all() and np.isfinite(objectives).all()), "its numbers are not finite")
    require(bool((bounds <= objectives + SLACK * np.abs(objectives)).all()), "its bound lies above its objective")
    made: dict[str, Any] = {"coef": coef, "intercept": intercept, "objectives": objectives, "lower_bounds": bounds}
    made |= {"status": Status[stored["status"]], "kappa": tuple(kappa), "history": _history(arrays, stored["n_iter"])}
    made["starts"] = tuple(Contribution(**one) for one in stored["starts"])
    made["constraints"] = tuple(stored["constraints"])
    return Result(**stored | made)


def possible_losses(model: SparseModel, target: Target) -> list[type[Loss]]:
    """The losses with which such a model can have been fitted to such targets."""
    return [entry_for(name, target).loss for name in losses_of(type(model).__name__)]


def _check_facts(model: SparseModel, stored: Any) -> None:
    """Check all values of a result that are not arrays."""
    require(isinstance(stored, dict), "its result is not an object")
    names = {field.name for field in fields(Result)} - set(APART)
    require(stored.keys() == names, f"its result lacks or adds {sorted(stored.keys() ^ names)}")
    tests: dict[str, Callable[[Any], bool]] = {
        "loss": is_one_of([loss.name for loss in possible_losses(model, model.learned_.target)]),
        "sparsity": is_one_of(("element", "feature")),
        "status": is_one_of(Status.__members__),
        **dict.fromkeys(("local", "counted"), is_text),
        "gamma": is_gamma,
        "standardize": _is_flag,
        "constraints": are_all(is_text),
        "starts": lambda value: isinstance(value, list) and all(map(_is_start, value)),
        "residual": is_number,
        "penalties": lambda value: isinstance(value, dict) and all(map(is_number, value.values())),
        **dict.fromkeys(("samples", "nodes", "blocks"), lambda value: is_count(value, 1)),
        **dict.fromkeys(("n_iter", "certain_in", "certain_out", "tree_nodes", "candidates"), is_count),
        **dict.fromkeys(("seconds", "passes"), lambda value: is_number(value) and 0 <= value < math.inf),
    }
    for name, test in tests.items():
        require(test(stored[name]), f"{name}={_short(stored[name])} is not possible for a {type(model).__name__}")


def _is_start(value: Any) -> bool:
    """Whether this is what a kind of start led to."""
    if not isinstance(value, dict) or value.keys() != {field.name for field in fields(Contribution)}:
        return False
    return is_text(value["kind"]) and is_count(value["problem"]) and all(is_number(value[k]) for k in ("start", "end"))


def _coefficients(arrays: dict[str, np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    count = len(np.atleast_1d(arrays["coef_rows"]))
    rows, columns = (_vector(arrays, f"coef_{name}", count, "iu") for name in ("rows", "columns"))
    values = _vector(arrays, "coef_values", count, "f")
    inside = all(not count or (at.min() >= 0 and at.max() < n) for at, n in zip((rows, columns), shape, strict=True))
    require(inside, f"it has coefficients outside of {shape[0]} features and {shape[1]} outputs")
    require(bool(np.isfinite(values).all()), "its coefficients are not finite")
    coef = np.zeros(shape)
    coef[rows, columns] = values
    require(np.count_nonzero(coef) == count, "it has coefficients of zero, or two in one place")
    return coef


def _history(arrays: dict[str, np.ndarray], count: int) -> tuple[Record, ...]:
    columns = {field.name: _vector(arrays, f"history_{field.name}", count, "iuf").tolist() for field in fields(Record)}
    # NaN means "unknown" for the objective only; a residual may be NaN.
    columns["objective"] = [None if value != value else value for value in columns["objective"]]
    return tuple(Record(*values) for values in zip(*columns.values(), strict=True))


def _vector(arrays: dict[str, np.ndarray], name: str, count: int, kinds: str) -> np.ndarray:
    """Take an array of `count` numbers of these kinds out of `arrays`."""
    require(name in arrays, f"there is no array {name!r}")
    values = arrays.pop(name)
    require(values.shape == (count,) and values.dtype.kind in kinds, f"{name!r} is not {count} number(s) of its kind")
    return values


def _short(value: Any) -> str:
    """A value as a message shows it, cut if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
