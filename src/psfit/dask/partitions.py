"""Samples in dask collections as delayed partitions, each with its own rows of X, y and the weights."""

from typing import Any

from dask import delayed, is_dask_collection
from dask.delayed import Delayed

from psfit.estimators.ranks import NAMES, Partition


def is_collection(X: Any) -> bool:
    """Whether X is a dask DataFrame or array, or a list of delayed partitions."""
    return is_dask_collection(X) or (isinstance(X, (list, tuple)) and len(X) > 0 and isinstance(X[0], Delayed))


def make_partitions(X: Any, y: Any, sample_weight: Any = None, offset: Any = None) -> list[Delayed]:
    """One delayed `Partition` for each partition of X."""
    X = in_one_column_block(X)
    parts = {"X": _divide(X, "X")}
    for name, values in (("y", y), ("weight", sample_weight), ("offset", offset)):
        if values is None:
            continue
        parts[name] = _divide(divide_like(values, X, NAMES[name]), NAMES[name])
        if len(parts[name]) != len(parts["X"]):
            raise ValueError(
                f"{NAMES[name]} has {len(parts[name])} partitions where X has {len(parts['X'])}; divide them alike "
                "(repartition)"
            )
    return [delayed(_join, pure=False)(list(parts), each) for each in zip(*parts.values(), strict=True)]


def _join(names: list[str], values: tuple[Any, ...]) -> Partition:
    """A partition; where X and the others are tables, their rows must have the same index."""
    found = dict(zip(names, values, strict=True))
    X = found["X"]
    for name, part in found.items():
        require_same_rows(X, part, NAMES[name])
    return Partition(**{"y": None, **found})


def require_same_rows(X: Any, part: Any, name: str) -> None:
    """Refuse tables whose rows have another index than those of X in the same partition."""
    if hasattr(X, "index") and hasattr(part, "index") and not X.index.equals(part.index):
        raise ValueError(f"{name} has other rows than X in the same partition: their indices differ")


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


def in_one_column_block(X: Any) -> Any:
    """An array whose blocks have all columns, so that a block is a range of samples."""
    return X.rechunk({1: -1}) if hasattr(X, "numblocks") and X.ndim == 2 and X.numblocks[1] > 1 else X


def divide_like(values: Any, X: Any, name: str) -> Any:
    """An array divided into the same rows as X, if the sizes of its blocks are known; other collections as they are."""
    values = in_one_column_block(values)
    if not (hasattr(values, "rechunk") and hasattr(X, "chunks")):
        return values
    rows = X.chunks[0]
    known = all(size == size for size in (*rows, *values.chunks[0]))
    if known and sum(rows) != sum(values.chunks[0]):
        raise ValueError(f"{name} has {sum(values.chunks[0])} entries where X has {sum(rows)} rows")
    return values.rechunk({0: rows}) if known and values.chunks[0] != rows else values
