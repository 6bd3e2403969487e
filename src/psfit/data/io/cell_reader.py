"""From the cells of a table's columns to features, targets, weights, offsets and levels."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psfit.common.names import list_names
from psfit.data.io.base import CellError, MissingError, require_finite
from psfit.data.io.cells import (
    OTHER_DATE_FORMATS,
    first_of_other_kind,
    guess_date_formats,
    is_text,
    level_texts,
    read_dates,
    suggest_date_formats,
)
from psfit.data.schema import Column, Feature, Kind
from psfit.data.table_rules import option

DAY = 86400e6
# Dates before this year are taken for mistakes; the forms of dates whose years have two digits.
FIRST_YEAR = 1000
SHORT_FORMATS = tuple(form for form in OTHER_DATE_FORMATS if "%y" in form)


class CellReader(ABC):
    """Reads the cells of one table; errors name the file, the column, the row and the remedy."""

    path: Path

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """The precision of the features."""

    @abstractmethod
    def takes_dates(self, kind: Kind) -> bool:
        """Whether a column of this kind may hold dates, and users can say how they are written: in a text file."""

    @abstractmethod
    def present(self, batch: pa.RecordBatch) -> np.ndarray | None:
        """Which rows are not left out; None if none is ever left out."""

    @abstractmethod
    def suggest_remedy(self, name: str) -> str:
        """What to do about a cell of a column that is not of its kind."""

    @abstractmethod
    def suggest_meaning(self, text: str) -> str | None:
        """What to do about a text that is probably a number or a missing value; None for other texts."""

    @abstractmethod
    def suggest_fill(self, name: str) -> str:
        """What to do about a missing value of a column."""

    def block(
        self, batch: pa.RecordBatch, features: list[Feature], columns: dict[str, Column], first: int
    ) -> np.ndarray:
        """The features ``(rows, p)`` of a batch that begins with row `first`; NaN where a value is to be filled."""
        out = np.empty((batch.num_rows, len(features)), dtype=self.dtype)
        places: dict[str, list[int]] = {}
        for j, feature in enumerate(features):
            places.setdefault(feature.column, []).append(j)
        strict, present = np.ones(len(features), dtype=bool), self.present(batch)
        for name, at in places.items():
            column = columns[name]
            cells = self._cells(batch, column, first)
            for j, values in zip(at, self._values(cells, column, [features[j] for j in at], first), strict=True):
                out[:, j] = values
            if cells.null_count:
                gaps = cells.is_null().to_numpy(zero_copy_only=False)
                for j in at:
                    out[gaps, j] = 1.0 if features[j].part == "missing" else np.nan
            strict[at] = column.missing == "refuse"
        if present is not None:
            out[~present] = 0.0
        self._require_finite(out, features, strict, first)
        return out

    def _require_finite(self, out: np.ndarray, features: list[Feature], strict: np.ndarray, first: int) -> None:
        """Refuse infinity, and NaN in the features whose missing values are refused."""
        names = tuple(feature.name for feature in features)
        if strict.all():
            require_finite(out, self.path, names, first)
        else:
            require_finite(np.where(np.isnan(out) & ~strict, 0.0, out), self.path, names, first)

    def _values(
        self, cells: pa.Array, column: Column, features: list[Feature], first: int
    ) -> Iterable[np.ndarray | float]:
        """The values of the features of one column; where a cell is missing, they have no meaning."""
        if column.kind == "category":
            codes = self._codes(level_texts(cells), column, first)
            numbers = {level: code for code, level in enumerate(column.levels)}
            return [codes == numbers[one.level] if one.level is not None else 0.0 for one in features]
        if column.kind == "date":
            return _date_values(read_dates(cells), features)
        values = cells if cells.null_count == 0 else cells.cast(pa.float64())
        numbers_only = np.asarray(values.to_numpy(zero_copy_only=False))
        return [0.0 if one.part == "missing" else numbers_only for one in features]

    def values(self, batch: pa.RecordBatch, column: Column, first: int) -> np.ndarray:
        """The values of the target, of the weights or of the offsets."""
        cells = self._cells(batch, column, first)
        if cells.null_count:
            # These rows are left out: any value will do.
            some = {"category": "", "boolean": True}.get(column.kind, 1)
            cells = (level_texts(cells) if column.kind == "category" else cells).fill_null(some)
        if column.kind == "category":
            return np.asarray(level_texts(cells).to_numpy(zero_copy_only=False), dtype=str)
        values = np.asarray(cells.to_numpy(zero_copy_only=False))
        require_finite(values.reshape(-1, 1), self.path, (column.name,), first)
        return values.astype(bool) if column.kind == "boolean" else values

    def id_values(self, batch: pa.RecordBatch, name: str) -> np.ndarray:
        """The cells of a column that is passed through; missing ones are None."""
        cells = batch.column(batch.schema.get_field_index(name))
        return np.asarray(cells.to_numpy(zero_copy_only=False), dtype=object)

    def count_levels(self, batch: pa.RecordBatch, column: Column, first: int) -> Counter[str]:
        """How often each text of a column occurs."""
        texts = level_texts(self._cells(batch, column, first)).drop_null()
        return Counter({one["values"]: one["counts"] for one in pc.value_counts(texts).to_pylist()})

    def add_changes(
        self, columns: dict[str, Column], batches: Iterable[tuple[int, pa.RecordBatch]]
    ) -> dict[str, tuple[int, Counter[str]]]:
        """How many cells of each column are missing, and how often each level occurs that the column does not know."""
        missing = dict.fromkeys(columns, 0)
        new: dict[str, Counter[str]] = {name: Counter() for name in columns}
        for first, batch in batches:
            for name, column in columns.items():
                missing[name] += self._cells(batch, column, first).null_count
                levels = self.count_levels(batch, column, first) if column.kind == "category" else {}
                new[name].update({level: count for level, count in levels.items() if level not in column.levels})
        return {name: (missing[name], new[name]) for name in columns}

    def kind_error(self, name: str, kind: Kind, row: int, value: object) -> CellError:
        """The error of a cell that does not have the kind of its column."""
        what = f"text ({value!r})" if isinstance(value, str) else repr(value)
        remedy = self.suggest_remedy(name)
        meaning = self.suggest_meaning(value) if isinstance(value, str) else None
        if meaning is not None:
            remedy = f"{meaning}; {remedy}"
        formats = guess_date_formats(pa.array([value])) if isinstance(value, str) and self.takes_dates(kind) else ()
        if formats:
            remedy = f"if dates are written in this way, use {suggest_date_formats(formats)}; {remedy}"
        return CellError(self.path, name, row, f"holds {what} in place of a {kind}", remedy)

    def _cells(self, batch: pa.RecordBatch, column: Column, first: int) -> pa.Array:
        """The cells of a column; one of another kind is an error, and so is a missing one if the column refuses it.

        In rows that are left out nothing is an error: their cells are missing.
        """
        cells = plain_cells(batch, column.name, column.kind == "category" or column.missing != "refuse")
        present = self.present(batch)
        if cells.null_count and column.missing == "refuse":
            gaps = cells.is_null() if present is None else pc.and_(cells.is_null(), pa.array(present))
            gap = pc.index(gaps, True).as_py()
            if gap >= 0:
                raise MissingError(self.path, column.name, first + gap, remedy=self.suggest_fill(column.name))
        if present is not None and not present.all():
            cells = pc.if_else(pa.array(present), cells, pa.scalar(None, cells.type))
        place = first_of_other_kind(cells, column.kind)
        if place is not None:
            raise self.kind_error(column.name, column.kind, first + place, cells[place].as_py())
        if column.kind == "date" and (self.takes_dates("date") or is_text(cells.type)):
            self._require_long_years(cells, column.name, first)
        if column.kind == "category" and pa.types.is_floating(cells.type):
            # An infinite number is not a level.
            numbers = cells.drop_null().to_numpy(zero_copy_only=False)
            require_finite(numbers.reshape(-1, 1), self.path, (column.name,), first)
        return cells

    def _require_long_years(self, cells: pa.Array, name: str, first: int) -> None:
        """Refuse dates whose years were written with two digits: 05.01.26 would be in the year 26."""
        early = pc.less(pc.year(read_dates(cells)), FIRST_YEAR)
        place = pc.index(early, True).as_py()
        if place >= 0:
            year = pc.year(read_dates(cells.slice(place, 1)))[0].as_py()
            remedy = f"if years have two digits, say how dates are written: {suggest_date_formats(SHORT_FORMATS)}"
            raise CellError(self.path, name, first + place, f"holds a date in the year {year}", remedy)

    def _codes(self, texts: pa.Array, column: Column, first: int) -> np.ndarray:
        """The number of each text in the levels of its column; -1 for a missing one, and for a new one if allowed."""
        codes = pc.index_in(texts, value_set=pa.array(column.levels, pa.string()))
        if column.new_levels == "refuse" and codes.null_count > texts.null_count:
            new = pc.and_(codes.is_null(), texts.is_valid())
            row = pc.index(new, True).as_py()
            raise CellError(
                self.path,
                column.name,
                first + row,
                f"holds the level {texts[row].as_py()!r}, which the fit did not see",
                f"it saw {list_names(column.levels)}; correct such cells, drop their rows, fit again with them, or fit "
                f"with {option('new_levels', 'zero')}",
            )
        return np.asarray(codes.fill_null(-1).to_numpy(zero_copy_only=False))


def keep_present(batch: pa.RecordBatch, present: np.ndarray | None) -> pa.RecordBatch:
    """The rows that are not left out."""
    return batch if present is None else batch.filter(pa.array(present))


def join_marks(several: list[np.ndarray | None]) -> np.ndarray | None:
    """Which rows of several batches are not left out; None if none is ever left out."""
    known = [marks for marks in several if marks is not None]
    return np.concatenate(known) if known else None


def plain_cells(batch: pa.RecordBatch, name: str, nan_is_missing: bool) -> pa.Array:
    """The cells of a column without dictionaries and decimals; NaN can count as missing."""
    cells = batch.column(batch.schema.get_field_index(name))
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_decimal(cells.type):
        cells = cells.cast(pa.float64())
    if nan_is_missing and pa.types.is_floating(cells.type):
        if pa.types.is_float16(cells.type):
            # Arrow has no test for NaN in this type.
            cells = cells.cast(pa.float32())
        nan = pc.is_nan(cells)
        if pc.any(nan).as_py():
            cells = pc.if_else(nan, pa.scalar(None, cells.type), cells)
    return cells


def _date_values(stamps: pa.Array, features: list[Feature]) -> list[np.ndarray | float]:
    """Parts of dates; a trend is the number of days since 1970."""
    count = {
        "year": pc.year,
        "month": pc.month,
        "weekday": lambda times: pc.day_of_week(times, count_from_zero=False),
        "trend": lambda times: pc.divide(times.cast(pa.int64()).cast(pa.float64()), DAY),
    }
    known = {
        part: np.asarray(count[part](stamps).to_numpy(zero_copy_only=False))
        for part in {feature.part for feature in features} - {"missing"}
        if part is not None
    }
    return [
        0.0
        if one.part == "missing"
        else known[str(one.part)]
        if one.level is None
        else known[str(one.part)] == int(one.level)
        for one in features
    ]
