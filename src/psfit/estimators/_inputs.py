"""Reading what users pass in: NumPy, pandas and friends through scikit-learn, torch tensors in place."""

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import _check_sample_weight, validate_data
from torch import Tensor

from psfit.comm import Grid

FLOATS = (torch.float32, torch.float64)


def read_design(estimator: Any, X: Any, *, reset: bool) -> np.ndarray | Tensor:
    """A finite two-dimensional float array or tensor, checked against what was fitted unless `reset`."""
    if isinstance(X, Tensor):
        values = _read_tensor(estimator, X, reset)
    else:
        try:
            values = validate_data(estimator, X, reset=reset, dtype=[np.float64, np.float32], ensure_all_finite=False)
        except ValueError as error:
            if "could not convert string" in str(error):
                raise ValueError(f"X is not numeric ({error}); encode text and categories as numbers first") from None
            raise
    _require_finite(estimator, values)
    return values


def to_tensor(values: np.ndarray | Tensor, device: torch.device, dtype: torch.dtype | None) -> Tensor:
    """The same numbers on a device; the caller's own memory where device and precision allow it."""
    if isinstance(values, np.ndarray):
        with warnings.catch_warnings():
            # Read-only arrays are welcome: nothing here ever writes to the data.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            values = torch.from_numpy(values)
    return values.to(device=device, dtype=dtype or values.dtype)


def read_weights(sample_weight: Any, X: np.ndarray | Tensor) -> np.ndarray:
    """Non-negative weights ``(m,)`` in float64."""
    if isinstance(sample_weight, Tensor):
        sample_weight = sample_weight.detach().cpu().numpy()
    rows = np.empty((len(X), 1))
    weights = np.asarray(_check_sample_weight(sample_weight, rows, dtype=np.float64))
    if (weights < 0).any():
        raise ValueError(f"sample_weight must not be negative; entry {int((weights < 0).argmax())} is")
    return weights


def summed(grid: Grid, values: np.ndarray) -> np.ndarray:
    """The sum over all nodes of what each rank knows of its own."""
    return np.asarray(grid.nodes.total(torch.as_tensor(values)).cpu().numpy())


def as_array(y: Any) -> Any:
    """Targets as something scikit-learn can check; tensors come to the host."""
    return y.detach().cpu().numpy() if isinstance(y, Tensor) else y


def _read_tensor(estimator: Any, X: Tensor, reset: bool) -> Tensor:
    if X.layout != torch.strided:
        raise TypeError(f"X: tensors of layout {X.layout} are not supported; pass X.to_dense()")
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, samples by features; it has {X.ndim}. Use X.reshape(-1, 1)")
    if X.is_complex():
        raise ValueError("X: complex data not supported; pass real and imaginary parts as separate columns")
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise ValueError(f"X is empty: {X.shape[0]} sample(s) by {X.shape[1]} feature(s)")
    if reset:
        estimator.n_features_in_ = X.shape[1]
        vars(estimator).pop("feature_names_in_", None)
    elif X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    X = X.detach()
    return X if X.dtype in FLOATS else X.to(torch.float32 if X.is_floating_point() else torch.float64)


def _require_finite(estimator: Any, X: np.ndarray | Tensor) -> None:
    # A sum can overflow although no entry is infinite; only then, and on bad data, look at every entry.
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(X.sum()) if isinstance(X, np.ndarray) else X.sum().isfinite()
    if bool(finite):
        return
    bad = ~np.isfinite(X) if isinstance(X, np.ndarray) else ~X.isfinite().cpu().numpy()
    if bad.any():
        column = int(bad.any(axis=0).argmax())
        row = int(bad[:, column].argmax())
        names = getattr(estimator, "feature_names_in_", None)
        label = f"{column}" if names is None else f"{column} ({names[column]!r})"
        kind = "NaN" if bool(X[row, column] != X[row, column]) else "infinity"
        raise ValueError(
            f"X contains {kind} in column {label}, first in row {row}; impute or drop such entries "
            "(sklearn.impute.SimpleImputer)"
        )
