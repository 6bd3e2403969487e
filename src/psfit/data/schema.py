"""What a fit has learned about the columns of its files, so that other files are read in the same way."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["number", "boolean", "category"]
# The first that is possible for all cells of a column is its kind.
KINDS: tuple[Kind, ...] = ("number", "boolean", "category")
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
    """A feature: a column of numbers, or whether a column has a certain level."""

    name: str
    column: str
    level: str | None = None


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    name : str
    kind : {"number", "boolean", "category"}
        Numbers and booleans give one feature; a category gives one for each level.
    levels : tuple of str
        The texts of a category, sorted.
    """

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()

    @property
    def features(self) -> list[Feature]:
        """The features that the column gives."""
        if self.kind == "category":
            return [Feature(f"{self.name}={level}", self.name, level) for level in self.levels]
        return [Feature(self.name, self.name)]


@dataclass(frozen=True)
class Schema:
    """How the files of a fit were read; files for prediction are read in the same way, by name.

    Parameters
    ----------
    columns : tuple of Column
        The columns that give the features; empty for arrays and svmlight files, whose columns have no kinds.
    target : {"number", "boolean", "category"} or None
        The kind of the target; a category is read as text.
    first_index : {0, 1} or None
        The number of the first column in svmlight files; None for other formats.
    target_name : str or None
        The column of the target; other files are read with the same one, unless another is named.
    """

    columns: tuple[Column, ...] = ()
    target: Kind | None = None
    first_index: int | None = None
    target_name: str | None = None

    def __post_init__(self) -> None:
        names = [feature.name for column in self.columns for feature in column.features]
        if len(set(names)) < len(names):
            raise SchemaError(f"two features would be called {first_duplicate(names)!r}; rename one of their columns")

    def features(self, asked: Sequence[str] | None = None) -> list[Feature]:
        """All features, or those asked for; the name of a column stands for all its features."""
        every = {feature.name: [feature] for column in self.columns for feature in column.features}
        if asked is None:
            return [feature for found in every.values() for feature in found]
        whole = {column.name: column.features for column in self.columns}
        known = whole | every
        for name in asked:
            if name not in known:
                raise SchemaError(f"columns={name!r}: there is no column and no level of a column with this name")
        return [feature for name in asked for feature in known[name]]

    def to_dict(self) -> dict[str, Any]:
        """The schema as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> "Schema":
        """The schema from what `to_dict` returned."""
        columns = (Column(one["name"], one["kind"], tuple(one["levels"])) for one in found["columns"])
        return cls(tuple(columns), found["target"], found["first_index"], found.get("target_name"))
