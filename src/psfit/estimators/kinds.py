"""Checks that values are numbers or labels, before they are converted; errors name the argument."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
from torch import Tensor

ENCODE = "encode text and categories as numbers first, or for a table pass psfit.TableSource(X, categories='group')"
IMPUTE = "impute or drop such entries (sklearn.impute.SimpleImputer)"


def require_numbers(values: Any, name: str, remedy: str = ENCODE) -> None:
    """Refuse text (the `remedy` says what to do), dates, complex numbers and masks.

    NaN is not refused here, since tables use it for missing numbers; `require_finite` refuses it later.
    """
    for label, part in _parts(values, name):
        _require_kind(part, label)
        kind = _kind(part)
        if kind in "Mm":
            raise _dates_error(label, part.dtype)
        if kind in "USTO" and np.size(part):
            cells = list(enumerate(np.asarray(part, dtype=object).ravel()))
            # Texts that can be read as numbers come last, so that the message shows another text if there is one.
            for place, value in sorted(cells, key=lambda cell: _reads_as_number(cell[1])):
                _require_number(value, label, place // _width(part), remedy)


def require_finite_entries(values: np.ndarray, name: str) -> None:
    """Refuse NaN and infinity in targets and offsets, and name the first row that has one."""
    bad = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if bad.any():
        row = int(bad.argmax())
        kind = "NaN" if np.isnan(values[row]).any() else "infinity"
        raise ValueError(f"Input {name} contains {kind}, first in row {row} (counted from 0); drop such samples")


def require_labels(values: Any, name: str) -> None:
    """Refuse values that cannot be labels: complex numbers, masks, missing values."""
    for label, part in _parts(values, name):
        _require_kind(part, label)
        if _kind(part) == "O":
            for place, value in enumerate(np.asarray(part, dtype=object).ravel()):
                _require_present(value, label, place // _width(part))


def _parts(values: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Parts of one type each: of a table, the columns that may not be numbers; else all values."""
    if isinstance(values, Tensor) or values is None:
        return
    if scipy.sparse.issparse(values):
        yield name, values.data if values.dtype.kind == "c" else np.empty(0)
    elif hasattr(values, "iloc") and hasattr(values, "columns"):
        for place, dtype in enumerate(values.dtypes):
            if getattr(dtype, "kind", "O") not in "biuf":
                yield f"{name}: column {values.columns[place]!r}", values.iloc[:, place]
    elif hasattr(values, "dtype"):
        yield name, values
    else:
        try:
            yield name, np.asarray(values)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None


def _reads_as_number(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def _kind(part: Any) -> str:
    return str(getattr(part.dtype, "kind", "O"))


def _width(part: Any) -> int:
    """Entries of a row."""
    return int(np.prod(np.shape(part)[1:]))


def _require_kind(part: Any, label: str) -> None:
    if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
        row = int(np.argwhere(np.ma.getmaskarray(part))[0][0])
        raise ValueError(
            f"{label} is a masked array, first masked in row {row} (counted from 0); {IMPUTE}, or use .filled()"
        )
    if _kind(part) == "c":
        raise complex_error(label, part.dtype)
    if _kind(part) == "V":
        raise ValueError(f"{label} holds records ({part.dtype}); pass a table, or a column for each field")


def _require_number(value: Any, label: str, row: int, remedy: str) -> None:
    _require_present(value, label, row)
    if isinstance(value, (str, bytes)):
        raise ValueError(
            f"{label} is not numeric: it holds text, such as {value!r} in row {row} (counted from 0); {remedy}"
        )
    if isinstance(value, (complex, np.complexfloating)):
        raise complex_error(label, type(value).__name__)
    if hasattr(value, "isoformat"):
        raise _dates_error(label, type(value).__name__)
    try:
        float(value)
    except TypeError as error:
        raise TypeError(f"{label} is not numeric in row {row} (counted from 0): {error}") from None
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{label} does not fit in float64 in row {row} (counted from 0): {error}") from None


def _require_present(value: Any, label: str, row: int) -> None:
    # pandas may not be installed, so its missing values are recognised by the names of their types.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        raise ValueError(f"{label} has a missing value in row {row} (counted from 0); {IMPUTE}")


def _dates_error(label: str, kind: Any) -> ValueError:
    return ValueError(f"{label} holds dates or times ({kind}); turn them into numbers first, such as days since a date")


def complex_error(label: str, kind: Any) -> ValueError:
    """An error with the words that scikit-learn's tests of estimators expect."""
    return ValueError(
        f"{label}: Complex data not supported ({kind}); pass real and imaginary parts as columns of their own"
    )
