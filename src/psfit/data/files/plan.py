"""From the columns of a table to features: which column each of them is, or which text of a column it stands for."""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psfit.data.files.base import DataFileError, MissingError, Wanted, require_finite

# Columns that a message lists.
MOST_LISTED = 20


@dataclass(frozen=True)
class Feature:
    """A feature: a column of numbers, or whether a column holds a certain text."""

    name: str
    column: str
    text: str | None = None


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds text or categories."""
    kind = _value(kind)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_number(kind: pa.DataType) -> bool:
    """Whether a column holds numbers; a column of nothing but gaps counts as one, and its gaps are reported."""
    types, kind = pa.types, _value(kind)
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def _value(kind: pa.DataType) -> pa.DataType:
    """What the categories of a column are."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


@dataclass(frozen=True)
class Plan:
    """How the columns of one table are used."""

    path: Path
    schema: pa.Schema
    target: str | None
    weight: str | None
    asked: tuple[Feature, ...]

    @classmethod
    def of(cls, path: Path, schema: pa.Schema, wanted: Wanted) -> "Plan":
        """Check what is wanted against what there is."""
        names = schema.names
        if not names:
            raise DataFileError(f"{path}: the table has no columns")
        if len(set(names)) < len(names):
            raise DataFileError(f"{path}: column {_twice(names)!r} occurs twice; rename one of them")
        target = None
        if wanted.labelled:
            target = _named(path, names, "target", names[-1] if wanted.target is None else wanted.target)
        weight = None if wanted.weight is None else _named(path, names, "sample_weight", wanted.weight)
        if wanted.columns is None:
            # A target that nobody asks for is no feature either.
            asked = tuple(Feature(name, name) for name in names if name not in (target, weight, wanted.target))
        else:
            asked = tuple(_feature(path, names, name, wanted.one_hot) for name in wanted.columns)
        if not asked:
            hint = "; it looks as if semicolons part its cells, but .csv means commas" if ";" in str(target) else ""
            raise DataFileError(f"{path}: there is no column left for features besides {target!r}{hint}")
        for feature in asked:
            _require_usable(path, feature.column, schema.field(feature.column).type, wanted.one_hot)
        if any(feature.column == target for feature in asked):
            raise DataFileError(f"{path}: column {target!r} is the target; leave it out of columns, or name another")
        if weight is not None:
            _require_usable(path, weight, schema.field(weight).type, False)
        return cls(path, schema, target, weight, asked)

    @property
    def sources(self) -> list[str]:
        """The columns behind the features."""
        return list(dict.fromkeys(feature.column for feature in self.asked))

    @property
    def textual(self) -> list[str]:
        """Columns that become as many as they have texts."""
        return [f.column for f in self.asked if f.text is None and is_text(self.schema.field(f.column).type)]

    @property
    def dtype(self) -> np.dtype:
        """Single precision if no column holds more."""
        kinds = [self.schema.field(name).type for name in self.sources]
        single = all(pa.types.is_float32(kind) or pa.types.is_float16(kind) for kind in kinds)
        return np.dtype(np.float32 if single else np.float64)

    def features(self, texts: dict[str, list[str]]) -> list[Feature]:
        """Features in the order asked for; those of a column of text in the order of `texts`."""
        found: list[Feature] = []
        for feature in self.asked:
            name = feature.column
            several = feature.text is None and name in texts
            found += [Feature(f"{name}={text}", name, text) for text in texts[name]] if several else [feature]
        return found

    def block(self, batch: pa.RecordBatch, features: list[Feature], first: int) -> np.ndarray:
        """The features ``(rows, p)`` of a batch that begins with row `first`."""
        out = np.empty((batch.num_rows, len(features)), dtype=self.dtype)
        for j, feature in enumerate(features):
            column = self._complete(batch, feature.column, first)
            if feature.text is not None:
                column = pc.equal(column.cast(pa.string()), feature.text)
            out[:, j] = column.to_numpy(zero_copy_only=False)
        require_finite(out, self.path, tuple(feature.name for feature in features), first)
        return out

    def beside(self, batch: pa.RecordBatch, name: str, first: int) -> np.ndarray:
        """A column that is no feature, as it is."""
        column = self._complete(batch, name, first)
        if is_text(column.type):
            return np.asarray(column.cast(pa.string()).to_numpy(zero_copy_only=False), dtype=str)
        if not is_number(column.type):
            raise DataFileError(f"{self.path}: column {name!r} holds {column.type}; use numbers or text")
        values = np.asarray(column.to_numpy(zero_copy_only=False))
        require_finite(values.reshape(-1, 1), self.path, (name,), first)
        return values

    def _complete(self, batch: pa.RecordBatch, name: str, first: int) -> pa.Array:
        column = batch.column(batch.schema.get_field_index(name))
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.null_count:
            raise MissingError(self.path, name, first + pc.index(column.is_null(), True).as_py())
        return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column


def _named(path: Path, names: list[str], argument: str, name: str | int) -> str:
    if name not in names:
        near = get_close_matches(str(name).lower(), [one.lower() for one in names], 1)
        meant = f" (did you mean {next(one for one in names if one.lower() == near[0])!r}?)" if near else ""
        shown = ", ".join(names[:MOST_LISTED]) + (f" and {len(names) - MOST_LISTED} more" * (len(names) > MOST_LISTED))
        raise DataFileError(f"{path}: {argument}={name!r}: there is no such column{meant}; its columns are {shown}")
    return str(name)


def _feature(path: Path, names: list[str], name: str, one_hot: bool) -> Feature:
    """A feature by its name; with one-hot columns ``colour=red`` comes from ``colour``."""
    if name not in names and one_hot:
        for cut in (at for at, letter in enumerate(name) if letter == "="):
            if name[:cut] in names:
                return Feature(name, name[:cut], name[cut + 1 :])
    return Feature(name, _named(path, names, "columns", name))


def _require_usable(path: Path, name: str, kind: pa.DataType, one_hot: bool) -> None:
    if is_number(kind) or (one_hot and is_text(kind)):
        return
    if is_text(kind):
        raise DataFileError(
            f"{path}: column {name!r} holds text; leave it out (columns), encode it as numbers, or ask for one_hot"
        )
    raise DataFileError(f"{path}: column {name!r} holds {kind}; turn it into numbers or leave it out (columns)")


def _twice(names: list[str]) -> str:
    return next(name for k, name in enumerate(names) if name in names[:k])
