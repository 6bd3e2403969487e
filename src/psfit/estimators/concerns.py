"""What looks wrong with the targets of a fit, said before it begins; and the answer where a target is constant."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from psfit.comm import Grid
from psfit.common.names import list_names
from psfit.estimators.reading import sum_over_nodes
from psfit.estimators.targets import Labels
from psfit.pipeline.result import Result

if TYPE_CHECKING:
    from psfit.estimators.posing import Posed

# More different numbers than this are probably counts, not classes.
MOST_NUMBERS = 10
# A spread below this share of the mean is rounding: the target is constant.
CONSTANT = 1e-13


def warn_of_targets(posed: "Posed") -> None:
    """Give one warning with all that looks wrong with the targets, on the first rank. All ranks must call this."""
    found = list(describe_targets(posed))
    if found and posed.grid.world.rank == 0:
        # Level 3 is the user's line: this function and the estimator's method are levels 1 and 2.
        warnings.warn("; ".join(found), UserWarning, stacklevel=3)


def describe_targets(posed: "Posed") -> Iterator[str]:
    """What looks wrong with the targets, in sentences. All ranks must call this."""
    target = posed.learned.target
    if isinstance(target, Labels):
        yield from _describe_classes(posed.name, target.classes)
        return
    for place in np.flatnonzero(posed.constant):
        which = posed.name if posed.y.ndim == 1 else f"{posed.name}[:, {place}]"
        yield (f"{which} is the same number in all samples: the model uses no feature, and always predicts this number")


def _describe_classes(name: str, classes: np.ndarray) -> Iterator[str]:
    """Classes that are probably counts, and labels that are probably the same."""
    if classes.dtype.kind in "iuf" and len(classes) > MOST_NUMBERS:
        yield (
            f"{name} holds {len(classes)} different numbers, and each is a class with its own coefficients (softmax); "
            "for counts use SparsePoissonRegression, for other numbers SparseLinearRegression"
        )
    alike: dict[str, list[str]] = {}
    for label in classes.tolist():
        if isinstance(label, str):
            alike.setdefault("".join(label.casefold().split()), []).append(repr(label))
    for same in (labels for labels in alike.values() if len(labels) > 1):
        yield f"{name} holds the labels {list_names(same)}, which differ only in case or spaces: each is a class"


def find_constant(y: np.ndarray, weights: np.ndarray, grid: Grid) -> np.ndarray:
    """Which targets ``(c,)`` are the same number in all samples with a positive weight. All ranks must call this."""
    # Without squares and weights, which could leave the range of floating-point numbers.
    y = y.reshape(len(y), -1)[weights > 0]
    *tops, count = sum_over_nodes(grid, np.array([*y.sum(axis=0), len(y)], dtype=float))
    mean = np.array(tops) / count
    spread = sum_over_nodes(grid, np.abs(y - mean).sum(axis=0)) / count
    return np.asarray(spread <= CONSTANT * np.abs(mean))


def clear_constant(result: Result, posed: "Posed") -> Result:
    """The result with no coefficients for constant targets: without rounding, all of them would be zero."""
    if not any(posed.constant):
        return result
    coef = np.where(posed.constant, 0.0, result.coef)
    kept = (coef[result.support] != 0).any(axis=1)
    # The residual of coefficients at rounding level has no meaning.
    residual = 0.0 if all(posed.constant) else result.residual
    return replace(
        result, coef=coef, residual=residual, spreads=None if result.spreads is None else result.spreads[kept]
    )
