"""The arguments for constraints, which all estimators and procedures share: names, defaults, types, rules.

They are written once; `estimators/shared_arguments.py` puts them into signatures.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np

from psfit.common.arguments import BOOLEAN, NONE, Rule, integer, number, one_of

# The value of `groups` that makes groups of the columns which PsFiT made from the texts of one column of a file.
CATEGORIES = "categories"


class ConstraintArguments(TypedDict, total=False):
    """Keyword arguments; `Constrained` explains them."""

    include: Any
    exclude: Any
    count_included: bool
    lower: Any
    upper: Any
    positive: bool
    groups: Any
    kappa_counts: str
    at_most: Any
    heredity: str | None
    parents: Mapping[Any, Any] | None


DEFAULTS: dict[str, Any] = {
    "include": None,
    "exclude": None,
    "count_included": False,
    "lower": None,
    "upper": None,
    "positive": False,
    "groups": CATEGORIES,
    "kappa_counts": "groups",
    "at_most": None,
    "heredity": None,
    "parents": None,
}


def given_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for constraints among `arguments` that differ from their defaults."""
    found = {name: arguments[name] for name in DEFAULTS if name in arguments}
    return {name: value for name, value in found.items() if not _is_default(value, DEFAULTS[name])}


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, (str, bool, np.bool_)) and value == default)


class Constrained:
    """The parameters of all estimators that constrain coefficients. Features are given by name or by number.

    Parameters
    ----------
    include : feature or sequence of features, default=None
        Features that are always in the model. They pay the ridge. Kappa does not count them, unless `count_included`.
        The name of a group, or of a column of a file, stands for all of its features.
    exclude : feature or sequence of features, default=None
        Features that are never in the model.
    count_included : bool, default=False
        Whether kappa counts the features in `include`.
    lower, upper : float, array (p,) or (p, outputs), or dict, default=None
        The least and the largest value of a coefficient, in the units of X: one for all features, one for each, or by
        feature. Zero is always allowed.
    positive : bool, default=False
        No coefficient is negative: short for ``lower=0``.
    groups : array (p,) of labels, dict, "categories" or None, default="categories"
        Features that are in the model together or not at all: a label for each feature (None: alone), or a dict from
        labels to features. With "categories" these are the columns that `FileSource` makes with
        ``categories="group"`` from the texts of one column; other data then have no groups. None is no groups.
    kappa_counts : {"groups", "features"}, default="groups"
        Whether kappa counts the groups in the model, or their features.
    at_most : int or dict, default=None
        How many features of each group a model may use, for all groups or by label. The features are then chosen one by
        one: `groups` only says which of them share such a limit.
    heredity : {"strong", "weak"} or None, default=None
        Products of features are in the model only with all of their factors ("strong") or with one of them ("weak").
    parents : dict or None, default=None
        For `heredity`: from each product to its factors. None finds them by name: the factors of ``"a:b"`` are ``"a"``
        and ``"b"``, as `psfit.interactions` names them.
    """


def _read_feature(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return integer(0).read(value)


def _read_features(value: Any) -> list[Any]:
    """One feature or several, as a list; an iterator could be read only once and is refused."""
    if isinstance(value, (str, int, np.integer)):
        return [_read_feature(value)]
    if isinstance(value, (bytes, Mapping)) or not hasattr(value, "__len__"):
        raise TypeError
    return [_read_feature(one) for one in value]


def as_mapping(value: Any) -> Any:
    """A pandas Series as a dict by its index, so that nothing is matched by position; other values as they are."""
    return dict(value.items()) if _is_series(value) else value


def _is_series(value: Any) -> bool:
    return hasattr(value, "index") and hasattr(value, "items")


def _read_bounds(value: Any) -> Any:
    value = as_mapping(value)
    if isinstance(value, Mapping):
        return {_read_feature(key): BOUND.read(one) for key, one in value.items()}
    if np.ndim(value) == 0:
        return BOUND.read(value)
    if isinstance(value, (str, bytes)) or np.asarray(value).dtype.kind not in "iuf" or np.ndim(value) > 2:
        raise TypeError
    return np.asarray(value, dtype=float)


def _read_label(value: Any) -> Any:
    if not isinstance(value, (str, int, float, np.integer, np.floating)) or isinstance(value, bool):
        raise TypeError
    return value.item() if isinstance(value, np.generic) else value


def _read_groups(value: Any) -> Any:
    """A dict from labels to features, or a list of features with their labels."""
    if isinstance(value, Mapping):
        found = {_read_label(key): _read_features(one) for key, one in value.items()}
        if not all(found.values()):
            raise ValueError
        return found
    if _is_series(value):
        return [(_read_feature(key), _read_optional_label(one)) for key, one in value.items()]
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__") or np.ndim(value) != 1:
        raise TypeError
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        return list(enumerate(value.tolist()))
    return [(place, _read_optional_label(one)) for place, one in enumerate(value)]


def _read_optional_label(value: Any) -> Any:
    """A label, or None for a feature without a group: None, NaN, or a missing value of pandas."""
    missing = value is None or type(value).__name__ in ("NAType", "NaTType") or value != value
    return None if missing else _read_label(value)


def _read_limits(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_read_label(key): integer(1).read(one) for key, one in value.items()}
    return integer(1).read(value)


def _read_parents(value: Any) -> dict[Any, list[Any]]:
    if not isinstance(value, Mapping):
        raise TypeError
    found = {_read_feature(child): _read_features(parents) for child, parents in value.items()}
    if not all(found.values()):
        raise ValueError
    return found


BOUND = number("a number", lambda value: value == value)
FEATURES = Rule("the name or number of a feature, a sequence of them", _read_features)
BOUNDS = Rule("a number, an array (p,) or (p, outputs) of numbers, a dict from features to numbers", _read_bounds)
GROUPS = Rule("a label for each feature, a dict from labels to features", _read_groups)
RULES: dict[str, Rule] = {
    "include": FEATURES | NONE,
    "exclude": FEATURES | NONE,
    "count_included": BOOLEAN,
    "lower": BOUNDS | NONE,
    "upper": BOUNDS | NONE,
    "positive": BOOLEAN,
    "groups": one_of(CATEGORIES) | GROUPS | NONE,
    "kappa_counts": one_of("groups", "features"),
    "at_most": Rule("an integer of at least 1, a dict from labels to such integers", _read_limits) | NONE,
    "heredity": one_of("strong", "weak") | NONE,
    "parents": Rule("a dict from products to their factors", _read_parents) | NONE,
}
