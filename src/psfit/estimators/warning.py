"""Warnings about answers that may not be what was asked for: one for each call, in scikit-learn's category."""

import warnings
from collections.abc import Iterable

from sklearn.exceptions import ConvergenceWarning

from psfit.comm import Grid
from psfit.common.status import CUT_SHORT
from psfit.pipeline.path import Points


def warn(concerns: Iterable[str], grid: Grid) -> None:
    """Print all concerns in one warning on the first rank, each of them one time."""
    different = list(dict.fromkeys(concerns))
    if different and grid.world.rank == 0:
        # Two levels up: past this function and the method of the estimator, to the line that called it.
        warnings.warn("; ".join(different), ConvergenceWarning, stacklevel=3)


def count_unfinished(paths: list[list[Points]], kind: str) -> list[str]:
    """How many of several paths, such as those of folds, were cut short, and why."""
    ends = [next((points.ended for points in path if points.ended in CUT_SHORT), None) for path in paths]
    return [
        f"{ends.count(status)} of {len(ends)} {kind}: {status.name}: {status.value}"
        for status in CUT_SHORT
        if status in ends
    ]
