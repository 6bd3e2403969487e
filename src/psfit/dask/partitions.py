"""Samples in dask collections as delayed partitions, each with its own rows of X, y and the weights."""

from typing import Any

from dask import delayed, is_dask_collection
from dask.delayed import Delayed

from psfit.estimators.ranks import Partition


def is_collection(X: Any) -> bool:
    """Whether X is a dask DataFrame or array, or a list of delayed partitions."""
    return is_dask_collection(X) or (isinstance(X, (list, tuple)) and len(X) > 0 and isinstance(X[0], Delayed))


def make_partitions(X: Any, y: Any, sample_weight: Any) -> list[Delayed]:
    """One delayed `Partition` for each partition of X."""
    if y is None:
        raise ValueError("y must be passed: a dask collection divided like X")
    X = _in_one_column_block(X)
    parts = [_divide(X, "X")]
    for name, values in (("y", y), ("sample_weight", sample_weight)):
        if values is not None:
            parts.append(_divide(_like(values, X), name))
        if len(parts[-1]) != len(parts[0]):
            raise ValueError(
                f"{name} has {len(parts[-1])} partitions where X has {len(parts[0])}; divide them alike (repartition)"
            )
    return [delayed(_pair, pure=False)(*each) for each in zip(*parts, strict=True)]


def _pair(X: Any, y: Any, weight: Any = None) -> Partition:
    """A partition; where X and the others are tables, their rows must have the same index."""
    for name, values in (("y", y), ("sample_weight", weight)):
        if hasattr(X, "index") and hasattr(values, "index") and not X.index.equals(values.index):
            raise ValueError(f"{name} has other rows than X in the same partition: their indices differ")
    return Partition(X, y, weight)


def _divide(values: Any, name: str) -> list[Delayed]:
    if isinstance(values, (list, tuple)) and all(isinstance(part, Delayed) for part in values):
        return list(values)
    if isinstance(values, Delayed):
        return [values]
    if not is_dask_collection(values) or not hasattr(values, "to_delayed"):
        raise TypeError(
            f"{name} is a {type(values).__name__}; pass a dask DataFrame or array, or a list of delayed partitions (or "
            "fit the plain estimator to data in memory)"
        )
    # Optimised by itself, a column of some files may be read in fewer parts than the table that it belongs to.
    parts = values.to_delayed(optimize_graph=False)
    return list(parts.ravel() if hasattr(parts, "ravel") else parts)


def _in_one_column_block(X: Any) -> Any:
    """An array whose blocks have all columns, so that a block is a range of samples."""
    return X.rechunk({1: -1}) if hasattr(X, "numblocks") and X.ndim == 2 and X.numblocks[1] > 1 else X


def _like(values: Any, X: Any) -> Any:
    """Targets of an array, divided into the same rows as X where the sizes of the blocks are known."""
    if not (hasattr(values, "rechunk") and hasattr(X, "chunks")):
        return _in_one_column_block(values)
    values = _in_one_column_block(values)
    rows = X.chunks[0]
    known = all(size == size for size in (*rows, *values.chunks[0]))
    if known and sum(rows) != sum(values.chunks[0]):
        raise ValueError(f"y or sample_weight has {sum(values.chunks[0])} entries where X has {sum(rows)} rows")
    return values.rechunk({0: rows}) if known and values.chunks[0] != rows else values
