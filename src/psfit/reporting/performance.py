"""How a model's predictions compare with known targets, from sums over samples: no prediction leaves its rank."""

from dataclasses import dataclass

import numpy as np

from psfit.comm import Grid
from psfit.estimators.reading import sum_over_nodes
from psfit.estimators.targets import Labels, Target
from psfit.reporting.names import class_names

# Bins of the values that rank the samples. Pairs of samples in one bin count half, so areas are right to about 1e-3.
RANKS = 4096
# Bins of probabilities, and of each axis of a picture of two numbers.
SHARES, CELLS = 10, 30
# A picture of numbers ends this many standard deviations from the mean.
REACH = 3.0


@dataclass(frozen=True)
class Ranking:
    """How well the samples of a class are ranked before the others, for falling thresholds.

    Parameters
    ----------
    label : str
    found : ndarray (k,)
        The share of the class that is above the threshold (recall).
    alarms : ndarray (k,)
        The share of the other samples that is above the threshold.
    precision : ndarray (k,)
        The share of the class among the samples above the threshold.
    area : float
        Below the ROC curve.
    average_precision : float
    share : float
        Of the class among all samples.
    """

    label: str
    found: np.ndarray
    alarms: np.ndarray
    precision: np.ndarray
    area: float
    average_precision: float
    share: float


@dataclass(frozen=True)
class Calibration:
    """For bins of predicted probabilities of a class: their mean, the share of the class, and the weight."""

    label: str
    predicted: np.ndarray
    observed: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class Cells:
    """How many samples ``counts (k, l)`` lie in the cells of two numbers; those further out are in the outer cells."""

    across: np.ndarray
    upwards: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class Residuals:
    """One numeric target: predicted against actual numbers, residuals against predicted ones, and their mean and
    standard deviation.
    """

    agreement: Cells
    cells: Cells
    mean: float
    spread: float


def rank_classes(
    target: Target, y: np.ndarray, predictors: np.ndarray, weights: np.ndarray, grid: Grid
) -> tuple[Ranking, ...]:
    """The second of two classes, or every class against the rest; classes without samples, or without others, are
    left out.
    """
    if not isinstance(target, Labels):
        return ()
    values = _values(target, predictors)
    found = []
    for k, label in _ranked_classes(target):
        column = values if values.ndim == 1 else values[:, k]
        sums = _count_ranks(column, y == target.classes[k], weights, grid)
        if sums.sum(axis=1).min() > 0:
            found.append(_read_ranks(label, *sums))
    return tuple(found)


def calibrate_classes(
    target: Target, y: np.ndarray, predictors: np.ndarray, weights: np.ndarray, grid: Grid
) -> tuple[Calibration, ...]:
    """The same classes, for models with probabilities."""
    probabilities = getattr(target, "probabilities", None)
    if not isinstance(target, Labels) or probabilities is None:
        return ()
    shares, found = probabilities(predictors), []
    for k, label in _ranked_classes(target):
        share, inside = shares[:, k], y == target.classes[k]
        place = np.minimum((share * SHARES).astype(int), SHARES - 1)
        parts = (weights, weights * share, weights * inside)
        total = np.stack([np.bincount(place, weights=part, minlength=SHARES) for part in parts])
        weight, predicted, observed = sum_over_nodes(grid, total)
        used = weight > 0
        found.append(Calibration(label, predicted[used] / weight[used], observed[used] / weight[used], weight[used]))
    return tuple(found)


def compare_numbers(y: np.ndarray, predicted: np.ndarray, weights: np.ndarray, grid: Grid) -> tuple[Residuals, ...]:
    """Residuals of each target."""
    actual = y.reshape(len(y), -1)
    return tuple(
        _compare(one, other, weights, grid)
        for one, other in zip(actual.T, predicted.reshape(actual.shape).T, strict=True)
    )


def _values(target: Labels, predictors: np.ndarray) -> np.ndarray:
    """What ranks the samples: probabilities of several classes can be compared, their logarithms cannot."""
    decided = target.decide(predictors)
    probabilities = getattr(target, "probabilities", None)
    return decided if decided.ndim == 1 or probabilities is None else np.asarray(probabilities(predictors))


def _ranked_classes(target: Labels) -> list[tuple[int, str]]:
    names = list(enumerate(class_names(target.classes)))
    return names[1:] if len(names) == 2 else names


def _count_ranks(values: np.ndarray, inside: np.ndarray, weights: np.ndarray, grid: Grid) -> np.ndarray:
    """The weights of the class and of the others ``(2, RANKS)`` in bins of rising values."""
    mean, spread = _moments(values, np.ones(len(values)), grid)
    distance = (values - mean) / (spread or 1.0)
    # All numbers go to bins between -1 and 1: narrow ones near the mean, wide ones far out.
    place = np.clip(((1 + distance / (1 + np.abs(distance))) / 2 * RANKS).astype(int), 0, RANKS - 1)
    parts = [np.bincount(place, weights=weights * part, minlength=RANKS) for part in (inside, ~inside)]
    return sum_over_nodes(grid, np.stack(parts))


def _read_ranks(label: str, own: np.ndarray, other: np.ndarray) -> Ranking:
    used = np.flatnonzero(own + other)[::-1]
    own, other = own[used], other[used]
    above, false = np.cumsum(own), np.cumsum(other)
    area = float((other * (above - own / 2)).sum() / (above[-1] * false[-1]))
    precision = above / (above + false)
    start = np.zeros(1)
    return Ranking(
        label,
        np.concatenate([start, above / above[-1]]),
        np.concatenate([start, false / false[-1]]),
        np.concatenate([precision[:1], precision]),
        area,
        float((own * precision).sum() / above[-1]),
        float(above[-1] / (above[-1] + false[-1])),
    )


def _compare(actual: np.ndarray, predicted: np.ndarray, weights: np.ndarray, grid: Grid) -> Residuals:
    residuals = actual - predicted
    mean, spread = _moments(residuals, weights, grid)
    axis, own = _edges(*_moments(actual, weights, grid)), _edges(mean, spread)
    return Residuals(
        _count_cells(actual, predicted, axis, axis, grid),
        _count_cells(predicted, residuals, axis, own, grid),
        mean,
        spread,
    )


def _moments(values: np.ndarray, weights: np.ndarray, grid: Grid) -> tuple[float, float]:
    """The weighted mean and standard deviation over all nodes."""
    total, weight = sum_over_nodes(grid, np.array([weights @ values, weights.sum()]))
    mean = float(total / weight)
    squares = sum_over_nodes(grid, np.array([weights @ np.square(values - mean)]))[0]
    return mean, float(np.sqrt(squares / weight))


def _edges(mean: float, spread: float) -> np.ndarray:
    return mean + (spread or 1.0) * np.linspace(-REACH, REACH, CELLS + 1)


def _count_cells(x: np.ndarray, y: np.ndarray, across: np.ndarray, upwards: np.ndarray, grid: Grid) -> Cells:
    column = np.clip(np.searchsorted(across, x, side="right") - 1, 0, CELLS - 1)
    row = np.clip(np.searchsorted(upwards, y, side="right") - 1, 0, CELLS - 1)
    counts = np.bincount(column * CELLS + row, minlength=CELLS * CELLS)
    return Cells(across, upwards, sum_over_nodes(grid, counts).reshape(CELLS, CELLS))
