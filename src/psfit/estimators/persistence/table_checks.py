"""Checks of the schema in a model file: how the table of the fit was read."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from psfit.data.schema import DATE_PARTS, KINDS, MISSING, NEW_LEVELS, UNUSED, Schema
from psfit.estimators.persistence.checks import are_all, is_count, is_none_or, is_number, is_one_of, is_text, require


def check_table(found: Any, names: np.ndarray | None) -> Schema:
    """Check how the files of the fit were read: columns of known kinds that give all features of the model."""
    known = {"columns", "target", "first_index"}
    # Files of earlier versions do not name the target, and do not say how text was written.
    added = {"target_name", "text", "left_out"}
    require(isinstance(found, dict) and found.keys() - added == known, "its schema is malformed")
    _check_text(found.get("text", {}))
    require(is_count(found.get("left_out", 0)), "the number of rows that it has left out is malformed")
    require(found["target"] in (None, *KINDS) and found["first_index"] in (None, 0, 1), "its schema is malformed")
    require(is_none_or(is_text)(found.get("target_name")), "the target in its schema is malformed")
    require(isinstance(found["columns"], list), "its schema has no list of columns")
    for one in found["columns"]:
        require(isinstance(one, dict) and is_text(one.get("name")), "a column in its schema is malformed")
        _check_column(one)
    table = Schema.from_dict(found)
    if table.columns:
        made = {feature.name for feature in table.features()}
        require(names is not None and made >= set(names), "its schema does not give its features")
    return table


def _check_text(found: Any) -> None:
    """Check how text files were written."""
    tests: dict[str, Callable[[Any], bool]] = {
        "decimal": is_none_or(is_one_of((".", ","))),
        "thousands": is_none_or(lambda value: is_text(value) and len(value) == 1),
        "missing_marks": are_all(is_text),
        "date_format": is_none_or(is_text),
    }
    fine = isinstance(found, dict) and found.keys() <= tests.keys()
    fine = fine and all(tests[key](value) for key, value in found.items())
    fine = fine and (found.get("thousands") is None or found["thousands"] != found.get("decimal"))
    require(fine, "how its text files were written is malformed")


def _check_column(one: dict[str, Any]) -> None:
    """Check one column of a schema; files of earlier versions have only its name, its kind and its levels."""
    tests: dict[str, Callable[[Any], bool]] = {
        "name": is_text,
        "kind": is_one_of((*KINDS, *UNUSED)),
        "levels": are_all(is_text),
        "parts": are_all(is_one_of(DATE_PARTS)),
        "missing": is_one_of(MISSING),
        "fill": is_none_or(are_all(lambda value: is_number(value) and math.isfinite(value))),
        "new_levels": is_one_of(NEW_LEVELS),
        "single": lambda value: isinstance(value, bool),
    }
    fine = {"name", "kind", "levels"} <= one.keys() <= tests.keys()
    require(fine and all(tests[key](value) for key, value in one.items()), f"column {one['name']!r} is malformed")
    column = Schema.from_dict({"columns": [one], "target": None, "first_index": None}).columns[0]
    if column.fill is not None or (column.missing != "refuse" and column.kind not in UNUSED):
        fits = column.fill is not None and len(column.fill) == len(column.features)
        require(fits, f"what fills column {one['name']!r} does not fit its features")
