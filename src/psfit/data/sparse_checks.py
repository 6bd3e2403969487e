"""Checks of sparse matrices: compiled code uses their indices without any check of its own."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psfit.data import memory

# Bytes that a fit needs at least for each row or column, for all vectors of that length together.
VECTOR_BYTES = 64
COMPRESSED = ("csr", "csc", "bsr")
REMEDY = "build it again from rows, columns and values (scipy.sparse.coo_array)"


def check_matrix(matrix: Any, name: str = "X") -> Any:
    """Check that all indices of a matrix (SciPy's or torch's) lie inside its shape; return the matrix.

    A format that does not consist of arrays of indices is returned as coordinates.
    """
    if isinstance(matrix, Tensor):
        arrays = {"indptr": matrix.crow_indices(), "indices": matrix.col_indices(), "data": matrix.values()}
        check_arrays("csr", arrays, tuple(matrix.shape), name)
        return matrix
    if matrix.format not in (*COMPRESSED, "coo"):
        matrix = matrix.tocoo()
    names = ("indptr", "indices", "data") if matrix.format in COMPRESSED else ("row", "col", "data")
    if matrix.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, samples by features; it has {matrix.ndim}")
    check_arrays(matrix.format, {key: getattr(matrix, key) for key in names}, matrix.shape, name)
    return matrix


def check_arrays(form: str, arrays: Mapping[str, Any], shape: tuple[int, ...], name: str = "X") -> None:
    """Refuse arrays of a format (SciPy's names for both) that do not make a matrix of this shape."""
    if len(shape) != 2 or min(shape) < 0:
        raise ValueError(f"{name}: {shape} is not the shape of a matrix")
    require_room(shape, name)
    for key in arrays.keys() - {"data"}:
        if not _are_indices(arrays[key]):
            raise ValueError(
                f"{name}: the sparse matrix is damaged: its {key} is not a list of whole numbers; {REMEDY}"
            )
    fault = _find_fault_in_coordinates(arrays, shape) if form == "coo" else _find_fault_in_starts(form, arrays, shape)
    if fault is not None:
        raise ValueError(f"{name}: the sparse matrix is damaged: {fault}; {REMEDY}")


def require_room(shape: tuple[int, ...], name: str = "X") -> None:
    """Refuse a shape whose vectors do not fit in memory: often one wrong index is the cause."""
    longest = max(shape)
    size = longest * VECTOR_BYTES
    if size > memory.available():
        what = "columns" if longest == shape[1] else "rows"
        raise ValueError(
            f"{name}: {longest:,} {what} need several vectors of that length, at least {size / 1e9:,.1f} GB in all, "
            "more than is free; look for a wrong index"
        )


def is_canonical(starts: Tensor, places: Tensor) -> bool:
    """Whether the columns of every row increase, so that no entry is stored twice."""
    rising = places.diff() > 0
    # The first entry of a row may have any column; empty rows at the ends have no first entry.
    begins = starts[1:-1].long()
    rising[begins[(begins > 0) & (begins < len(places))] - 1] = True
    return bool(rising.all())


def _are_indices(values: Any) -> bool:
    if isinstance(values, Tensor):
        return values.ndim == 1 and not values.is_floating_point() and values.dtype != torch.bool
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "iu"


def _find_fault_in_starts(form: str, arrays: Mapping[str, Any], shape: tuple[int, ...]) -> str | None:
    """What is wrong with compressed rows, columns or blocks; None if nothing is."""
    starts, places, entries = (arrays[key] for key in ("indptr", "indices", "data"))
    blocks = tuple(entries.shape[1:]) if form == "bsr" else (1, 1)
    if (
        entries.ndim != (3 if form == "bsr" else 1)
        or min(blocks) < 1
        or any(n % b for n, b in zip(shape, blocks, strict=True))
    ):
        return f"entries of shape {tuple(entries.shape)} do not make a {form} matrix of shape {shape}"
    counts = [n // b for n, b in zip(shape, blocks, strict=True)]
    major, minor = reversed(counts) if form == "csc" else counts
    if len(starts) != major + 1:
        return f"its indptr has {len(starts)} entries, not {major + 1}"
    if len(places) != len(entries):
        return f"it has {len(places)} indices for {len(entries)} entries"
    if int(starts[0]) != 0 or int(starts[-1]) != len(places):
        return f"its indptr goes from {int(starts[0])} to {int(starts[-1])}, not from 0 to {len(places)}"
    if bool((starts[1:] < starts[:-1]).any()):
        return "its indptr decreases"
    return _find_fault_in_range(places, minor, "row" if form == "csc" else "column")


def _find_fault_in_coordinates(arrays: Mapping[str, Any], shape: tuple[int, ...]) -> str | None:
    rows, columns, entries = (arrays[key] for key in ("row", "col", "data"))
    if entries.ndim != 1 or not len(rows) == len(columns) == len(entries):
        return f"it has {len(rows)} rows and {len(columns)} columns for entries of shape {tuple(entries.shape)}"
    return _find_fault_in_range(rows, shape[0], "row") or _find_fault_in_range(columns, shape[1], "column")


def _find_fault_in_range(places: Any, count: int, what: str) -> str | None:
    if not len(places):
        return None
    for extreme in (int(places.min()), int(places.max())):
        if not 0 <= extreme < count:
            return f"it has an entry in {what} {extreme}, but {count} {what}s (counted from 0)"
    return None
