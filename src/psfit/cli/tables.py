"""Tables that commands write; the ending of the file's name decides the format."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psfit.common.output_files import table_lines, write_lines, write_whole

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = ".parquet"
ENDINGS = (*DELIMITERS, PARQUET, ".feather", ".arrow")


def write_table(path: Path, columns: "dict[str, np.ndarray]") -> None:
    """Write columns of the same length, given by name."""
    ending = path.suffix.lower()
    if ending in DELIMITERS:
        write_lines(path, _rows(columns), DELIMITERS[ending])
        return
    import pyarrow as pa
    from pyarrow.feather import write_feather
    from pyarrow.parquet import write_table as write_parquet

    sink = pa.BufferOutputStream()
    write = write_parquet if ending == PARQUET else write_feather
    write(pa.table({name: _arrow(values) for name, values in columns.items()}), sink)
    content = sink.getvalue()
    write_whole(path, lambda file: file.write(content))


def print_table(columns: "dict[str, np.ndarray]") -> None:
    """Print columns as CSV, line by line, so that a reader may stop early."""
    sys.stdout.writelines(table_lines(_rows(columns)))


def _rows(columns: "dict[str, np.ndarray]") -> Iterator[Iterable[Any]]:
    yield columns
    yield from zip(*(values.tolist() for values in columns.values()), strict=True)


def _arrow(values: "np.ndarray") -> "pa.Array":
    """One column; labels of several types become text, as in a CSV file."""
    import pyarrow as pa

    try:
        return pa.array(values.tolist() if values.dtype == object else values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([str(value) for value in values])
