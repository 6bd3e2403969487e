"""Predictions as columns of a Spark table, made by the tasks that hold its rows."""

from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from psfit.estimators.batches import make_example, predict_batch
from psfit.estimators.model import SparseModel
from psfit.estimators.ranks import name_columns
from psfit.spark.columns import find_names, read_features, select_features, select_numbers

# Types of predictions by the kind of NumPy's type; other labels are texts.
TYPES: dict[str, DataType] = {"f": DoubleType(), "i": LongType(), "u": LongType(), "b": BooleanType()}
# The columns that a model can give: the argument that names one, and the method that computes it.
OUTPUTS = {
    "prediction_col": "predict",
    "raw_prediction_col": "decision_function",
    "probability_col": "predict_proba",
}


def add_predictions(
    model: SparseModel, table: DataFrame, features: str, offset: str | None, names: dict[str, str]
) -> DataFrame:
    """The table with a column for each of the `OUTPUTS` that has a name; `features` and `offset` are columns of it."""
    asked = {OUTPUTS[kind]: name for kind, name in names.items() if name}
    taken = [name for name in asked.values() if name in table.columns]
    if taken:
        raise ValueError(f"the table has a column {taken[0]!r} already; drop it, or give the output another name")
    _require_names(model, find_names(table, features), features)
    fields = [StructField(method, _type_of(model, method, offset is not None)) for method in asked]

    @F.arrow_udf(StructType(fields))
    def predict(column: pa.Array, offset: pa.Array) -> pa.Array:
        return _predict(model, list(asked), column, offset)

    # Spark may compute a deterministic column again for each of its fields.
    column = "psfit_predictions"
    added = F.lit(None).cast("double") if offset is None else select_numbers(table, "offset_col", offset)
    table = table.withColumn(column, predict.asNondeterministic()(select_features(table, features), added))
    for method, name in asked.items():
        field = F.col(column)[method]
        table = table.withColumn(name, field if method == "predict" else array_to_vector(field))
    return table.drop(column)


def _require_names(model: SparseModel, given: list[str] | None, features: str) -> None:
    """Refuse vectors whose entries are known to be others than those of the fit, or in another order."""
    known = model.learned_.features.names
    if known is None or given is None or given == known.tolist():
        return
    pairs = zip_longest(known.tolist(), given)
    place, (fitted, here) = next((k, pair) for k, pair in enumerate(pairs) if pair[0] != pair[1])
    here, fitted = ("missing" if name is None else repr(name) for name in (here, fitted))
    raise ValueError(
        f"features_col={features!r}: entry {place} of its vectors is {here}, where in the fit it was {fitted}; "
        "assemble the same columns in the same order"
    )


def _predict(model: SparseModel, methods: list[str], column: pa.Array, offset: pa.Array) -> pa.Array:
    X: Any = read_features(column)
    names = model.learned_.features.names
    if names is not None:
        X = name_columns(X.toarray() if scipy.sparse.issparse(X) else X, names.tolist())
    added = None if model.learned_.offset is False else offset.to_numpy(zero_copy_only=False)
    return pa.StructArray.from_arrays(
        [_as_arrow(method, predict_batch(model, method, X, added)) for method in methods], methods
    )


def _as_arrow(method: str, values: np.ndarray) -> pa.Array:
    if method == "predict":
        kind = TYPES.get(values.dtype.kind)
        return pa.array(values.astype(str)) if kind is None else pa.array(values, to_arrow_type(kind))
    # Spark's classifiers give a number for each class, also for two.
    rows = np.column_stack([-values, values]) if values.ndim == 1 else values
    ends = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(ends, pa.array(rows.ravel(), pa.float64()))


def _type_of(model: SparseModel, method: str, has_offset: bool) -> DataType:
    example = make_example(model, method, has_offset)
    return TYPES.get(example.dtype.kind, StringType()) if method == "predict" else ArrayType(DoubleType())
