"""What a fit has learned about the columns of its table, so that other tables are read in the same way, by name."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Kind = Literal["number", "boolean", "date", "category", "id", "ignored"]
# The first that is possible for all cells of a column is its kind.
KINDS: tuple[Kind, ...] = ("number", "boolean", "date", "category")
# Columns that give no features: those that are passed through to predictions, and those that are not used.
UNUSED: tuple[Kind, ...] = ("id", "ignored")
# What can be made of a date, and the levels of the parts that have levels; weekday 1 is Monday.
DATE_PARTS = ("year", "month", "weekday", "trend")
PART_LEVELS = {"month": tuple(map(str, range(1, 13))), "weekday": tuple(map(str, range(1, 8)))}
# What happens to missing values, and to levels that the fit did not see.
MISSING = ("refuse", "fill", "indicator")
NEW_LEVELS = ("refuse", "zero")
# What happens to rows without a target.
MISSING_TARGET = ("refuse", "drop")
# Larger whole numbers are not exact in floating point.
EXACT = 2.0**53


class SchemaError(ValueError):
    """Two features have the same name, or a column does not exist."""


def first_duplicate(names: Sequence[str]) -> str:
    """The first name that occurs more than once; there must be one."""
    counts = Counter(names)
    return next(name for name in names if counts[name] > 1)


@dataclass(frozen=True)
class Feature:
    """A feature: a column of numbers, a part of a date, or whether a column has a level or has no value.

    Parameters
    ----------
    name : str
    column : str
        The column that it is made of.
    part : {"year", "month", "weekday", "trend", "missing", "logarithm"} or None
        The part of a date; "missing": 1 where the column has no value; or the logarithm of an offset.
    level : str or None
        The feature is 1 where the column, or this part of it, has the level, else 0.
    """

    name: str
    column: str
    part: str | None = None
    level: str | None = None

    @property
    def group(self) -> str:
        """The features of one group are the levels of one thing: of a category, or of a part of a date."""
        if self.level is None:
            return self.name
        return self.column if self.part is None else f"{self.column}:{self.part}"


@dataclass(frozen=True)
class Column:
    """A column of a table, and the features that are made of it.

    Parameters
    ----------
    name : str
    kind : {"number", "boolean", "date", "category", "id", "ignored"}
        Numbers and booleans give one feature, a category one for each level, a date one or more for each of its
        `parts`, the others none.
    levels : tuple of str
        The texts of a category, sorted.
    parts : tuple of str
        What is made of a date: "year", "month" (12 features), "weekday" (7 features), "trend" (days since 1970).
    missing : {"refuse", "fill", "indicator"}
        What happens to missing values; "indicator" fills them, and adds a feature that is 1 where a value is missing.
    fill : tuple of float or None
        The value of each feature where the column has none; None before it is learned, or where they are refused.
    new_levels : {"refuse", "zero"}
        What happens to a text that is none of the levels.
    single : bool
        Whether each level is a feature by itself; otherwise the levels are a group.
    """

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    missing: str = "refuse"
    fill: tuple[float, ...] | None = None
    new_levels: str = "refuse"
    single: bool = False

    @property
    def features(self) -> list[Feature]:
        """The features that the column gives."""
        if self.kind in UNUSED:
            return []
        name = self.name
        if self.kind == "category":
            made = [Feature(f"{name}={level}", name, None, level) for level in self.levels]
        elif self.kind == "date":
            made = [feature for part in self.parts for feature in _date_features(name, part)]
        else:
            made = [Feature(name, name)]
        return made + ([Feature(f"{name}:missing", name, "missing")] if self.missing == "indicator" else [])


def _date_features(name: str, part: str) -> list[Feature]:
    whole = f"{name}:{part}"
    if part not in PART_LEVELS:
        return [Feature(whole, name, part)]
    return [Feature(f"{whole}={level}", name, part, level) for level in PART_LEVELS[part]]


@dataclass(frozen=True)
class TextFormat:
    """How the text files of a fit were written; new ones are read in the same way, unless the user says otherwise.

    Parameters
    ----------
    decimal : {".", ","} or None
        What begins decimals; None if the files do not show it, or are no text.
    thousands : str or None
        What separates thousands, if something does.
    missing_marks : tuple of str
        The texts that meant a missing value besides those that always do.
    date_format : str or None
        How dates were written, if the user has said it.
    """

    decimal: str | None = None
    thousands: str | None = None
    missing_marks: tuple[str, ...] = ()
    date_format: str | None = None


@dataclass(frozen=True)
class Schema:
    """How the table of a fit was read; tables for prediction are read in the same way, by name.

    Parameters
    ----------
    columns : tuple of Column
        The columns; empty for arrays and svmlight files, whose columns have no kinds.
    target : {"number", "boolean", "category"} or None
        The kind of the target; a category is read as text.
    first_index : {0, 1} or None
        The number of the first column in svmlight files; None for other formats.
    target_name : str or None
        The column of the target; other tables are read with the same one, unless another is named.
    text : TextFormat
        How text files write numbers, missing values and dates.
    left_out : int
        Rows without a target, which the fit has left out.
    """

    columns: tuple[Column, ...] = ()
    target: Kind | None = None
    first_index: int | None = None
    target_name: str | None = None
    text: TextFormat = TextFormat()
    left_out: int = 0

    def __post_init__(self) -> None:
        names = [feature.name for column in self.columns for feature in column.features]
        if len(set(names)) < len(names):
            raise SchemaError(f"two features would be called {first_duplicate(names)!r}; rename one of their columns")

    def features(self, asked: Sequence[str] | None = None, exact: bool = False) -> list[Feature]:
        """All features, or those asked for; the name of a column stands for all its features, unless `exact`."""
        every = {feature.name: [feature] for column in self.columns for feature in column.features}
        if asked is None:
            return [feature for found in every.values() for feature in found]
        whole = {column.name: column.features for column in self.columns}
        # A number and its column have the same name; the column may give another feature, for missing values.
        known = every if exact else every | whole
        for name in asked:
            if name not in known:
                raise SchemaError(f"columns={name!r}: there is no column and no level of a column with this name")
        return list(dict.fromkeys(feature for name in asked for feature in known[name]))

    @property
    def ids(self) -> tuple[str, ...]:
        """The columns that are passed through to predictions."""
        return tuple(column.name for column in self.columns if column.kind == "id")

    @property
    def single(self) -> set[str]:
        """The categories whose levels are no groups."""
        return {column.name for column in self.columns if column.single}

    def group_labels(self, names: Sequence[str]) -> list[str | None]:
        """A label for each of some features, None for one that is no level: the levels of one category, or of one part
        of a date, have the same.
        """
        groups = {feature.name: feature.group for feature in self.features() if feature.level is not None}
        return [groups.get(name) for name in names]

    def fills(self, names: Sequence[str]) -> list[float]:
        """The values of some features where their columns have none; NaN where they are not known."""
        known: dict[str, float] = {}
        for column in self.columns:
            if column.fill is not None:
                known |= {made.name: value for made, value in zip(column.features, column.fill, strict=True)}
        return [known.get(name, float("nan")) for name in names]

    def with_fills(self, values: dict[str, float]) -> "Schema":
        """The same schema with the values, by feature, that fill missing ones."""

        def add(column: Column) -> Column:
            if column.missing == "refuse" or column.kind in UNUSED:
                return column
            return replace(column, fill=tuple(values[feature.name] for feature in column.features))

        return replace(self, columns=tuple(map(add, self.columns)))

    def to_dict(self) -> dict[str, Any]:
        """The schema as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> "Schema":
        """The schema from what `to_dict` returned."""
        columns = tuple(Column(**_with_tuples(one)) for one in found["columns"])
        # Files of earlier versions do not say how text was written, and left no rows out.
        text = TextFormat(**_with_tuples(found.get("text", {})))
        return cls(
            columns, found["target"], found["first_index"], found.get("target_name"), text, found.get("left_out", 0)
        )


def _with_tuples(found: dict[str, Any]) -> dict[str, Any]:
    """The same values; what JSON holds as a list is a tuple."""
    return {key: tuple(one) if isinstance(one, list) else one for key, one in found.items()}
