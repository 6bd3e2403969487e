"""The contract of a data file, and rows that are checked when they are read."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from psfit.data.io.dialect import Dialect
from psfit.data.schema import Kind, Schema
from psfit.data.streamed import RowReader
from psfit.data.table_rules import TableRules

IMPUTE = "impute or drop such entries"


class ReadingWarning(UserWarning):
    """Something was guessed about how a file is written."""


class DataWarning(UserWarning):
    """A table can be read, but something in it is probably a mistake."""


class DataFileError(ValueError):
    """A data file cannot be used; the message has the reason and the remedy."""


class ColumnError(DataFileError):
    """A column cannot be used as it is; the message has the remedy."""


class CellError(DataFileError):
    """A cell cannot be used; the message has its place and the remedy."""

    def __init__(
        self, path: Path, column: str | int, row: int, problem: str, remedy: str, line: int | None = None
    ) -> None:
        place = f"row {row} (counted from 0)" if line is None else f"row {row} (counted from 0), line {line}"
        super().__init__(f"{path}: column {column!r} {problem}, first in {place}; {remedy}")
        self.path, self.column, self.row, self.problem, self.remedy = path, column, row, problem, remedy

    def shift(self, rows: int) -> "CellError":
        """The same error with the row of the whole file, for a part that begins after `rows` rows."""
        return self._move(self.row + rows, None)

    def with_line(self, line: int | None) -> "CellError":
        """The same error with the line of a text file."""
        return self._move(self.row, line)

    def _move(self, row: int, line: int | None) -> "CellError":
        moved = type(self).__new__(type(self))
        CellError.__init__(moved, self.path, self.column, row, self.problem, self.remedy, line)
        return moved


class MissingError(CellError):
    """An entry is missing or infinite."""

    def __init__(
        self, path: Path, column: str | int, row: int, kind: str = "a missing value", remedy: str = IMPUTE
    ) -> None:
        super().__init__(path, column, row, f"has {kind}", remedy)


@dataclass(frozen=True)
class ReadRequest:
    """What to read.

    Parameters
    ----------
    target : str, int or None
        The target's column, array or file; None means the default of the format.
    weight : str or None
        The same for sample weights.
    offset : str or None
        The same for offsets; None means that none are read.
    columns : tuple of str or None
        Features by name; None means all columns that are neither target nor weight nor offset.
    rules : TableRules
        How columns of text, dates and missing values are used.
    labelled : bool
        Whether to read a target.
    numeric : bool
        Whether the target must be numbers.
    schema : Schema or None
        How a fitted model reads its columns; None before a fit, or if the model has learned nothing about them.
    fitted : bool
        Whether the samples are for a fitted model.
    lenient : bool
        Whether damaged lines are left out and names that occur twice are changed, for a profile.
    """

    target: str | int | None = None
    weight: str | None = None
    columns: tuple[str, ...] | None = None
    rules: TableRules = field(default_factory=TableRules)
    labelled: bool = True
    numeric: bool = False
    schema: Schema | None = None
    fitted: bool = False
    lenient: bool = False
    offset: str | None = None


@dataclass(frozen=True)
class PossibleKinds:
    """The kinds that the cells of a file allow: for each column of features, in order, and for the target.

    `unused` are the kinds of the columns that give no features: "id" or "ignored".
    """

    columns: dict[str, tuple[Kind, ...]]
    target: tuple[Kind, ...] | None
    target_name: str | None
    unused: dict[str, Kind] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """Some samples of a file: features as rows to read or as a sparse matrix, and target, weights and offsets.

    `open_ended` means that only the sparse columns that occur in the part are known: another part may have more, and
    the first column may not occur. `ids` are the columns that are passed through to predictions, by name. `present`
    marks the rows that have a target, if others are to be left out; their targets have no meaning.
    """

    features: Any
    y: np.ndarray | None
    weight: np.ndarray | None
    names: tuple[str, ...] | None
    open_ended: bool = False
    ids: dict[str, np.ndarray] = field(default_factory=dict)
    offset: np.ndarray | None = None
    present: np.ndarray | None = None


class DataFile(ABC):
    """One open file. Its `length` counts rows, or bytes if the rows cannot be found without reading them."""

    path: Path
    length: int

    @property
    def notes(self) -> tuple[str, ...]:
        """What was guessed about how the file is written, for the user."""
        return ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is probably wrong with the file, for the user."""
        return ()

    @property
    def numbers(self) -> Dialect | None:
        """How numbers are written in a text file; None for other formats."""
        return None

    def find_line(self, row: int) -> int | None:
        """The line of a row in a text file, counted from 1; None if it is not known exactly, or there are no lines."""
        return None

    def name_row(self, row: int) -> str:
        """A row as messages name it."""
        return f"row {row} (counted from 0)" + ("" if (line := self.find_line(row)) is None else f", line {line}")

    def possible_kinds(self, start: int, stop: int) -> PossibleKinds | None:
        """The kinds that the cells of a range allow; None if columns have no kinds."""
        return None

    def count_levels(self, start: int, stop: int, names: list[str]) -> dict[str, Counter[str]]:
        """How often each text of some columns occurs in a range."""
        return {}

    def columns_with_gaps(self, start: int, stop: int, names: list[str]) -> set[str]:
        """Those of some columns that have a missing value in a range."""
        return set()

    def count_changes(self, start: int, stop: int, schema: Schema) -> dict[str, tuple[int, Counter[str]]]:
        """For each column of a range: missing cells, and the levels that are not in the schema with their counts."""
        return {}

    @abstractmethod
    def part(self, start: int, stop: int, schema: Schema, budget: int) -> Part:
        """The samples of a range, read with a schema; features that need more bytes than the budget stay on disk."""

    def error(self, reason: object) -> DataFileError:
        """An error that names the file."""
        return DataFileError(f"{self.path}: {reason}")


class CheckedRows(RowReader):
    """Rows of a file; a missing or infinite number is an error with its place."""

    def __init__(self, rows: RowReader, path: Path, names: tuple[str, ...] | None, first: int = 0) -> None:
        self.rows, self.path, self.names, self.first = rows, path, names, first
        self.shape, self.dtype, self.readers = rows.shape, rows.dtype, rows.readers

    def read(self, start: int, stop: int) -> np.ndarray:
        values = self.rows.read(start, stop)
        require_finite(values, self.path, self.names, self.first + start)
        return values


class SomeRows(RowReader):
    """The rows of another reader that have these numbers, which rise."""

    def __init__(self, rows: RowReader, numbers: np.ndarray) -> None:
        self.rows, self.numbers = rows, numbers
        self.shape, self.dtype, self.readers = (len(numbers), rows.shape[1]), rows.dtype, rows.readers

    def read(self, start: int, stop: int) -> np.ndarray:
        # What lies between two ranges is read, too: a file is then read on from where the last range ended.
        first = int(self.numbers[start - 1]) + 1 if start else 0
        wanted = self.numbers[start:stop]
        return self.rows.read(first, int(wanted[-1]) + 1 if len(wanted) else first)[wanted - first]


class JoinedRows(RowReader):
    """Rows of several files, one after the other."""

    def __init__(self, parts: list[RowReader]) -> None:
        self.parts = parts
        self.ends = list(accumulate(part.shape[0] for part in parts))
        self.shape = (self.ends[-1], parts[0].shape[1])
        self.dtype = np.result_type(*(part.dtype for part in parts))

    def read(self, start: int, stop: int) -> np.ndarray:
        found: list[np.ndarray] = []
        at = start
        while at < stop or not found:
            k = min(bisect_right(self.ends, at), len(self.parts) - 1)
            begin = self.ends[k] - self.parts[k].shape[0]
            end = min(stop, self.ends[k])
            found.append(self.parts[k].read(at - begin, end - begin))
            at = end
        return found[0] if len(found) == 1 else np.concatenate(found)


def require_finite(values: np.ndarray, path: Path, names: tuple[str, ...] | None, first: int) -> None:
    """Refuse NaN and infinity; the error names column and row."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()) or np.isfinite(values).all():
            return
    bad = ~np.isfinite(values)
    row = int(bad.any(axis=1).argmax())
    column = int(bad[row].argmax())
    raise MissingError(path, names[column] if names else column, first + row, _kind(values[row, column]))


def require_finite_entries(csr: scipy.sparse.csr_matrix, path: Path, first: int) -> None:
    """The same for the entries of a sparse matrix."""
    bad = ~np.isfinite(csr.data)
    if bad.any():
        entry = int(bad.argmax())
        row = int(np.searchsorted(csr.indptr, entry, side="right")) - 1
        raise MissingError(path, int(csr.indices[entry]), first + row, _kind(csr.data[entry]))


def _kind(value: float) -> str:
    return "a missing value" if np.isnan(value) else "infinity"
