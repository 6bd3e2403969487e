"""How the columns of a table become features, and how text files are written: what users may decide."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

from psfit.common.arguments import NONE, Rule, one_of
from psfit.common.names import quote_for_list
from psfit.data.schema import DATE_PARTS, MISSING, MISSING_TARGET, NEW_LEVELS, UNUSED, Schema

CATEGORIES = ("group", "columns")
# Characters that a shell does not take as they are.
NOT_PLAIN = re.compile(r"[^\w.,:@%+=/-]")


def _read_names(value: Any) -> tuple[str, ...]:
    """Names as a tuple; one text is refused, because it would be taken for its letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError
    names = tuple(value)
    if not all(isinstance(name, str) for name in names):
        raise TypeError
    return names


def _read_parts(value: Any) -> tuple[str, ...]:
    asked = DATE_PARTS if value == "all" else _read_names(value)
    if not set(asked) <= set(DATE_PARTS):
        raise ValueError
    return tuple(part for part in DATE_PARTS if part in asked)


def _read_mark(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1:
        raise TypeError
    return value


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError
    return value


NAMES = Rule("a sequence of names", _read_names)
MARK = Rule("one character", _read_mark)
RULES: dict[str, Rule] = {
    "categories": one_of(*CATEGORIES) | NONE,
    "dates": Rule(f"'all' or a sequence of {', '.join(DATE_PARTS)}", _read_parts),
    "missing": one_of(*MISSING),
    "missing_target": one_of(*MISSING_TARGET),
    "new_levels": one_of(*NEW_LEVELS),
    "exclude": NAMES,
    "ids": NAMES,
    "separator": MARK | NONE,
    "decimal": one_of(".", ",") | NONE,
    "thousands": MARK | NONE,
    "encoding": Rule("the name of an encoding, such as utf-8 or latin-1", _read_text) | NONE,
    "missing_marks": NAMES,
    "date_format": Rule("a format such as %d/%m/%Y", _read_text) | NONE,
}
# An offset that is the logarithm of a column.
LOGARITHM = re.compile(r"log\((.+)\)")
# The rules that decide how text is parsed, not what is made of it.
TEXT_RULES = ("separator", "decimal", "thousands", "encoding", "missing_marks", "date_format")


@dataclass(frozen=True, kw_only=True)
class TableRules:
    """How the columns of a table are used. Nothing is encoded, filled or left out unless it is asked for.

    Parameters
    ----------
    categories : {None, "group", "columns"}
        Turn a column of text into one feature for each text in it, named ``column=text``. With "group" a model has all
        features of the column or none, and kappa counts the column; with "columns" each feature counts by itself. None
        refuses text.
    dates : sequence of {"year", "month", "weekday", "trend"}, or "all"
        What is made of dates: ``when:year`` and ``when:trend`` (days since 1970) are numbers, ``when:month=1`` to
        ``12`` and ``when:weekday=1`` (Monday) to ``7`` are levels. If empty, dates are refused.
    missing : {"refuse", "fill", "indicator"}
        "fill" replaces missing numbers by the median of their column, missing levels and booleans by the most frequent
        one, as the fit has seen them. "indicator" adds a feature ``column:missing`` for each column where the fit has
        seen missing values.
    missing_target : {"refuse", "drop"}
        "drop" leaves out the rows of a table that have no target.
    new_levels : {"refuse", "zero"}
        At prediction, a text that the fit has not seen is refused, or has none of the levels.
    exclude : sequence of str
        Columns that are not used; ``*`` and ``?`` stand for any letters and for one letter.
    ids : sequence of str
        Columns that are no features, but are passed through to predictions.
    separator, decimal, thousands : str or None
        The characters of a text file between cells, before decimals, and between thousands; None detects them.
    encoding : str or None
        The encoding of a text file; None detects UTF-8, UTF-16 and Windows-1252.
    missing_marks : sequence of str
        More texts that mean a missing value; an empty cell, NA, N/A, NaN and null always do.
    date_format : str or None
        How dates are written in text files if not as 2026-01-31, such as ``%d/%m/%Y``.
    """

    categories: str | None = None
    dates: tuple[str, ...] = ()
    missing: str = "refuse"
    missing_target: str = "refuse"
    new_levels: str = "refuse"
    exclude: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    missing_marks: tuple[str, ...] = ()
    date_format: str | None = None

    def __post_init__(self) -> None:
        for name, rule in RULES.items():
            object.__setattr__(self, name, rule(name, getattr(self, name)))

    @property
    def rules(self) -> "TableRules":
        """Only the rules."""
        return TableRules(**{field.name: getattr(self, field.name) for field in fields(TableRules)})

    def list_changes(self, names: Iterable[str] = tuple(RULES)) -> list[str]:
        """The rules, or those of some names, that are not the default."""
        return [name for name in names if getattr(self, name) != getattr(TableRules, name)]


def rules_of(schema: Schema) -> dict[str, Any]:
    """The rules that made a schema, where they are not the default: with them, the same table makes it again."""
    used = [column for column in schema.columns if column.kind not in UNUSED]
    categories = [column for column in used if column.kind == "category"]
    asked = {column.missing for column in used}
    found = {
        "categories": ("columns" if any(column.single for column in categories) else "group") if categories else None,
        "dates": next((list(column.parts) for column in used if column.kind == "date"), []),
        "missing": next((rule for rule in ("indicator", "fill") if rule in asked), None),
        "missing_target": "drop" if schema.left_out else None,
        "new_levels": "zero" if any(column.new_levels == "zero" for column in used) else None,
        "exclude": [column.name for column in schema.columns if column.kind == "ignored"],
        "ids": list(schema.ids),
    }
    return {name: value for name, value in found.items() if value}


def text_rules_of(schema: Schema, given: Iterable[str] = ()) -> dict[str, Any]:
    """The rules that say how the text files of a fit were written, where that is known; they yield to given ones."""
    signs = {"decimal", "thousands"}
    barred = signs if signs & set(given) else set()
    return {name: value for name, value in asdict(schema.text).items() if value and name not in barred}


def split_offset(offset: str) -> tuple[str, bool]:
    """The column that an offset names, and whether its logarithm is meant: ``"log(exposure)"``."""
    found = LOGARITHM.fullmatch(offset)
    return (offset, False) if found is None else (found[1], True)


def option(name: str, value: str) -> str:
    """A rule as a message suggests it, for the command line and for Python."""
    shown = value.split(",") if name == "dates" else [value] if name in ("exclude", "ids") else value
    # A name with a comma is quoted for the option, and anything unusual for the shell.
    typed = quote_for_list(value) if name in ("exclude", "ids") else value
    flag = "id" if name == "ids" else name.replace("_", "-")
    return f"--{flag} {shlex.quote(typed) if NOT_PLAIN.search(typed) else typed} ({name}={shown!r})"
