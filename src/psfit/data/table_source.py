"""`TableSource`: samples in a table in memory, read with the same rules as files."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psfit.comm import Grid
from psfit.data.io import DataFileError, Pieces, ReadRequest
from psfit.data.sample_source import SampleSource

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TableSource(SampleSource):
    """Samples in a pandas or polars DataFrame or an Arrow table: pass it to `fit` in place of arrays.

    A plain DataFrame of numbers can be passed as it is. This is for tables with text, dates or missing values. With
    several ranks, every rank passes its own rows. The parameters besides those below are those of `TableRules`.

    Parameters
    ----------
    table : DataFrame or pyarrow.Table
    target : str or None
        The column of the target; by default the last, unless y is passed.
    sample_weight : str or None
        The column of sample weights.
    columns, one_hot, memory :
        As in `FileSource`.
    offset : str or None
        The column of offsets, numbers that are added to the linear predictors; ``"log(exposure)"`` is the logarithm of
        the column exposure.
    """

    table: Any
    target: str | int | None = None
    sample_weight: str | None = None
    columns: tuple[str, ...] | None = None
    one_hot: bool = False
    memory: int | str | None = None
    offset: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_table(self.table):
            raise TypeError(
                f"table: a {type(self.table).__name__} has no named columns; pass a DataFrame or a pyarrow.Table"
            )

    def pieces(self, wanted: ReadRequest, grid: Grid) -> Pieces:
        from psfit.data.io.tables import MemoryTable

        table = MemoryTable(to_arrow(self.table), wanted)
        return [(table, 0, table.length)]


def is_table(values: Any) -> bool:
    """Whether this is a table with named columns: of pandas, polars or Arrow."""
    return column_names(values) is not None


def column_names(values: Any) -> list[str] | None:
    """The names of the columns of a table; None if this is no table."""
    if hasattr(values, "iloc") and hasattr(values, "columns"):
        return [str(name) for name in values.columns]
    if hasattr(values, "to_arrow") and hasattr(values, "columns"):
        return list(values.columns)
    if hasattr(values, "column_names") and hasattr(values, "to_batches"):
        return list(values.column_names)
    return None


def to_arrow(table: Any) -> "pa.Table":
    """The table as one of Arrow; columns are shared where that is possible."""
    import pyarrow as pa

    if hasattr(table, "to_batches"):
        return table
    if not hasattr(table, "iloc"):
        return table.to_arrow()
    arrays = {}
    for name, place in _places(table):
        try:
            arrays[name] = pa.Array.from_pandas(table.iloc[:, place])
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise DataFileError(f"{TABLE}: column {name!r} holds values of several types ({error})") from None
    return pa.table(arrays)


def _places(frame: Any) -> Iterator[tuple[str, int]]:
    names = [str(name) for name in frame.columns]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise DataFileError(f"{TABLE}: column {name!r} occurs twice; rename one of them")
        yield name, place


# What messages call a table in memory.
TABLE = Path("the table")
