"""The profile of a table: all columns in one pass, never refused."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from psfit.data.io.base import DataFile
from psfit.data.io.cell_reader import plain_cells
from psfit.data.io.column_profile import ColumnProfile
from psfit.data.io.dialect import Dialect
from psfit.data.io.tables import HEIGHT, TableFile
from psfit.data.io.text import TextFile

# A column whose correlation with the target is stronger than this probably tells it.
LEAK = 0.999


@dataclass
class TableProfile:
    """The columns of one table, its rows, and the lines that have another number of cells."""

    path: Path
    columns: dict[str, ColumnProfile]
    target: str | None
    rows: int = 0
    ragged: list[tuple[int | None, int]] = field(default_factory=list)
    dialect: Dialect | None = None
    notes: tuple[str, ...] = ()
    warnings: dict[str, list[str]] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """The profile as values that JSON can hold."""
        columns = [one.facts() | {"warnings": self.warnings[name]} for name, one in self.columns.items()]
        found: dict[str, Any] = {"kind": "table", "samples": self.rows, "target": self.target, "columns": columns}
        if self.dialect is not None:
            found |= {"separator": self.dialect.separator, "decimal": self.dialect.decimal}
            found |= {"thousands": self.dialect.thousands, "ragged_rows": len(self.ragged), "notes": list(self.notes)}
        return found


def profile_table(files: Sequence[DataFile], target: str | None) -> TableProfile:
    """Look at every cell of one or more files of a table; `target` is its target, None for the last column."""
    names = list(dict.fromkeys(name for file in files for name in _names(file)))
    target = names[-1] if target is None else target
    columns = {name: ColumnProfile(name) for name in names}
    found = TableProfile(files[0].path, columns, target if target in columns else None)
    sums = _Products(len(names))
    for file in files:
        if isinstance(file, TextFile):
            found.dialect, found.notes = file.dialect, (*found.notes, *file.notes)
        for batch in _batches(file, found):
            _count(batch, found, sums)
    _add_warnings(found, sums)
    return found


def _count(batch: pa.RecordBatch, found: TableProfile, sums: "_Products") -> None:
    """Count the cells of some rows."""
    numbers = np.full((len(found.columns), batch.num_rows), np.nan)
    held = set(batch.schema.names)
    for row, (name, column) in enumerate(found.columns.items()):
        if name in held:
            numbers[row] = column.add(plain_cells(batch, name, True), found.dialect)
    found.rows += batch.num_rows
    if found.target is not None:
        sums.add(numbers, numbers[list(found.columns).index(found.target)])


def _names(file: DataFile) -> list[str]:
    if isinstance(file, TextFile):
        return list(dict.fromkeys(file.names))
    if isinstance(file, TableFile):
        return list(file.plan.types.names)
    raise TypeError(f"{file.path} is no table")


def _batches(file: Any, found: TableProfile) -> Iterator[pa.RecordBatch]:
    names = _names(file)
    if not isinstance(file, TextFile):
        for _, batch in file.batches_in_range(0, file.length, names, HEIGHT):
            yield batch
        return

    file.ragged.clear()
    yield from (batch for _, batch in file.batches_as_text(names))
    found.ragged += [(row.number, row.actual_columns) for row in file.ragged]


class _Products:
    """Sums of products of all columns with the target, over rows where both are numbers."""

    def __init__(self, columns: int) -> None:
        self.sums = np.zeros((6, columns))

    def add(self, numbers: np.ndarray, target: np.ndarray) -> None:
        both = np.isfinite(numbers) & np.isfinite(target)
        x, y = np.where(both, numbers, 0.0), np.where(both, target, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            self.sums += [both.sum(1), x.sum(1), y.sum(1), (x * y).sum(1), (x * x).sum(1), (y * y).sum(1)]

    def correlations(self) -> np.ndarray:
        """The correlation of each column with the target; 0 where there is none."""
        count, x, y, xy, xx, yy = self.sums
        with np.errstate(all="ignore"):
            spread = np.sqrt((count * xx - x * x) * (count * yy - y * y))
            found = (count * xy - x * y) / spread
        return np.where(np.isfinite(found) & (count > 2), found, 0.0)


def _add_warnings(found: TableProfile, sums: _Products) -> None:
    """What looks wrong: with a column alone, with two that are equal, with one that tells the target."""
    strong = dict(zip(found.columns, sums.correlations().tolist(), strict=True))
    seen: dict[bytes, str] = {}
    for name, column in found.columns.items():
        said = column.list_warnings()
        first = seen.setdefault(column.digest.digest(), name)
        if first != name and column.present:
            said.append(f"the same as {first!r}")
        if name != found.target and abs(strong[name]) > LEAK:
            said.append(f"tells the target (correlation {strong[name]:.4f})")
        found.warnings[name] = said
