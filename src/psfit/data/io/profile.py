"""The profile of a table: all columns in one pass, never refused."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psfit.data.io.base import DataFile
from psfit.data.io.cell_reader import plain_cells
from psfit.data.io.cells import is_number, is_text, level_texts
from psfit.data.io.column_profile import FEW_ROWS, MOST_LEVELS, ColumnProfile
from psfit.data.io.dialect import Dialect
from psfit.data.io.tables import HEIGHT, TableFile
from psfit.data.io.text import TextFile

# A column whose correlation with the target is stronger than this probably tells it.
LEAK = 0.999
# Texts nearly tell the target if they leave this share of the mistakes that the most frequent target makes.
NEARLY = 0.05
# A text of a column of few texts occurs in this many rows on average; in fewer, each may have one target by chance.
LEAST_ROWS = 5


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
    leaks = _Leaks(names)
    for file in files:
        if isinstance(file, TextFile):
            found.dialect, found.notes = file.dialect, (*found.notes, *file.notes, *file.doubts)
        for batch in _batches(file, found):
            _count(batch, found, leaks)
    _add_warnings(found, leaks)
    return found


def _count(batch: pa.RecordBatch, found: TableProfile, leaks: "_Leaks") -> None:
    """Count the cells of some rows."""
    numbers = np.full((len(found.columns), batch.num_rows), np.nan)
    gaps = np.ones(numbers.shape)
    held = set(batch.schema.names)
    if found.target is not None and found.target in held and batch.num_rows:
        leaks.pairs.read_targets(plain_cells(batch, found.target, True))
    for row, (name, column) in enumerate(found.columns.items()):
        if name in held:
            cells = plain_cells(batch, name, True)
            numbers[row] = leaks.code(name, cells, column.add(cells, found.dialect))
            gaps[row] = cells.is_null().to_numpy(zero_copy_only=False)
            if name != found.target:
                leaks.pairs.add(name, cells)
    found.rows += batch.num_rows
    if found.target is not None:
        target = numbers[list(found.columns).index(found.target)]
        leaks.values.add(numbers, target)
        leaks.gaps.add(gaps, target)


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


class _Pairs:
    """The pairs of a text and a target that occur, for columns and targets with few different values."""

    def __init__(self) -> None:
        self.found: dict[str, Counter[tuple[str, str]]] = {}
        self.many: set[str] = set()
        # The targets of the rows that are being read; None once they have many values.
        self.targets: pa.Array | None = None
        self.usable = True

    def read_targets(self, cells: pa.Array) -> None:
        """Take the targets of the next rows."""
        simple = is_text(cells.type) or is_number(cells.type)
        self.usable = self.usable and simple and pc.count_distinct(cells).as_py() <= MOST_LEVELS
        self.targets = level_texts(cells) if self.usable else None

    def add(self, name: str, cells: pa.Array) -> None:
        """Note the pairs of the same rows of a column."""
        if self.targets is None or name in self.many or not is_text(cells.type):
            return
        both = pc.binary_join_element_wise(cells.cast(pa.string()), self.targets, "\x00")
        pairs = self.found.setdefault(name, Counter())
        for one in pc.value_counts(both.drop_null()).to_pylist():
            level, _, target = one["values"].rpartition("\x00")
            pairs[level, target] += one["counts"]
        if len({level for level, _ in pairs}) > MOST_LEVELS:
            self.many.add(name)

    def warn(self, column: ColumnProfile) -> list[str]:
        """Whether the texts of the column tell the target of all rows, or of nearly all; each must occur repeatedly."""
        pairs = self.found.get(column.name, Counter())
        levels, targets = Counter[str](), Counter[str]()
        best: dict[str, int] = {}
        for (level, target), count in pairs.items():
            levels[level] += count
            targets[target] += count
            best[level] = max(best.get(level, 0), count)
        few = column.present < LEAST_ROWS * len(levels)
        if not self.usable or column.name in self.many or few or min(len(levels), len(targets)) < 2:
            return []
        rows = levels.total()
        wrong, without = rows - sum(best.values()), rows - max(targets.values())
        if wrong == 0:
            return ["tells the target (each of its texts has one)"]
        return [f"nearly tells the target (of {1 - wrong / rows:.1%} of the rows)"] if wrong < NEARLY * without else []


class _Leaks:
    """How strongly each column, and each column's gaps, go with the target.

    A column without numbers is coded: 1 where a cell is the same as the first one, else 0. So two columns of two texts
    can be compared, or one of two texts and one of numbers.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.values, self.gaps = _Products(len(names)), _Products(len(names))
        self.firsts: dict[str, str] = {}
        self.pairs = _Pairs()

    def code(self, name: str, cells: pa.Array, numbers: np.ndarray) -> np.ndarray:
        """The cells as numbers, or coded if there are none."""
        if np.isfinite(numbers).any() or not is_text(cells.type) or cells.null_count == len(cells):
            return numbers
        texts = cells.cast(pa.string())
        first = self.firsts.setdefault(name, texts.drop_null()[0].as_py())
        equal = pc.equal(texts, pa.scalar(first, pa.string())).cast(pa.float64())
        return np.asarray(equal.to_numpy(zero_copy_only=False))

    def list_warnings(self, found: TableProfile) -> dict[str, list[str]]:
        """For each column what tells the target."""
        listed: dict[str, list[str]] = {name: [] for name in found.columns}
        for name, value, gap in zip(listed, self.values.correlations(), self.gaps.correlations(), strict=True):
            # In a few rows, two columns of two values are often the same by chance.
            coded = name in self.firsts or found.target in self.firsts
            if abs(value) > LEAK and (not coded or found.rows >= FEW_ROWS):
                listed[name].append(f"tells the target (correlation {value:.4f})")
            elif found.rows >= FEW_ROWS:
                listed[name] += self.pairs.warn(found.columns[name])
            if abs(gap) > LEAK and found.rows >= FEW_ROWS:
                listed[name].append("its missing values tell the target")
        return listed


def _add_warnings(found: TableProfile, leaks: _Leaks) -> None:
    """What looks wrong: with a column alone, with two that are equal, with one that tells the target."""
    strong = leaks.list_warnings(found)
    seen: dict[bytes, str] = {}
    for name, column in found.columns.items():
        said = column.list_warnings(found.path)
        first = seen.setdefault(column.digest.digest(), name)
        if first != name and column.present:
            said.append(f"the same as {first!r}")
        said += strong[name] if name != found.target else []
        found.warnings[name] = said + column.list_needs(name == found.target)
