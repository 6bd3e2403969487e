"""Columns of Spark's tables as numbers: vectors (dense and sparse ones in one column) and arrays.

A vector comes to Python as a row of four fields: its kind, its length (of a sparse one), the places and the values.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, DecimalType, NumericType, StringType

SPARSE = 0


def select_features(frame: DataFrame, name: str) -> Column:
    """A column of vectors or arrays, in a form that goes to Python."""
    kind = _type_of(frame, name)
    if isinstance(kind, VectorUDT):
        return F.unwrap_udt(F.col(name))
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType):
        return F.col(name).cast("array<double>")
    raise TypeError(
        f"features_col={name!r} holds {kind.simpleString()}; it must hold vectors or arrays of numbers (a "
        "pyspark.ml.feature.VectorAssembler makes vectors from columns)"
    )


def select_labels(frame: DataFrame, name: str) -> Column:
    """A column of numbers, texts or truth values."""
    kind = _type_of(frame, name)
    if isinstance(kind, DecimalType):
        return F.col(name).cast("double")
    if not isinstance(kind, (NumericType, StringType, BooleanType)):
        raise TypeError(f"label_col={name!r} holds {kind.simpleString()}; it must hold numbers or labels")
    return F.col(name)


def select_numbers(frame: DataFrame, argument: str, name: str) -> Column:
    """A column of numbers."""
    kind = _type_of(frame, name)
    if not isinstance(kind, NumericType):
        raise TypeError(f"{argument}={name!r} holds {kind.simpleString()}; it must hold numbers")
    return F.col(name).cast("double")


def find_names(frame: DataFrame, name: str) -> list[str] | None:
    """The names that a VectorAssembler has given to the entries of a column of vectors; None if some have none."""
    metadata = {field.name: field.metadata for field in frame.schema.fields}
    # A column that is missing is refused when the columns are chosen.
    kinds = metadata.get(name, {}).get("ml_attr", {}).get("attrs", {})
    entries = {entry.get("idx"): entry.get("name") for kind in kinds.values() for entry in kind}
    names = [entries.get(place) for place in range(len(entries))]
    known = [entry for entry in names if entry is not None]
    return known if known and len(set(known)) == len(names) else None


def require_column(frame: DataFrame, argument: str, name: str) -> None:
    """Refuse a table without a column that an argument names."""
    if name not in frame.columns:
        raise ValueError(f"{argument}={name!r}: there is no such column; there are {', '.join(frame.columns[:20])}")


def read_features(column: pa.Array) -> np.ndarray | scipy.sparse.csr_matrix:
    """The features of a batch ``(m, p)``: sparse if one of its vectors is."""
    if column.null_count:
        raise ValueError("the features hold null; drop such rows (DataFrame.dropna), or impute them")
    if not pa.types.is_struct(column.type):
        return _read_lists(column, np.full(len(column), False), None, None)
    kinds = column.field("type").to_numpy(zero_copy_only=False)
    return _read_lists(column.field("values"), kinds == SPARSE, column.field("size"), column.field("indices"))


def _read_lists(values: Any, is_sparse: np.ndarray, sizes: Any, indices: Any) -> np.ndarray | scipy.sparse.csr_matrix:
    """Rows of values; a sparse one has a size, and the places of its values."""
    counts = values.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    widths = counts.copy()
    if is_sparse.any():
        widths[is_sparse] = sizes.to_numpy(zero_copy_only=False)[is_sparse]
    different = np.unique(widths)
    if len(different) > 1:
        raise ValueError(f"the features have {' and '.join(map(str, different))} entries in different rows")
    width = int(different[0]) if len(different) else 0
    flat = values.flatten().to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    if not is_sparse.any():
        return flat.reshape(len(counts), width)
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(len(flat)) - np.repeat(starts[:-1], counts)
    places[np.repeat(is_sparse, counts)] = indices.filter(pa.array(is_sparse)).flatten().to_numpy(zero_copy_only=False)
    # A copy, because memory of Arrow cannot be written to, and torch warns of that.
    return scipy.sparse.csr_matrix((flat, places, starts), shape=(len(counts), width), copy=True)


def _type_of(frame: DataFrame, name: str) -> DataType:
    return frame.schema[name].dataType
