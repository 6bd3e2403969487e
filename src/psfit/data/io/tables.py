"""Parquet and Arrow (Feather) files: only the needed columns are read, in ranges of rows."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq

from psfit.data.io.base import DataFile, Part, PossibleKinds, ReadRequest
from psfit.data.io.cell_reader import join_marks, keep_present, plain_cells
from psfit.data.io.cells import first_of_other_kind, is_text
from psfit.data.io.table_plan import TablePlan
from psfit.data.schema import Kind, Schema
from psfit.data.streamed import BLOCK_BYTES, RowReader

# Rows in a batch if few columns are read.
HEIGHT = 1 << 16


class TableFile(DataFile):
    """A table whose rows are numbered."""

    schema: pa.Schema

    def __init__(self, path: Path, wanted: ReadRequest) -> None:
        self.path = path
        try:
            self._open()
            # The index of a pandas table is stored as the last columns, but it is not a column of the table.
            index = (self.schema.pandas_metadata or {}).get("index_columns", [])
            columns = [field for field in self.schema if field.name not in index]
        except (ValueError, OSError, pa.ArrowException) as error:
            raise self.error(f"cannot be read ({str(error).splitlines()[0]}); it may be cut short") from None
        self.plan = TablePlan.of(path, pa.schema(columns), wanted)

    @abstractmethod
    def _open(self) -> None:
        """Set `schema` and `length`."""

    @abstractmethod
    def batches(self, start: int, columns: list[str], height: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of about `height` rows at most, each with the number of its first row; the first contains `start`."""

    def possible_kinds(self, start: int, stop: int) -> PossibleKinds:
        found = self.plan.possible_kinds()
        if self.plan.wanted.rules.dates:
            found = replace(found, columns=self._add_dates(found.columns, start, stop))
        for name, kinds in ({self.plan.target: found.target} | found.columns).items():
            if name is not None and not kinds:
                self.plan.refuse(name, self.batches_in_range(0, self.length, [name], HEIGHT))
        return found

    def _add_dates(self, columns: dict[str, tuple[Kind, ...]], start: int, stop: int) -> dict[str, tuple[Kind, ...]]:
        """Columns of text that hold nothing but dates in a range can be dates, too."""
        texts = {name for name in columns if is_text(self.plan.types.field(name).type)}
        for _, batch in self.batches_in_range(start, stop, sorted(texts), HEIGHT) if texts else ():
            texts = {name for name in texts if first_of_other_kind(plain_cells(batch, name, False), "date") is None}
        return {name: ("date", *kinds) if name in texts else kinds for name, kinds in columns.items()}

    def count_levels(self, start: int, stop: int, names: list[str]) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {name: Counter() for name in names}
        for first, batch in self.batches_in_range(start, stop, self.plan.with_target(names), HEIGHT):
            for name in names:
                found[name].update(self.plan.count_levels(batch, self.plan.category(name), first))
        return found

    def columns_with_gaps(self, start: int, stop: int, names: list[str]) -> set[str]:
        found: set[str] = set()
        for _, batch in self.batches_in_range(start, stop, self.plan.with_target(names), HEIGHT):
            kept = keep_present(batch, self.plan.present(batch))
            found |= {name for name in names if plain_cells(kept, name, True).null_count}
        return found

    def count_changes(self, start: int, stop: int, schema: Schema) -> dict[str, tuple[int, Counter[str]]]:
        columns = self.plan.columns(schema)
        return self.plan.add_changes(columns, self.batches_in_range(start, stop, list(columns), HEIGHT))

    def part(self, start: int, stop: int, schema: Schema, budget: int) -> Part:
        plan, columns = self.plan, self.plan.columns(schema)
        kept: dict[str, list[np.ndarray]] = {name: [] for name in [*plan.other_columns, *plan.ids]}
        present: list[np.ndarray | None] = []
        for first, batch in self.batches_in_range(start, stop, list(kept), HEIGHT) if kept else ():
            present.append(plan.present(batch))
            for name, parts in kept.items():
                is_id = name in plan.ids
                parts.append(plan.id_values(batch, name) if is_id else plan.values(batch, columns[name], first))
        known = {name: np.concatenate(parts) if parts else np.empty(0) for name, parts in kept.items()}
        rows = TableRows(self, start, stop, schema)
        names = tuple(feature.name for feature in rows.features)
        ids = {name: known[name] for name in plan.ids}
        y, weight, offset = (known.get(name or "") for name in (plan.target, plan.weight, plan.offset))
        return Part(rows, y, weight, names, ids=ids, offset=offset, present=join_marks(present))

    def _remove_marks(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows without the texts that mean a missing value; ids are left as they are."""
        marks = self.plan.wanted.rules.missing_marks
        texts = [field.name for field in batch.schema if is_text(field.type)] if marks else []
        for name in set(texts) - set(self.plan.ids):
            cells = plain_cells(batch, name, False).cast(pa.string())
            known = pc.if_else(pc.is_in(cells, value_set=pa.array(marks, pa.string())), None, cells)
            batch = batch.set_column(batch.schema.get_field_index(name), name, known)
        return batch

    def batches_in_range(
        self, start: int, stop: int, columns: list[str], height: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batches of a range of rows, cut to the range."""
        try:
            for first, batch in self.batches(start, columns, height):
                low, high = max(start - first, 0), min(stop - first, batch.num_rows)
                if high > low:
                    yield first + low, self._remove_marks(batch.slice(low, high - low))
                if first + batch.num_rows >= stop:
                    return
        except (pa.ArrowException, OSError) as error:
            raise self.error(f"cannot be read ({str(error).splitlines()[0]}); it may be damaged") from None


class TableRows(RowReader):
    """Features of a table; a range that begins where the last one ended continues without reading anything again."""

    def __init__(self, table: TableFile, start: int, stop: int, schema: Schema) -> None:
        self.table, self.start, self.stop = table, start, stop
        self.features, self.columns = table.plan.features(schema), table.plan.columns(schema)
        features, self.columns_to_read = self.features, table.plan.with_target(table.plan.sources)
        self.shape, self.dtype = (stop - start, len(features)), table.plan.dtype
        self.height = max(1, BLOCK_BYTES // max(1, len(features) * self.dtype.itemsize))
        self.cursor: Iterator[tuple[int, pa.RecordBatch]] = iter(())
        self.next, self.left = -1, np.empty((0, len(features)), self.dtype)

    def read(self, start: int, stop: int) -> np.ndarray:
        start, stop = self.start + start, self.start + stop
        if start != self.next:
            self.cursor = self.table.batches_in_range(start, self.stop, self.columns_to_read, self.height)
            self.left = self.left[:0]
        found, count = [self.left], len(self.left)
        # Set again only at the end: after an error, no range may continue from here.
        self.next = -1
        while count < stop - start:
            first, batch = next(self.cursor)
            found.append(self.table.plan.block(batch, self.features, self.columns, first))
            count += batch.num_rows
        values = np.concatenate(found)
        self.next, self.left = stop, values[stop - start :].copy()
        return values[: stop - start]


class MemoryTable(TableFile):
    """A table in memory."""

    def __init__(self, table: pa.Table, wanted: ReadRequest) -> None:
        self.table = table
        super().__init__(Path("the table"), wanted)

    def _open(self) -> None:
        self.schema, self.length = self.table.schema, self.table.num_rows

    def batches(self, start: int, columns: list[str], height: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        first = start
        for batch in self.table.select(columns).slice(start).to_batches(max_chunksize=height):
            yield first, batch
            first += batch.num_rows


class ParquetFile(TableFile):
    """A Parquet file; a row group can be read without those before it."""

    def _open(self) -> None:
        self.file = pq.ParquetFile(self.path, memory_map=True)
        self.schema, self.length = self.file.schema_arrow, self.file.metadata.num_rows
        groups = range(self.file.metadata.num_row_groups)
        self.ends = list(accumulate(self.file.metadata.row_group(k).num_rows for k in groups))

    def batches(self, start: int, columns: list[str], height: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        groups = [k for k, end in enumerate(self.ends) if end > start]
        if not groups:
            return
        first = self.ends[groups[0] - 1] if groups[0] else 0
        for batch in self.file.iter_batches(batch_size=height, row_groups=groups, columns=columns):
            yield first, batch
            first += batch.num_rows


class ArrowFile(TableFile):
    """Record batches of the Arrow file format, which is also Feather's."""

    def _open(self) -> None:
        self.schema = self._reader([]).schema
        # One column is enough to count rows.
        file = self._reader([0])
        self.counts = [file.get_batch(k).num_rows for k in range(file.num_record_batches)]
        self.length = sum(self.counts)

    def _reader(self, fields: list[int]) -> Any:
        """A reader of some columns, or of all if `fields` is empty; other columns are not read or decompressed."""
        options = pyarrow.ipc.IpcReadOptions(included_fields=fields)
        return pyarrow.ipc.open_file(pa.memory_map(str(self.path)), options=options)

    def batches(self, start: int, columns: list[str], height: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        file, first = self._reader([self.schema.get_field_index(name) for name in columns]), 0
        for k, count in enumerate(self.counts):
            if first + count > start:
                batch = file.get_batch(k)
                for low in range(0, count, height):
                    yield first + low, batch.slice(low, height)
            first += count
