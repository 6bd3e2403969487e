"""Warnings about answers that may not be what was asked for: one for each call, in scikit-learn's category."""

import warnings
from collections.abc import Iterable

from sklearn.exceptions import ConvergenceWarning

from psfit.comm import Grid
from psfit.common.status import CUT_SHORT
from psfit.pipeline.path import Points


def warn_of(concerns: Iterable[str], grid: Grid) -> None:
    """Say all concerns at once, each of them one time, on the first rank."""
    said = list(dict.fromkeys(concerns))
    if said and grid.world.rank == 0:
        # Two levels up: past this function and the method of the estimator, to the line that called it.
        warnings.warn("; ".join(said), ConvergenceWarning, stacklevel=3)


def concerns_of_parts(paths: list[list[Points]], parts: str) -> list[str]:
    """What is to be said of paths on parts of the samples, such as folds, of which some were cut short."""
    ends = [next((points.ended for points in path if points.ended in CUT_SHORT), None) for path in paths]
    return [
        f"{ends.count(status)} of {len(ends)} {parts}: {status.name}: {status.value}"
        for status in CUT_SHORT
        if status in ends
    ]
