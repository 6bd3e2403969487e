"""Predictions for dask collections: lazy, and made where the partitions are."""

from typing import Any

import dask.array as da
import numpy as np
from dask import delayed

from psfit.dask.partitions import divide_like, in_one_column_block, require_same_rows
from psfit.estimators.batches import make_example, predict_batch
from psfit.estimators.model import SparseModel


def predict_collection(model: SparseModel, method: str, X: Any, offset: Any = None) -> Any:
    """A dask Series or DataFrame for a DataFrame, an array for an array, a list of delayed for such a list.

    The offset, if there is one, is divided like X.
    """
    example = make_example(model, method, offset is not None)
    if isinstance(X, (list, tuple)):
        offsets = [None] * len(X) if offset is None else offset
        return [delayed(predict_batch)(model, method, *each) for each in zip(X, offsets, strict=True)]
    if hasattr(X, "map_partitions") and hasattr(X, "divisions"):
        meta = _as_table(example[:0], X._meta.index[:0])
        return X.map_partitions(_predict_table, *_present(offset), model=model, method=method, meta=meta)
    X = in_one_column_block(X)
    shape: dict[str, Any] = {"drop_axis": 1} if example.ndim == 1 else {"chunks": (X.chunks[0], (example.shape[1],))}
    blocks = [X, *(_as_columns(divide_like(one, X, "offset")) for one in _present(offset))]
    return da.map_blocks(
        _predict_block, *blocks, model=model, method=method, dtype=example.dtype, meta=example[:0], **shape
    )


def _present(offset: Any) -> list[Any]:
    return [] if offset is None else [offset]


def _as_columns(offset: Any) -> Any:
    """Offsets ``(m, outputs)``: blocks of arrays meet by their last axes."""
    return offset[:, None] if offset.ndim == 1 else offset


def _predict_block(X: Any, offset: Any = None, *, model: SparseModel, method: str) -> np.ndarray:
    return predict_batch(model, method, X, offset)


def _predict_table(X: Any, offset: Any = None, *, model: SparseModel, method: str) -> Any:
    require_same_rows(X, offset, "offset")
    return _as_table(predict_batch(model, method, X, offset), X.index)


def _as_table(values: np.ndarray, index: Any) -> Any:
    import pandas as pd

    return pd.Series(values, index) if values.ndim == 1 else pd.DataFrame(values, index)
