"""Text in columns, CSV and TSV: parsed once; what does not fit in memory is kept as numbers in a temporary file."""

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from psfit.data.files.base import DataFile, DataFileError, Part, Wanted
from psfit.data.files.plan import Plan, is_number
from psfit.data.streamed import ArrayRows

BLOCK = 8 << 20
DELIMITERS = {".csv": ",", ".tsv": "\t"}


class TextFile(DataFile):
    """Lines of cells under a header; a part is a range of bytes, moved to the beginnings of lines."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path = path
        self.parse = csv.ParseOptions(delimiter=DELIMITERS[path.suffix.lower()])
        with path.open("rb") as file:
            self.header = file.readline()
            self.body = file.tell()
        self.length = path.stat().st_size - self.body
        if self.length <= 0:
            raise self.fail("needs a header and at least one row below it")
        self.names = next(iter(self._reader(io.BytesIO(self.header * 2), {}))).schema.names
        self.plan = Plan.of(path, self._schema(), wanted)

    def _schema(self) -> pa.Schema:
        """Types as the first lines suggest; all numbers may have a fraction further down."""
        with self.path.open("rb") as file:
            file.seek(self.body)
            head = file.read(BLOCK)
        if len(head) < self.length:
            head = head[: head.rfind(b"\n") + 1]
        guessed = next(self._batches(io.BytesIO(head), {})).schema
        return pa.schema(
            [pa.field(f.name, pa.float64() if is_number(f.type) else f.type) for f in guessed],
        )

    def _reader(self, stream: io.IOBase, types: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        names = {"column_names": self.names} if hasattr(self, "names") else {}
        wanted = {"include_columns": list(types)} if types else {}
        return iter(
            csv.open_csv(
                pa.PythonFile(stream, mode="r"),
                read_options=csv.ReadOptions(block_size=BLOCK, use_threads=False, **names),
                parse_options=self.parse,
                convert_options=csv.ConvertOptions(column_types=types, **wanted),
            )
        )

    def _batches(self, stream: io.IOBase, types: dict[str, pa.DataType], start: int = 0) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._reader(stream, types)
        except pa.ArrowInvalid as error:
            before = self._rows_before(start)
            where = f" (rows are counted after row {before})" if before else ""
            raise self.fail(f"{str(error).splitlines()[0]}{where}; every row must be like the header says") from None

    def _types(self, names: list[str]) -> dict[str, pa.DataType]:
        return {name: self.plan.schema.field(name).type for name in names}

    def _lines(self, start: int, stop: int) -> "_Window":
        """The lines that begin in a range of bytes below the header."""
        with self.path.open("rb") as file:
            return _Window(self.path, self._line_start(file, start), self._line_start(file, stop))

    def _line_start(self, file: io.BufferedReader, at: int) -> int:
        if at == 0:
            return self.body
        file.seek(self.body + at - 1)
        file.readline()
        return file.tell()

    def _rows_before(self, start: int) -> int:
        """How many rows lie before a range, for messages."""
        window, count = self._lines(0, start) if start else None, 0
        while window is not None and (piece := window.read(BLOCK)):
            count += piece.count(b"\n")
        return count

    def texts(self, start: int, stop: int) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {name: set() for name in self.plan.textual}
        if found:
            for batch in self._batches(self._lines(start, stop), self._types(list(found)), start):
                for name in found:
                    found[name] |= set(batch.column(name).unique().to_pylist())
        return found

    def part(self, start: int, stop: int, texts: dict[str, list[str]], budget: int) -> Part:
        plan, features = self.plan, self.plan.features(texts)
        beside = [name for name in (plan.target, plan.weight) if name is not None]
        columns: dict[str, list[np.ndarray]] = {name: [] for name in beside}
        spool, rows = _Spool(len(features), plan.dtype, budget), 0
        for batch in self._batches(self._lines(start, stop), self._types([*plan.sources, *beside]), start):
            try:
                spool.add(plan.block(batch, features, rows))
                for name in beside:
                    columns[name].append(plan.beside(batch, name, rows))
            except DataFileError as error:
                raise _moved(error, rows, self._rows_before(start)) from None
            rows += batch.num_rows
        known = {name: np.concatenate(parts) if parts else np.empty(0) for name, parts in columns.items()}
        names = tuple(feature.name for feature in features)
        return Part(ArrayRows(spool.array()), known.get(plan.target or ""), known.get(plan.weight or ""), names)


def _moved(error: DataFileError, rows: int, before: int) -> DataFileError:
    """The same error, said about rows of the whole file."""
    return DataFileError(str(error) + (f" of those after row {before}" if before else ""))


class _Window(io.RawIOBase):
    """A range of bytes of a file, as a file."""

    def __init__(self, path: Path, start: int, stop: int) -> None:
        super().__init__()
        self.file, self.left = path.open("rb"), stop - start
        self.file.seek(start)

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        size = self.left if size is None or size < 0 else min(size, self.left)
        piece = self.file.read(size)
        self.left -= len(piece)
        return piece

    def close(self) -> None:
        self.file.close()
        super().close()


class _Spool:
    """Blocks of rows: in memory while they fit, then in a temporary file that vanishes with its last user."""

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

    def array(self) -> np.ndarray:
        if self.file is None:
            return np.concatenate(self.blocks) if self.blocks else np.empty((0, self.width), self.dtype)
        self.file.flush()
        return np.memmap(self.file, dtype=self.dtype, mode="r", shape=(self.rows, self.width))
