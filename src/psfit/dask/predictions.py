"""Predictions for dask collections: lazy, and made where the partitions are."""

from typing import Any

import numpy as np
from dask import delayed

from psfit.estimators.batches import make_example, predict_batch
from psfit.estimators.model import SparseModel


def predict_collection(model: SparseModel, method: str, X: Any) -> Any:
    """A dask Series or DataFrame for a DataFrame, an array for an array, a list of delayed for such a list."""
    example = make_example(model, method)
    if isinstance(X, (list, tuple)):
        return [delayed(predict_batch)(model, method, part) for part in X]
    if hasattr(X, "map_partitions") and hasattr(X, "divisions"):
        return X.map_partitions(_predict_table, model, method, meta=_as_table(example[:0], X._meta.index[:0]))
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    if example.ndim == 1:
        return X.map_blocks(_predict_block, model, method, dtype=example.dtype, drop_axis=1, meta=example[:0])
    return X.map_blocks(
        _predict_block,
        model,
        method,
        dtype=example.dtype,
        chunks=(X.chunks[0], (example.shape[1],)),
        meta=example[:0],
    )


def _predict_block(X: Any, model: SparseModel, method: str) -> np.ndarray:
    return predict_batch(model, method, X)


def _predict_table(X: Any, model: SparseModel, method: str) -> Any:
    return _as_table(predict_batch(model, method, X), X.index)


def _as_table(values: np.ndarray, index: Any) -> Any:
    import pandas as pd

    return pd.Series(values, index) if values.ndim == 1 else pd.DataFrame(values, index)
