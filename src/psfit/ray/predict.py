"""Predictions for Ray datasets: lazy, and made where the blocks are."""

from collections.abc import Iterable, Sequence
from typing import Any

from sklearn.utils.validation import check_is_fitted

from psfit.estimators.batches import METHODS, make_example, predict_batch
from psfit.estimators.model import SparseModel
from psfit.ray.columns import read_features, read_numbers


def predict_on_ray(
    model: SparseModel,
    dataset: Any,
    *,
    features: str | Sequence[str] | None = None,
    method: str = "predict",
    column: str = "prediction",
    offset: str | None = None,
) -> Any:
    """The dataset with one more column.

    Parameters
    ----------
    model : SparseModel
        A fitted model.
    dataset : ray.data.Dataset
        New samples.
    features : str, list of str or None
        The columns of features; a single name is a column of arrays. None means those of the fit, by their names.
    method : {"predict", "predict_proba", "predict_log_proba", "decision_function"}
        What to predict; a prediction for each class is an array in the column.
    column : str
        The name of the new column.
    offset : str or None
        The column of offsets, for a model that was fitted with one.
    """
    if method not in METHODS or not hasattr(model, method):
        raise ValueError(f"method={method!r}: {type(model).__name__} does not have it")
    check_is_fitted(model)
    known = model.learned_.features.names
    if features is None:
        if known is None:
            raise ValueError("features: the model was fitted without names of columns; say which columns to use")
        features = _find_columns(model, dataset)
    # What is known to be wrong is refused here and not on a worker; blocks are not computed for it.
    schema = dataset.schema(fetch_if_missing=False)
    _require_new(column, [] if schema is None else schema.names)
    make_example(model, method, offset is not None)

    def predict(batch: Any) -> Any:
        _require_new(column, batch.columns)
        values = predict_batch(model, method, read_features(batch, features), read_numbers(batch, offset))
        return batch.assign(**{column: values if values.ndim == 1 else list(values)})

    return dataset.map_batches(predict, batch_format="pandas")


def _require_new(column: str, names: Iterable[str]) -> None:
    """Refuse to replace a column."""
    if column in names:
        raise ValueError(f"column={column!r}: the dataset has it already; drop it, or give the new one another name")


def _find_columns(model: SparseModel, dataset: Any) -> list[str]:
    """The columns of the fit by their names: those that its features were made from, where it has read tables."""
    features = model.learned_.features
    assert features.names is not None
    names, schema = tuple(features.names), features.schema
    if schema is None or not schema.columns or set(names) <= set(dataset.schema().names):
        return list(names)
    return list(dict.fromkeys(feature.column for feature in schema.features(names, exact=True)))
