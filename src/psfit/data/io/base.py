"""The contract of a data file, and rows that are checked as they are read."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from psfit.data.schema import Kind, Schema
from psfit.data.streamed import Rows


class DataFileError(ValueError):
    """A data file that cannot be used as it is, with the reason and the remedy."""


class CellError(DataFileError):
    """A cell that cannot be used, its place and the remedy."""

    def __init__(self, path: Path, column: str | int, row: int, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: column {column!r} {problem}, first in row {row} (counted from 0); {remedy}")
        self.path, self.column, self.row, self.problem, self.remedy = path, column, row, problem, remedy

    def moved(self, rows: int) -> "CellError":
        """The same about rows of the whole file, for a part that has `rows` of them before it."""
        return CellError(self.path, self.column, self.row + rows, self.problem, self.remedy)


class MissingError(CellError):
    """An entry that is no finite number."""

    def __init__(self, path: Path, column: str | int, row: int, kind: str = "a missing value") -> None:
        super().__init__(path, column, row, f"has {kind}", "impute or drop such entries")


@dataclass(frozen=True)
class Wanted:
    """What to read.

    Parameters
    ----------
    target : str, int or None
        The target's column, array or file; None takes what the format suggests.
    weight : str or None
        The same for sample weights.
    columns : tuple of str or None
        Features by name; None takes all that are neither target nor weight.
    one_hot : bool
        Turn columns of text into one column for each text, named ``column=text``.
    labelled : bool
        Whether there is a target at all.
    numeric : bool
        Whether the target must be numbers.
    schema : Schema or None
        How a fitted model reads its columns; None before a fit, or where the model has learnt nothing about them.
    fitted : bool
        Whether the samples are for a model that is fitted already.
    """

    target: str | int | None = None
    weight: str | None = None
    columns: tuple[str, ...] | None = None
    one_hot: bool = False
    labelled: bool = True
    numeric: bool = False
    schema: Schema | None = None
    fitted: bool = False


@dataclass(frozen=True)
class Possible:
    """The kinds that the cells of a file allow: for each column of features in its order, and for the target."""

    columns: dict[str, tuple[Kind, ...]]
    target: tuple[Kind, ...] | None
    target_name: str | None


@dataclass(frozen=True)
class Part:
    """Some samples of a file: features as rows to be read or as a sparse matrix, and what lies beside them.

    `open_ended` sparse columns are those that occur in the file: another part may have more, and none may be the first.
    """

    features: Any
    y: np.ndarray | None
    weight: np.ndarray | None
    names: tuple[str, ...] | None
    open_ended: bool = False


class DataFile(ABC):
    """One open file. Its `length` counts rows, or bytes where rows cannot be found without reading them."""

    path: Path
    length: int

    def possible(self, start: int, stop: int) -> Possible | None:
        """What the columns can be, by the cells of a range; None where columns have no kinds."""
        return None

    def levels(self, start: int, stop: int, names: list[str]) -> dict[str, set[str]]:
        """The different texts of some columns in a range."""
        return {}

    @abstractmethod
    def part(self, start: int, stop: int, schema: Schema, budget: int) -> Part:
        """The samples of a range, read by a schema; what does not fit the budget of bytes stays on disk."""

    def fail(self, reason: object) -> DataFileError:
        """An error that names the file."""
        return DataFileError(f"{self.path}: {reason}")


class CheckedRows(Rows):
    """Rows of a file; a number that is missing or infinite is reported with its place."""

    def __init__(self, rows: Rows, path: Path, names: tuple[str, ...] | None, first: int = 0) -> None:
        self.rows, self.path, self.names, self.first = rows, path, names, first
        self.shape, self.dtype, self.readers = rows.shape, rows.dtype, rows.readers

    def read(self, start: int, stop: int) -> np.ndarray:
        values = self.rows.read(start, stop)
        require_finite(values, self.path, self.names, self.first + start)
        return values


class JoinedRows(Rows):
    """Rows of several files, one after the other."""

    def __init__(self, parts: list[Rows]) -> None:
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
    """Refuse NaN and infinity, naming column and row."""
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
