"""Warnings about answers that may not be what was asked for: one warning for each call, of scikit-learn's category."""

import warnings
from collections.abc import Iterable

from sklearn.exceptions import ConvergenceWarning

from psfit.comm import Grid
from psfit.common.status import CUT_SHORT
from psfit.pipeline.path import Points


def warn(concerns: Iterable[str], grid: Grid) -> None:
    """Give one warning with all concerns, each only once, on the first rank."""
    different = list(dict.fromkeys(concerns))
    if different and grid.world.rank == 0:
        # Level 3 is the user's line: this function and the estimator's method are levels 1 and 2.
        warnings.warn("; ".join(different), ConvergenceWarning, stacklevel=3)


def count_unfinished(paths: list[list[Points]], kind: str) -> list[str]:
    """How many of several paths, such as those of folds, were cut short, and why."""
    ends = [next((points.ended for points in path if points.ended in CUT_SHORT), None) for path in paths]
    return [
        f"{ends.count(status)} of {len(ends)} {kind}: {status.name}: {status.value}"
        for status in CUT_SHORT
        if status in ends
    ]
