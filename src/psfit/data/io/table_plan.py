"""From the columns of a table to features, target, weights and offsets: which are read, and how."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psfit.common.names import list_names, suggest_name
from psfit.data.io.base import CellError, DataFileError, MissingError, PossibleKinds, ReadRequest, require_finite
from psfit.data.io.cells import first_of_other_kind, is_text, kinds_of_type, level_texts
from psfit.data.schema import Column, Feature, Kind, Schema, first_duplicate


@dataclass(frozen=True)
class TablePlan:
    """How the columns of one table are used; `types` are those of the file, or those that its first rows suggest."""

    path: Path
    types: pa.Schema
    wanted: ReadRequest
    target: str | None
    weight: str | None
    sources: tuple[str, ...]
    offset: str | None = None

    @classmethod
    def of(cls, path: Path, types: pa.Schema, wanted: ReadRequest) -> "TablePlan":
        """Check the request against the columns of the table."""
        names = types.names
        if not names:
            raise DataFileError(f"{path}: the table has no columns")
        if len(set(names)) < len(names):
            raise DataFileError(f"{path}: column {first_duplicate(names)!r} occurs twice; rename one of them")
        target = None
        if wanted.labelled:
            target = _require_column(
                path, names, "target", _default_target(names, wanted) if wanted.target is None else wanted.target
            )
        weight = None if wanted.weight is None else _require_column(path, names, "sample_weight", wanted.weight)
        if target is not None and target == weight:
            raise DataFileError(
                f"{path}: column {target!r} cannot be both the target and the sample weights; name the target "
                "(by default it is the last column)"
            )
        offset = None if wanted.offset is None else _require_column(path, names, "offset", wanted.offset)
        if offset is not None and offset in (target, weight):
            raise DataFileError(
                f"{path}: column {offset!r} cannot be the offset and also the target or the sample weights; name the "
                "target (by default it is the last column)"
            )
        # A target that is not read is not a feature either.
        others = [name for name in names if name not in (target, weight, offset, wanted.target)]
        sources = _source_columns(path, names, others, wanted)
        if not sources:
            hint = "; semicolons seem to separate its cells, but a .csv file needs commas" if ";" in str(target) else ""
            raise DataFileError(f"{path}: there is no column left for features besides {target!r}{hint}")
        if target in sources:
            raise DataFileError(f"{path}: column {target!r} is the target; leave it out of columns, or name another")
        if offset in sources:
            raise DataFileError(f"{path}: column {offset!r} is the offset; leave it out of columns")
        return cls(path, types, wanted, target, weight, sources, offset)

    def possible_kinds(self) -> PossibleKinds:
        """The kinds that the types of the columns allow; none for a column that cannot be used.

        Features that a fitted model knows are left out.
        """
        unknown = self.sources if self.wanted.schema is None else ()
        columns = {name: self._allowed_kinds(name, self.wanted.one_hot) for name in unknown}
        target = None if self.target is None else self._allowed_kinds(self.target, not self.wanted.numeric)
        return PossibleKinds(columns, target, self.target)

    def _allowed_kinds(self, name: str, texts: bool) -> tuple[Kind, ...]:
        kinds = kinds_of_type(self.types.field(name).type)
        return kinds if texts else tuple(kind for kind in kinds if kind != "category")

    def refuse(self, name: str, batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Raise the error of a column that cannot be used; `batches` of it show where its first text is."""
        kind = self.types.field(name).type
        if is_text(kind):
            for first, batch in batches:
                self._cells(batch, Column(name, "number"), first)
        use = "use numbers or text" if name == self.target else "turn it into numbers or leave it out (columns)"
        raise DataFileError(f"{self.path}: column {name!r} holds {kind}; {use}")

    def features(self, schema: Schema) -> list[Feature]:
        """The features to read, in the order of the request."""
        return schema.features(self.wanted.columns)

    def columns(self, schema: Schema) -> dict[str, Column]:
        """How every column is read, by name: those of the features, of the target, of weights and of offsets."""
        known = {column.name: column for column in schema.columns}
        found = {name: known[name] for name in self.sources}
        if self.target is not None:
            found[self.target] = Column(self.target, schema.target or "number")
        for name in (self.weight, self.offset):
            if name is not None:
                boolean = pa.types.is_boolean(self.types.field(name).type)
                found[name] = Column(name, "boolean" if boolean else "number")
        return found

    @property
    def other_columns(self) -> list[str]:
        """The columns that are not features: target, weights and offsets."""
        return [name for name in (self.target, self.weight, self.offset) if name is not None]

    @property
    def dtype(self) -> np.dtype:
        """Single precision if no column has more."""
        kinds = [self.types.field(name).type for name in self.sources]
        single = all(pa.types.is_float32(kind) or pa.types.is_float16(kind) for kind in kinds)
        return np.dtype(np.float32 if single else np.float64)

    def block(
        self, batch: pa.RecordBatch, features: list[Feature], columns: dict[str, Column], first: int
    ) -> np.ndarray:
        """The features ``(rows, p)`` of a batch that begins with row `first`."""
        out = np.empty((batch.num_rows, len(features)), dtype=self.dtype)
        places: dict[str, list[int]] = {}
        for j, feature in enumerate(features):
            places.setdefault(feature.column, []).append(j)
        for name, at in places.items():
            column = columns[name]
            cells = self._cells(batch, column, first)
            if column.kind == "category":
                codes = self._codes(level_texts(cells), column, first)
                numbers = {level: code for code, level in enumerate(column.levels)}
                for j in at:
                    out[:, j] = codes == numbers[str(features[j].level)]
            else:
                out[:, at] = cells.to_numpy(zero_copy_only=False).reshape(-1, 1)
        require_finite(out, self.path, tuple(feature.name for feature in features), first)
        return out

    def values(self, batch: pa.RecordBatch, column: Column, first: int) -> np.ndarray:
        """The values of the target, of the weights or of the offsets."""
        cells = self._cells(batch, column, first)
        if column.kind == "category":
            return np.asarray(level_texts(cells).to_numpy(zero_copy_only=False), dtype=str)
        values = np.asarray(cells.to_numpy(zero_copy_only=False))
        require_finite(values.reshape(-1, 1), self.path, (column.name,), first)
        return values.astype(bool) if column.kind == "boolean" else values

    def levels(self, batch: pa.RecordBatch, name: str, first: int) -> set[str]:
        """The different texts of a column."""
        return set(pc.unique(level_texts(self._cells(batch, Column(name, "category"), first))).to_pylist())

    def kind_error(self, name: str, kind: Kind, row: int, value: object) -> CellError:
        """The error of a cell that does not have the kind of its column."""
        what = f"text ({value!r})" if isinstance(value, str) else repr(value)
        return CellError(self.path, name, row, f"holds {what} in place of a {kind}", self._remedy(name))

    def _remedy(self, name: str) -> str:
        if name == self.weight:
            return "sample weights must be numbers"
        if name == self.offset:
            return "offsets must be numbers"
        if self.wanted.fitted:
            return "the model was fitted to another kind of data in this column; correct such cells or drop their rows"
        if name == self.target and self.wanted.numeric:
            return "correct such cells; for classes use the logistic loss (SparseLogisticRegression)"
        if name == self.target:
            return "write all labels as numbers, or all as text"
        if self.wanted.one_hot:
            return "write the column in the same way in all rows and files"
        return "correct such cells, leave the column out (columns), or use one_hot"

    def _cells(self, batch: pa.RecordBatch, column: Column, first: int) -> pa.Array:
        """The cells of a column; a missing cell or one of another kind is an error."""
        cells = batch.column(batch.schema.get_field_index(column.name))
        if pa.types.is_dictionary(cells.type):
            cells = cells.dictionary_decode()
        if cells.null_count:
            raise MissingError(self.path, column.name, first + pc.index(cells.is_null(), True).as_py())
        place = first_of_other_kind(cells, column.kind)
        if place is not None:
            raise self.kind_error(column.name, column.kind, first + place, cells[place].as_py())
        if column.kind == "category" and pa.types.is_floating(cells.type):
            # A missing number is not a level.
            require_finite(cells.to_numpy(zero_copy_only=False).reshape(-1, 1), self.path, (column.name,), first)
        return cells.cast(pa.float64()) if pa.types.is_decimal(cells.type) else cells

    def _codes(self, texts: pa.Array, column: Column, first: int) -> np.ndarray:
        """The number of each text in the levels of its column."""
        codes = pc.index_in(texts, value_set=pa.array(column.levels, pa.string()))
        if codes.null_count:
            row = pc.index(codes.is_null(), True).as_py()
            raise CellError(
                self.path,
                column.name,
                first + row,
                f"holds the level {texts[row].as_py()!r}, which the fit did not see",
                f"it saw {list_names(column.levels)}; correct such cells, drop their rows, or fit again with them",
            )
        return np.asarray(codes.to_numpy(zero_copy_only=False))


def _default_target(names: list[str], wanted: ReadRequest) -> str:
    """The target if none is named: the target of the fit, or the last column."""
    known = None if wanted.schema is None else wanted.schema.target_name
    return names[-1] if known is None else known


def _source_columns(path: Path, names: list[str], others: list[str], wanted: ReadRequest) -> tuple[str, ...]:
    """The columns that give the features."""
    if wanted.columns is None:
        return tuple(others)
    if wanted.schema is None:
        asked = [_source_column(names, name) if wanted.one_hot else name for name in wanted.columns]
    else:
        asked = [feature.column for feature in wanted.schema.features(wanted.columns)]
    return tuple(_require_column(path, names, "columns", name) for name in dict.fromkeys(asked))


def _source_column(names: list[str], name: str) -> str:
    """The column of a feature: with one-hot columns, ``colour=red`` comes from ``colour``."""
    cuts = (at for at, letter in enumerate(name) if letter == "=")
    return name if name in names else next((name[:cut] for cut in cuts if name[:cut] in names), name)


def _require_column(path: Path, names: list[str], argument: str, name: str | int) -> str:
    if name not in names:
        meant = suggest_name(name, names)
        raise DataFileError(
            f"{path}: {argument}={name!r}: there is no such column{meant}; its columns are {list_names(names)}"
        )
    return str(name)
