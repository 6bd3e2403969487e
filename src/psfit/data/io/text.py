"""CSV and TSV files: parsed once; numbers that do not fit in memory are kept in a temporary file."""

import io
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from psfit.data.io.archives import inner_name
from psfit.data.io.base import CellError, DataFile, DataFileError, Part, PossibleKinds, ReadRequest
from psfit.data.io.cell_reader import join_marks, keep_present
from psfit.data.io.cells import check_dates, first_of_other_kind, to_integers, widen_type
from psfit.data.io.csv_options import READ_AS, TYPES, convert_options
from psfit.data.io.dialect import Dialect, DialectError, find_dialect
from psfit.data.io.header import DOUBT, are_mostly_numbers, looks_like_data, make_distinct, memory_stream
from psfit.data.io.lines import Lines, count_plain_lines, line_range
from psfit.data.io.plain_text import HEAD, PlainText
from psfit.data.io.spool import Spool
from psfit.data.io.table_plan import TablePlan
from psfit.data.io.thousands import are_grouped, read_grouped
from psfit.data.schema import Kind, Schema, TextFormat

BLOCK = 8 << 20
# The most letters of a cell that a message shows.
MOST_LETTERS = 100
NO_ROWS = "needs a header and at least one row below it"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
CONVERSION = re.compile(
    r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+)[^:]*: invalid value '(.*)'", re.S
)


class TextFile(DataFile):
    """Lines of cells under a header; a part is the lines that begin in a range of bytes."""

    def __init__(self, path: Path, wanted: ReadRequest) -> None:
        self.path, self.rules = path, wanted.rules
        known = TextFormat() if wanted.schema is None else wanted.schema.text
        self.plain = PlainText.of(path, wanted.rules.encoding)
        with self.plain.path.open("rb") as file:
            file.seek(self.plain.start)
            self.header = file.readline()
            self.body = file.tell()
        self.length = self.plain.path.stat().st_size - self.body
        # A row must fit in a block, and a row of numbers can be many times longer than the header.
        self.block = max(BLOCK, 16 * len(self.header))
        if self.length <= 0:
            held = "has a header, but no row below it" if self.header.strip() else "is empty"
            raise self.error(f"{held}; a table {NO_ROWS}")
        self.dialect = self._find_dialect(known)
        # Whether the user or the fit has named the mark that separates thousands.
        self.is_marked = self.dialect.thousands in {known.thousands, self.rules.thousands} - {None}
        self.parse = csv.ParseOptions(delimiter=self.dialect.separator)
        # Rows that were left out because they have another number of cells, if that is allowed.
        self.ragged: list[csv.InvalidRow] = []
        names = self._read_names()
        if wanted.lenient:
            self.parse.invalid_row_handler = self._skip_row
            names = list(make_distinct(names))
        self.names = names
        # In a table of one column, an empty line is an empty cell.
        self.parse.ignore_empty_lines = len(self.names) > 1
        if wanted.labelled and wanted.columns is None and looks_like_data(self.names):
            raise self.error(f"its first line holds numbers ({self.names[0]}, ...); write the columns' names above it")
        # Columns of numbers whose thousands are separated; Arrow reads them as text.
        self.grouped: frozenset[str] = frozenset()
        self.plan = TablePlan.of(path, self._schema(), wanted)

    @property
    def notes(self) -> tuple[str, ...]:
        said = self.plain.notes + self.numbers.notes
        return (f"{self.path}: {'; '.join(said)}",) if said else ()

    @property
    def doubts(self) -> tuple[str, ...]:
        return (f"{self.path}: {DOUBT.format(', '.join(self.names[:3]))}",) if are_mostly_numbers(self.names) else ()

    @property
    def numbers(self) -> Dialect:
        """How numbers are written; a mark that separates no thousands is left out."""
        return self.dialect if self.grouped or self.is_marked else replace(self.dialect, thousands=None)

    def _find_dialect(self, known: TextFormat) -> Dialect:
        with self.plain.path.open("rb") as file:
            file.seek(self.plain.start)
            head = file.read(max(HEAD, 2 * len(self.header))).decode(errors="replace")
        try:
            return find_dialect(head, DELIMITERS[Path(inner_name(self.path)).suffix.lower()], self.rules, known)
        except DialectError as error:
            raise self.error(error) from None

    def _skip_row(self, row: csv.InvalidRow) -> str:
        self.ragged.append(row)
        return "skip"

    def _read_names(self) -> list[str]:
        try:
            head = list(self._reader(memory_stream(self.header * 2), {}))
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise self.error(f"its first line is not a header in UTF-8 ({error})") from None
        if not head:
            raise self.error("a quote is not closed in its first line; write the name of each column on one line")
        return list(head[0].schema.names)

    def _schema(self) -> pa.Schema:
        """The types that the first lines suggest."""
        with self.plain.path.open("rb") as file:
            file.seek(self.body)
            head = file.read(self.block)
        if len(head) < self.length:
            head = head[: head.rfind(b"\n") + 1]
        batches = list(self._batches(self.body, self.body + len(head), {}))
        if not batches:
            raise self.error(f"has a header, but no row below it; a table {NO_ROWS}")
        if self.dialect.thousands is not None:
            texts = [place for place, field in enumerate(batches[0].schema) if pa.types.is_string(field.type)]
            self.grouped = frozenset(self.names[k] for k in texts if are_grouped(batches[0].column(k), self.dialect))
        types = [pa.float64() if field.name in self.grouped else field.type for field in batches[0].schema]
        return pa.schema([pa.field(name, widen_type(kind)) for name, kind in zip(self.names, types, strict=True)])

    def _reader(self, stream: pa.NativeFile, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        """The batches of a stream. It must be a stream of Arrow, not of Python: Arrow's threads may close it when the
        interpreter has ended.
        """
        names = {"column_names": self.names} if hasattr(self, "names") else {}
        reading = csv.ReadOptions(block_size=self.block, use_threads=False, **names)
        converting = convert_options(types, self.dialect, self.rules)
        return iter(csv.open_csv(stream, read_options=reading, parse_options=self.parse, convert_options=converting))

    def _batches(self, begin: int, end: int, types: dict[str, pa.DataType], start: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows between two bytes of the file; `start` is the beginning of their range, counted below the header."""
        marked, kinds = self._thousands(types), types.items()
        texts: dict[str, Kind] = {name: "number" for name, kind in kinds if kind == pa.float64() and name in marked}
        texts |= {name: "date" for name, kind in kinds if kind == TYPES["date"]}
        types, rows = types | dict.fromkeys(texts, pa.string()), 0
        try:
            for batch in self._reader(pa.OSFile(str(self.plain.path)).get_stream(begin, end - begin), types):
                yield self._read_texts(batch, texts, rows)
                rows += batch.num_rows
        except pa.ArrowInvalid as error:
            found = CONVERSION.match(str(error))
            if found is not None and found[3] in READ_AS:
                name, row = self.names[int(found[1])], int(found[2]) - 1
                raise self.plan.kind_error(name, READ_AS[found[3]], row, found[4][:MOST_LETTERS]) from None
            raise self._parse_error(str(error).splitlines()[0][:300], start) from None

    def _thousands(self, types: dict[str, pa.DataType]) -> Collection[str]:
        """The columns whose numbers may have separated thousands: all of them if the mark is known."""
        return types if self.is_marked else self.grouped

    def _read_texts(self, batch: pa.RecordBatch, kinds: dict[str, Kind], first: int) -> pa.RecordBatch:
        """The same batch with some columns of text read as dates, or as numbers whose thousands are separated."""
        for name, kind in kinds.items():
            cells, own = batch.column(at := batch.schema.get_field_index(name)), self.rules.date_format
            found, other = check_dates(cells, own) if kind == "date" else read_grouped(cells, self.dialect)
            if other is not None:
                raise self.plan.kind_error(name, kind, first + other, cells[other].as_py()[:MOST_LETTERS])
            batch = batch.set_column(at, name, found)
        return batch

    def _parse_error(self, reason: str, start: int) -> DataFileError:
        """Arrow's message about a part, with the names of columns and the rows of the whole file."""
        reason = re.sub(r"In CSV column #(\d+)", lambda found: f"column {self.names[int(found[1])]!r}", reason)
        reason = re.sub(
            r"Row #(\d+)", lambda found: self.name_row(self._rows_before(start) + int(found[1]) - 1), reason
        )
        return self.error(f"{reason}; every row needs a cell for each name in the header")

    def _batches_in_range(
        self, start: int, stop: int, kinds: Mapping[str, Kind]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of a range of bytes below the header, each with the number of its first row in the range."""
        with self.plain.path.open("rb") as file:
            begin, end = line_range(file, self.body + start, self.body + stop)
        rows = 0
        if begin < end:
            types = {name: self._read_type(name, kind) for name, kind in kinds.items()}
            for batch in self._batches(begin, end, types, start):
                yield rows, batch
                rows += batch.num_rows

    def batches_as_text(self, names: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """All rows of some columns as text, whatever they hold."""
        return self._batches_in_range(0, self.length, dict.fromkeys(names, "category"))

    def _read_type(self, name: str, kind: Kind) -> pa.DataType:
        """The type in which the cells of a kind are read; that of a date may have a time zone."""
        suggested = self.plan.types.field(name).type
        zone = pa.types.is_timestamp(suggested) and suggested.tz
        return pa.timestamp("us", "UTC") if kind == "date" and zone else TYPES[kind]

    @contextmanager
    def _rows_of_the_file(self, start: int) -> Iterator[None]:
        """Errors inside name rows of the whole file; the rows before the range are counted only for an error."""
        try:
            yield
        except CellError as error:
            raise error.shift(self._rows_before(start)) from None

    def _rows_before(self, start: int) -> int:
        with io.BufferedReader(Lines(self.plain.path, self.body, self.body + start)) as lines:
            return sum(1 for line in lines if line.strip(b"\r\n") or not self.parse.ignore_empty_lines)

    @cached_property
    def _plain_lines(self) -> int:
        return count_plain_lines(self.plain.path, self.body, not self.parse.ignore_empty_lines)

    def find_line(self, row: int) -> int | None:
        # The first line has the names.
        return row + 2 if row < self._plain_lines else None

    def possible_kinds(self, start: int, stop: int) -> PossibleKinds:
        found, rules = self.plan.possible_kinds(), self.plan.wanted.rules
        if rules.categories:
            # A date can also be read as the text that it is in the file.
            columns = {
                name: (*kinds, "category") if kinds == ("date",) else kinds for name, kinds in found.columns.items()
            }
            found = replace(found, columns=columns)
        for name, kinds in ({self.plan.target: found.target} | found.columns).items():
            if name is not None and not kinds:
                self.plan.refuse(name, self._batches_in_range(0, self.length, {name: "number"}))
        if not rules.categories and not rules.dates:
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
                if len(columns[name]) == 1:
                    raise error.shift(self._rows_before(start)) from None
                columns[name] = columns[name][1:]
                continue
            return {
                name: kinds if kinds[0] != "number" or name in both else tuple(k for k in kinds if k != "boolean")
                for name, kinds in columns.items()
            }

    def count_levels(self, start: int, stop: int, names: list[str]) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {name: Counter() for name in names}
        with self._rows_of_the_file(start):
            for first, batch in self._batches_in_range(start, stop, self._as_texts(names)):
                for name in names:
                    found[name].update(self.plan.count_levels(batch, self.plan.category(name), first))
        return found

    def _as_texts(self, names: list[str]) -> dict[str, Kind]:
        """Some columns, to be read as text, with the target if rows without it are left out."""
        return dict.fromkeys(self.plan.with_target(names), "category")

    def columns_with_gaps(self, start: int, stop: int, names: list[str]) -> set[str]:
        found: set[str] = set()
        for _, batch in self._batches_in_range(start, stop, self._as_texts(names)):
            kept = keep_present(batch, self.plan.present(batch))
            found |= {name for name in names if kept.column(name).null_count}
        return found

    def count_changes(self, start: int, stop: int, schema: Schema) -> dict[str, tuple[int, Counter[str]]]:
        columns = self.plan.columns(schema)
        kinds: dict[str, Kind] = {name: one.kind for name, one in columns.items()}
        return self.plan.add_changes(columns, self._batches_in_range(start, stop, kinds))

    def part(self, start: int, stop: int, schema: Schema, budget: int) -> Part:
        plan, features, columns = self.plan, self.plan.features(schema), self.plan.columns(schema)
        kept: dict[str, list[np.ndarray]] = {name: [] for name in [*plan.other_columns, *plan.ids]}
        kinds: dict[str, Kind] = {name: one.kind for name, one in columns.items()}
        spool = Spool(len(features), plan.dtype, budget)
        present: list[np.ndarray | None] = []
        with self._rows_of_the_file(start):
            for first, batch in self._batches_in_range(start, stop, kinds | dict.fromkeys(plan.ids, "category")):
                spool.add(plan.block(batch, features, columns, first))
                present.append(plan.present(batch))
                for name, parts in kept.items():
                    is_id = name in plan.ids
                    parts.append(plan.id_values(batch, name) if is_id else plan.values(batch, columns[name], first))
        known = {name: np.concatenate(parts) if parts else np.empty(0) for name, parts in kept.items()}
        if plan.target is not None and not plan.wanted.numeric:
            known[plan.target] = to_integers(known[plan.target])
        names = tuple(feature.name for feature in features)
        ids = {name: known[name] for name in plan.ids}
        y, weight, offset = (known.get(name or "") for name in (plan.target, plan.weight, plan.offset))
        return Part(spool.all_rows(), y, weight, names, ids=ids, offset=offset, present=join_marks(present))
