"""What a fit has learnt about the columns of its files, so that other files are read alike."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["number", "boolean", "category"]
# The first that is possible for all cells of a column is its kind.
KINDS: tuple[Kind, ...] = ("number", "boolean", "category")


class SchemaError(ValueError):
    """Columns that cannot be told apart, or that are not there."""


def twice(names: Sequence[str]) -> str:
    """The first name that occurs twice, where one does."""
    counts = Counter(names)
    return next(name for name in names if counts[name] > 1)


@dataclass(frozen=True)
class Feature:
    """A feature: a column of numbers, or whether a column holds a certain level."""

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
        Numbers and booleans are one feature; a category is one for each level.
    levels : tuple of str
        The texts that a category may hold, sorted.
    """

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()

    @property
    def features(self) -> list[Feature]:
        """The features that are made of the column."""
        if self.kind == "category":
            return [Feature(f"{self.name}={level}", self.name, level) for level in self.levels]
        return [Feature(self.name, self.name)]


@dataclass(frozen=True)
class Schema:
    """How the files of a fit were read; the files to predict from are read in the same way, by name.

    Parameters
    ----------
    columns : tuple of Column
        The columns behind the features; empty where columns have no kinds: in arrays and svmlight files.
    target : {"number", "boolean", "category"} or None
        The kind of the target; a category is read as text.
    first_index : {0, 1} or None
        What svmlight files call their first column; None for other formats.
    target_name : str or None
        The column of the target; other files have it there too, unless another is named.
    """

    columns: tuple[Column, ...] = ()
    target: Kind | None = None
    first_index: int | None = None
    target_name: str | None = None

    def __post_init__(self) -> None:
        names = [feature.name for column in self.columns for feature in column.features]
        if len(set(names)) < len(names):
            raise SchemaError(f"two features would be called {twice(names)!r}; rename one of their columns")

    def features(self, asked: Sequence[str] | None = None) -> list[Feature]:
        """All features, or those asked for: by their own names, or all of a column by the column's name."""
        every = {feature.name: [feature] for column in self.columns for feature in column.features}
        if asked is None:
            return [feature for found in every.values() for feature in found]
        whole = {column.name: column.features for column in self.columns}
        known = whole | every
        for name in asked:
            if name not in known:
                raise SchemaError(f"columns={name!r}: no column has this name, and no level of a column makes it")
        return [feature for name in asked for feature in known[name]]

    def to_dict(self) -> dict[str, Any]:
        """The same as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> "Schema":
        """What `to_dict` gave."""
        columns = (Column(one["name"], one["kind"], tuple(one["levels"])) for one in found["columns"])
        return cls(tuple(columns), found["target"], found["first_index"], found.get("target_name"))
