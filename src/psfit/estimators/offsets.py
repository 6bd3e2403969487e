"""Offsets: a fixed number for each sample that is added to its linear predictor, such as the logarithm of exposure."""

from typing import Any

import numpy as np
import torch
from sklearn.utils import check_array, check_consistent_length

from psfit.comm import Grid
from psfit.data import SampleSource
from psfit.data.ranges import require_moderate
from psfit.estimators.kinds import require_finite_entries, require_numbers
from psfit.estimators.reading import as_array

# With a log link, offsets that differ by more than this are no logarithms: their exponentials differ by 130 decimals.
MOST_SPREAD = 300.0
# What a fit keeps of its offset, or of its sample weights: whether it had some, or the column of its files.
KeptColumn = bool | str


def read_offset(offset: Any, rows: int) -> np.ndarray | None:
    """Offsets ``(m, 1)`` or ``(m, outputs)`` in float64; None if there are none."""
    if offset is None:
        return None
    if isinstance(offset, str):
        raise TypeError(f"offset={offset!r} names a column of a file; with arrays pass the numbers")
    offset = as_array(offset)
    require_numbers(offset, "offset")
    values = np.asarray(
        check_array(
            offset, ensure_2d=False, allow_nd=False, dtype=np.float64, ensure_all_finite=False, input_name="offset"
        )
    )
    require_finite_entries(values, "offset")
    check_consistent_length(np.empty(rows), values)
    largest = float(np.abs(values).max())
    if largest > 1:
        require_moderate("offset", largest, "it is added to the linear predictor, so for exposure pass its logarithm")
    return values.reshape(rows, -1)


def spread_offset(offset: np.ndarray, outputs: int, classes: bool) -> np.ndarray:
    """Offsets ``(m, outputs)``: one number of a sample serves all its numeric targets, but classes need one each."""
    given = offset.shape[1]
    if given == outputs or (given == 1 and not classes):
        return np.broadcast_to(offset, (len(offset), outputs)).copy()
    what = "classes" if classes else "targets"
    same = "; the same number for all classes would not change a probability" if given == 1 else ""
    raise ValueError(
        f"offset has {given} number(s) for each sample, but there are {outputs} {what}: pass an array of shape "
        f"({len(offset)}, {outputs}), a column for each{same}"
    )


def require_logarithms(offset: np.ndarray, fit_intercept: bool, grid: Grid) -> None:
    """Refuse offsets, on all ranks, whose exponentials a model with a log link cannot compute with.

    An intercept takes over what is common to all. All ranks must call this.
    """
    ends = torch.tensor([float(offset.max()), -float(offset.min())], dtype=torch.float64)
    most, least = grid.world.all_reduce(ends, "max").tolist()
    spread = most + least if fit_intercept else max(most, least)
    if spread > MOST_SPREAD:
        raise ValueError(
            f"offset: values from {-least:.4g} to {most:.4g} are too far apart for a log link, where exp(offset) is a "
            "factor; for exposure pass its logarithm"
        )


def keep_column(given: Any, named: str | None) -> KeptColumn:
    """What a fit keeps of an offset, or of weights, that were `given`, or `named` as a column of its files."""
    return given is not None if named is None else named


def choose_offset(kept: KeptColumn, offset: Any, source: SampleSource | None) -> Any:
    """The offset of new samples for a model that has kept this one: what is given, or the column of the same name.

    A model with an offset needs one, and others have no use for it: all else would be a wrong prediction.
    """
    given = offset if offset is not None or source is None else source.offset
    if given is not None:
        if kept is False:
            raise ValueError("offset was passed, but the model was fitted without one; fit it with an offset first")
        return given
    if kept is False:
        return None
    if isinstance(kept, str) and source is not None:
        return kept
    raise ValueError(
        "the model was fitted with an offset, so new samples need one, too: pass offset, an array with a number for "
        "each sample or the name of a column of the file (zeros if there is nothing to add)"
    )
