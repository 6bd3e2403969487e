"""Read the data that users pass: arrays and tables by scikit-learn's checks, tensors, sparse matrices, files."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse
import torch
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    _get_feature_names,
    check_array,
)
from torch import Tensor

from psfit.comm import Grid
from psfit.data import Dense, DesignMatrix, FileSource, SampleSource, Sparse, Streamed, TableSource, memory
from psfit.data.io.base import CheckedRows
from psfit.data.schema import Schema
from psfit.data.sparse_checks import check_matrix
from psfit.data.streamed import ArrayRows
from psfit.data.table_source import column_names
from psfit.estimators.kinds import complex_error, require_numbers

FLOATS = (torch.float32, torch.float64)
# Up to this many cells, products with a dense matrix are faster than those with a sparse one.
DENSE_CELLS = 1 << 16


def as_source(
    X: Any, y: Any = None, sample_weight: Any = None, target: Any = None, offset: Any = None
) -> SampleSource | None:
    """The description of samples if X is one or names files, else None; arguments that only they have are refused."""
    paths = isinstance(X, (list, tuple)) and len(X) > 0 and all(isinstance(part, (str, Path)) for part in X)
    if paths or isinstance(X, (str, Path)):
        X, target = FileSource(tuple(X) if paths else X, target), None
    if isinstance(X, SampleSource):
        owner = type(X).__name__
        if target is not None:
            raise ValueError(f"target={target!r}: X is a {owner} already; name the target there")
        if y is not None and X.target is not None:
            raise ValueError(f"y was passed, and target={X.target!r} names one in X; choose one of them")
        if sample_weight is not None and X.sample_weight is not None:
            raise ValueError(f"sample_weight was passed, and the {owner} names one; choose one of them")
        if offset is not None and X.offset is not None:
            raise ValueError(f"offset was passed, and the {owner} names one; choose one of them")
        named = {"sample_weight": sample_weight, "offset": offset}
        return X.change(**{name: one for name, one in named.items() if isinstance(one, str)})
    if target is not None:
        raise ValueError(f"target={target!r} names a column of a file; X is a {type(X).__name__}, so pass y instead")
    return None


def as_known_source(
    X: Any, features: "Features", y: Any = None, sample_weight: Any = None, target: Any = None, offset: Any = None
) -> SampleSource | None:
    """The same for a fitted model: a table is read by the model's schema, by name, if the model has one."""
    names, schema = column_names(X), features.schema
    if names is not None and schema is not None and schema.columns and features.names is not None:
        needed = {feature.column for feature in schema.features(tuple(features.names), exact=True)}
        # A table that has the features themselves and not their columns was encoded before.
        if needed <= set(names) or not set(features.names) <= set(names):
            X, target = TableSource(X, target), None
    return as_source(X, y, sample_weight, target, offset)


@dataclass(frozen=True, eq=False)
class Features:
    """The columns of X: how many there are, their names if it had names, and how files were read."""

    count: int
    names: np.ndarray | None = None
    schema: Schema | None = None


class Fitted(Protocol):
    """A model or a path; new samples must have its features. `feature_names_in_` exists if names are known."""

    @property
    def n_features_in_(self) -> int: ...


def read_new(X: Any, owner: str) -> tuple[Any, Features]:
    """Numbers to fit, samples by features: an array, a tensor or a sparse matrix; and facts about its columns.

    Messages name the `owner`: the estimator or procedure that calls this.
    """
    values = _read_values(X, owner)
    return values, Features(values.shape[1], _get_feature_names(X))


def read_known(X: Any, fitted: Fitted) -> Any:
    """Numbers to predict, whose columns must be those of the fit."""
    if not isinstance(X, Tensor) and not _is_large(X):
        _check_feature_names(fitted, X, reset=False)
    values = _read_values(X, type(fitted).__name__)
    _check_n_features(fitted, values, reset=False)
    return values


def _read_values(X: Any, owner: str) -> Any:
    if isinstance(X, Tensor):
        return _read_tensor(X)
    return _read_memory_map(X) if _is_large(X) else _read_array(X, owner)


def _read_array(X: Any, owner: str) -> Any:
    if scipy.sparse.issparse(X):
        X = check_matrix(X)
    require_numbers(X, "X")
    return check_array(
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,
        estimator=owner,
        input_name="X",
    )


def place(values: Any, grid: Grid) -> DesignMatrix:
    """The same numbers on the grid's device; the caller's own memory where device and precision allow it."""
    if _is_sparse(values):
        matrix = Sparse.of(values, grid.device, grid.dtype, grid.transfers)
        # All ranks must hold the same kind of matrix, also if their numbers of rows differ.
        tiny = matrix.shape[0] * matrix.shape[1] <= DENSE_CELLS and grid.world.size == 1
        return Dense(matrix.csr.matrix.to_dense()) if tiny else matrix
    if isinstance(values, np.ndarray):
        return _place_array(_without_negative_strides(values), grid)
    return Dense(to_tensor(values, grid))


def _place_array(values: np.ndarray, grid: Grid) -> DesignMatrix:
    dtype = grid.dtype or (torch.float32 if values.dtype == np.float32 else torch.float64)
    if grid.device.type == "cpu" and not isinstance(values, np.memmap):
        return Dense(to_tensor(values, grid))
    room = memory.budget(grid.device)
    large = values.shape[0] * values.shape[1] * dtype.itemsize > room
    if grid.device.type == "cpu" and not large:
        return Dense(to_tensor(values, grid))
    path = Path(str(getattr(values, "filename", "X")))
    rows = CheckedRows(ArrayRows(values), path, None) if large else ArrayRows(values)
    stream = Streamed(rows, grid.device, dtype, room, transfers=grid.transfers)
    return stream if large else stream.load()


def to_tensor(values: np.ndarray | Tensor, grid: Grid, dtype: torch.dtype | None = None) -> Tensor:
    """The same numbers on the grid's device; the caller's own memory where device and precision allow it."""
    if isinstance(values, np.ndarray):
        values = _without_negative_strides(values)
        with warnings.catch_warnings():
            # Read-only arrays are fine: nothing here writes to the data.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            values = torch.from_numpy(values)
    return grid.transfers.send(values, grid.device, dtype or grid.dtype or values.dtype)


def _without_negative_strides(values: np.ndarray) -> np.ndarray:
    """The same numbers in an order that tensors allow: a reversed array is copied."""
    return np.ascontiguousarray(values) if min(values.strides, default=0) < 0 else values


def read_weights(sample_weight: Any, samples: int, name: str = "sample_weight") -> np.ndarray:
    """Non-negative weights ``(m,)`` in float64; messages call them by their `name`."""
    if isinstance(sample_weight, str):
        raise TypeError(f"sample_weight={sample_weight!r} names a column of a file; with arrays pass the weights")
    sample_weight = as_array(sample_weight)
    require_numbers(sample_weight, "sample_weight")
    weights = np.asarray(_check_sample_weight(sample_weight, np.empty((samples, 1)), dtype=np.float64))
    if (weights < 0).any():
        row = int((weights < 0).argmax())
        raise ValueError(
            f"{name} must not be negative; it is {weights[row]:g} in row {row} (counted from 0); correct such weights, "
            "or drop their rows"
        )
    return weights


def sum_over_nodes(grid: Grid, values: np.ndarray) -> np.ndarray:
    """The sum over all nodes of each rank's values for its own nodes."""
    return np.asarray(grid.nodes.total(torch.as_tensor(values)).cpu().numpy())


def as_array(y: Any) -> Any:
    """Targets or weights in a form that scikit-learn can check; tensors are copied to the host."""
    if type(y).__module__.startswith(("polars", "pyarrow")):
        return _table_as_array(y)
    if not isinstance(y, Tensor):
        return y
    # NumPy has no bfloat16, and float32 holds all of its numbers.
    y = y.detach().cpu().resolve_conj().resolve_neg()
    return (y.float() if y.dtype == torch.bfloat16 else y).numpy()


def _table_as_array(y: Any) -> np.ndarray:
    """A column or table of polars or Arrow as an array; missing values stay missing and are refused later."""
    if hasattr(y, "to_arrow"):
        y = y.to_arrow()
    if hasattr(y, "to_batches"):
        columns = [np.asarray(one.to_numpy()) for one in y.columns]
        return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
    return np.asarray(y.to_numpy() if hasattr(y, "chunks") else y.to_numpy(zero_copy_only=False))


def _is_sparse(X: Any) -> bool:
    return scipy.sparse.issparse(X) or (isinstance(X, Tensor) and X.layout == torch.sparse_csr)


def _is_large(X: Any) -> bool:
    """Whether X is a memory map too large for scikit-learn's checks, which need all of it in memory."""
    return isinstance(X, np.memmap) and X.nbytes > memory.budget(torch.device("cpu"))


def _read_tensor(X: Tensor) -> Tensor:
    if X.layout not in (torch.strided, torch.sparse_csr):
        raise TypeError(f"X: tensors of layout {X.layout} are not supported; pass X.to_sparse_csr() or X.to_dense()")
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, samples by features; it has {X.ndim}. Use X.reshape(-1, 1)")
    if X.is_complex():
        raise complex_error("X", X.dtype)
    _require_not_empty(X)
    X = X.detach()
    return X if X.dtype in FLOATS else X.to(torch.float32 if X.is_floating_point() else torch.float64)


def _read_memory_map(X: np.memmap) -> np.memmap:
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise ValueError(f"X must be numbers in two dimensions; it is {X.dtype} in {X.ndim}")
    if min(X.strides) < 0:
        raise ValueError("X: a reversed memory map that does not fit in memory; pass it in the order of the file")
    _require_not_empty(X)
    return X


def _require_not_empty(X: Any) -> None:
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise ValueError(f"X is empty: {X.shape[0]} sample(s) by {X.shape[1]} feature(s)")


def require_finite(matrix: DesignMatrix, names: np.ndarray | None) -> None:
    """Refuse NaN and infinity in data that are in memory; streamed rows are checked when they are read."""
    if isinstance(matrix, Sparse):
        bad = ~matrix.csr.values.isfinite()
        if bool(bad.any()):
            first = int(bad.nonzero()[0, 0])
            row = int((matrix.csr.starts <= first).sum()) - 1
            raise _not_finite(names, float(matrix.csr.values[first]), row, int(matrix.csr.places[first]))
    elif isinstance(matrix, Dense) and not bool(matrix.values.sum().isfinite()):
        # The sum is a quick test. It may overflow although no entry is infinite, so then every entry is tested.
        bad = ~matrix.values.isfinite()
        if bool(bad.any()):
            column = int(bad.any(dim=0).nonzero()[0, 0])
            row = int(bad[:, column].nonzero()[0, 0])
            raise _not_finite(names, float(matrix.values[row, column]), row, column)


def _not_finite(names: np.ndarray | None, value: float, row: int, column: int) -> ValueError:
    label = f"{column}" if names is None else f"{column} ({names[column]!r})"
    kind = "NaN" if value != value else "infinity"
    # A name means that X is a table.
    fill = ", or fit to psfit.TableSource(X, missing='fill')" if names is not None and value != value else ""
    return ValueError(
        f"X contains {kind} in column {label}, first in row {row} (counted from 0); impute or drop such entries "
        f"(sklearn.impute.SimpleImputer){fill}"
    )
