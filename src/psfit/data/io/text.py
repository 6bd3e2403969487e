"""CSV and TSV files: parsed once; numbers that do not fit in memory are kept in a temporary file."""

import io
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from psfit.data.io.base import CellError, DataFile, DataFileError, Part, PossibleKinds, ReadRequest
from psfit.data.io.cells import first_of_other_kind, is_number
from psfit.data.io.lines import Lines, line_range
from psfit.data.io.table_plan import TablePlan
from psfit.data.schema import EXACT, Kind, Schema
from psfit.data.streamed import ArrayRows, BinaryRows, RowReader

BLOCK = 8 << 20
# The most letters of a cell that a message shows.
MOST_LETTERS = 100
NO_ROWS = "needs a header and at least one row below it"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
# The type in which the cells of each kind are read.
TYPES: dict[Kind, pa.DataType] = {"number": pa.float64(), "boolean": pa.bool_(), "category": pa.string()}
READ_AS: dict[str, Kind] = {"double": "number", "bool": "boolean"}
CONVERSION = re.compile(r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+): invalid value '(.*)'", re.S)


class TextFile(DataFile):
    """Lines of cells under a header; a part is the lines that begin in a range of bytes."""

    def __init__(self, path: Path, wanted: ReadRequest) -> None:
        self.path = path
        self.parse = csv.ParseOptions(delimiter=DELIMITERS[path.suffix.lower()])
        with path.open("rb") as file:
            self.header = file.readline()
            self.body = file.tell()
        self.length = path.stat().st_size - self.body
        # A row must fit in a block, and a row of numbers can be many times longer than the header.
        self.block = max(BLOCK, 16 * len(self.header))
        if self.length <= 0:
            raise self.error(NO_ROWS)
        try:
            head = list(self._reader(_memory_stream(self.header * 2), {}))
            if not head:
                raise self.error("a quote is not closed in its first line; write the name of each column on one line")
            self.names = head[0].schema.names
            # In a table of one column, an empty line is an empty cell.
            self.parse.ignore_empty_lines = len(self.names) > 1
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise self.error(f"its first line is not a header in UTF-8 ({error})") from None
        if wanted.labelled and wanted.columns is None and _looks_like_data(self.names):
            raise self.error(f"its first line holds numbers ({self.names[0]}, ...); write the columns' names above it")
        self.plan = TablePlan.of(path, self._schema(), wanted)

    def _schema(self) -> pa.Schema:
        """The types that the first lines suggest."""
        with self.path.open("rb") as file:
            file.seek(self.body)
            head = file.read(self.block)
        if len(head) < self.length:
            head = head[: head.rfind(b"\n") + 1]
        batches = list(self._batches(self.body, self.body + len(head), {}))
        if not batches:
            raise self.error(NO_ROWS)
        return pa.schema([pa.field(f.name, _widen_type(f.type)) for f in batches[0].schema])

    def _reader(self, stream: pa.NativeFile, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        """The batches of a stream. It must be a stream of Arrow, not of Python: Arrow's threads may close it when the
        interpreter has ended.
        """
        names = {"column_names": self.names} if hasattr(self, "names") else {}
        wanted = {"include_columns": list(types)} if types else {}
        return iter(
            csv.open_csv(
                stream,
                read_options=csv.ReadOptions(block_size=self.block, use_threads=False, **names),
                parse_options=self.parse,
                # An empty cell is a gap, also in a column of text.
                convert_options=csv.ConvertOptions(
                    column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, **wanted
                ),
            )
        )

    def _batches(self, begin: int, end: int, types: dict[str, pa.DataType], start: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows between two bytes of the file; `start` is the beginning of their range, counted below the header."""
        try:
            yield from self._reader(pa.OSFile(str(self.path)).get_stream(begin, end - begin), types)
        except pa.ArrowInvalid as error:
            found = CONVERSION.match(str(error))
            if found is not None and found[3] in READ_AS:
                name, row = self.names[int(found[1])], int(found[2]) - 1
                raise self.plan.kind_error(name, READ_AS[found[3]], row, found[4][:MOST_LETTERS]) from None
            raise self._parse_error(str(error).splitlines()[0][:300], start) from None

    def _parse_error(self, reason: str, start: int) -> DataFileError:
        """Arrow's message about a part, with the names of columns and the rows of the whole file."""
        reason = re.sub(r"In CSV column #(\d+)", lambda found: f"column {self.names[int(found[1])]!r}", reason)
        reason = re.sub(
            r"Row #(\d+)",
            lambda found: f"row {self._rows_before(start) + int(found[1]) - 1} (counted from 0)",
            reason,
        )
        return self.error(f"{reason}; every row needs a cell for each name in the header, of one kind in each column")

    def _batches_in_range(
        self, start: int, stop: int, kinds: Mapping[str, Kind]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of a range of bytes below the header, each with the number of its first row in the range."""
        with self.path.open("rb") as file:
            begin, end = line_range(file, self.body + start, self.body + stop)
        rows = 0
        if begin < end:
            for batch in self._batches(begin, end, {name: TYPES[kind] for name, kind in kinds.items()}, start):
                yield rows, batch
                rows += batch.num_rows

    @contextmanager
    def _rows_of_the_file(self, start: int) -> Iterator[None]:
        """Errors inside name rows of the whole file; the rows before the range are counted only for an error."""
        try:
            yield
        except CellError as error:
            raise error.shift(self._rows_before(start)) from None

    def _rows_before(self, start: int) -> int:
        with io.BufferedReader(Lines(self.path, self.body, self.body + start)) as lines:
            return sum(1 for line in lines if line.strip(b"\r\n") or not self.parse.ignore_empty_lines)

    def possible_kinds(self, start: int, stop: int) -> PossibleKinds:
        found = self.plan.possible_kinds()
        for name, kinds in ({self.plan.target: found.target} | found.columns).items():
            if name is not None and not kinds:
                self.plan.refuse(name, self._batches_in_range(0, self.length, {name: "number"}))
        if not self.plan.wanted.one_hot:
            return found
        return replace(found, columns=self._narrow_kinds(found.columns, start, stop))

    def _narrow_kinds(self, columns: dict[str, tuple[Kind, ...]], start: int, stop: int) -> dict[str, tuple[Kind, ...]]:
        """The kinds that all cells of a range allow; text may come after numbers in any line."""
        columns = dict(columns)
        while True:
            tried = {name: kinds[0] for name, kinds in columns.items() if kinds[0] != "category"}
            # Columns of numbers that can also be booleans.
            both = {name for name, kind in tried.items() if kind == "number"}
            try:
                for _, batch in self._batches_in_range(start, stop, tried) if tried else ():
                    both = {
                        name for name in both if first_of_other_kind(batch.column(name).drop_null(), "boolean") is None
                    }
            except CellError as error:
                name = str(error.column)
                columns[name] = columns[name][1:]
                continue
            return {
                name: kinds if kinds[0] != "number" or name in both else ("number", "category")
                for name, kinds in columns.items()
            }

    def levels(self, start: int, stop: int, names: list[str]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {name: set() for name in names}
        with self._rows_of_the_file(start):
            for first, batch in self._batches_in_range(start, stop, dict.fromkeys(names, "category")):
                for name in names:
                    found[name] |= self.plan.levels(batch, name, first)
        return found

    def part(self, start: int, stop: int, schema: Schema, budget: int) -> Part:
        plan, features, columns = self.plan, self.plan.features(schema), self.plan.columns(schema)
        other_columns: dict[str, list[np.ndarray]] = {name: [] for name in plan.other_columns}
        spool = _Spool(len(features), plan.dtype, budget)
        with self._rows_of_the_file(start):
            for first, batch in self._batches_in_range(start, stop, {name: one.kind for name, one in columns.items()}):
                spool.add(plan.block(batch, features, columns, first))
                for name, parts in other_columns.items():
                    parts.append(plan.values(batch, columns[name], first))
        known = {name: np.concatenate(parts) if parts else np.empty(0) for name, parts in other_columns.items()}
        if plan.target is not None and not plan.wanted.numeric:
            known[plan.target] = _to_integers(known[plan.target])
        names = tuple(feature.name for feature in features)
        y, weight, offset = (known.get(name or "") for name in (plan.target, plan.weight, plan.offset))
        return Part(spool.all_rows(), y, weight, names, offset=offset)


def _memory_stream(content: bytes) -> pa.NativeFile:
    """Bytes as a stream that refers to no Python object."""
    copy = pa.BufferOutputStream()
    copy.write(content)
    return pa.BufferReader(copy.getvalue())


def _looks_like_data(names: list[str]) -> bool:
    """Whether a header looks like data: only numbers, and not all whole; whole numbers may be names of columns."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return not all(number.is_integer() for number in numbers)


def _widen_type(kind: pa.DataType) -> pa.DataType:
    """Numbers are read as floats: integers in the first lines do not mean that all are integers."""
    return pa.float64() if is_number(kind) and not pa.types.is_boolean(kind) else kind


def _to_integers(labels: np.ndarray) -> np.ndarray:
    """Labels as integers if all are whole numbers: a class is called 3, not 3.0."""
    if labels.dtype.kind != "f" or (labels != np.trunc(labels)).any() or (np.abs(labels) >= EXACT).any():
        return labels
    return labels.astype(np.int64)


class _Spool:
    """Blocks of rows: in memory while they fit, then in a temporary file that is deleted with its last user."""

    def __init__(self, width: int, dtype: np.dtype, budget: int) -> None:
        self.width, self.dtype, self.budget = width, dtype, budget
        self.blocks: list[np.ndarray] = []
        self.rows = 0
        self.file: Any = None

    def add(self, block: np.ndarray) -> None:
        self.rows += len(block)
        self.blocks.append(block)
        # Joining the blocks takes their size once more.
        if self.file is None and 2 * self.rows * self.width * self.dtype.itemsize > self.budget:
            self.file = tempfile.TemporaryFile(prefix="psfit-")  # noqa: SIM115
        if self.file is not None:
            for waiting in self.blocks:
                waiting.tofile(self.file)
            self.blocks = []

    def all_rows(self) -> RowReader:
        if self.file is None:
            return ArrayRows(np.concatenate(self.blocks) if self.blocks else np.empty((0, self.width), self.dtype))
        self.file.flush()
        return BinaryRows(self.file, 0, self.dtype, (self.rows, self.width))
