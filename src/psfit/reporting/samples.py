"""A summary of samples and of a model's scores on them; several ranks exchange only sums."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from psfit.comm import Grid
from psfit.data import DesignMatrix
from psfit.data.changes import Changes
from psfit.data.summary import ColumnSummary
from psfit.estimators.labelled import count_changes_of, read_labelled
from psfit.estimators.model import SparseModel
from psfit.estimators.offsets import keep_column
from psfit.estimators.posing import Given
from psfit.estimators.predictors import add_offset, multiply
from psfit.estimators.reading import sum_over_nodes
from psfit.estimators.registry import LOSSES
from psfit.estimators.results import SparsePath
from psfit.estimators.targets import Labels
from psfit.reporting.names import class_names
from psfit.reporting.performance import (
    Calibration,
    Ranking,
    Residuals,
    calibrate_classes,
    compare_numbers,
    rank_classes,
)

# Bins of the target, from three standard deviations below the mean to three above. The smallest and the largest
# target are not shown: they are values of single samples, which do not leave a node.
BINS = np.linspace(-3.0, 3.0, 25)
# If the objective of as many samples agrees with that of the fit to this share, they are the samples of the fit.
SAME = 1e-5


@dataclass(frozen=True)
class Target:
    """One numeric target: mean, standard deviation, and how many samples ``(k + 2,)`` lie below, between and above
    ``edges (k + 1,)``.
    """

    mean: float
    spread: float
    edges: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class DataSummary:
    """Samples of all nodes.

    Parameters
    ----------
    columns : ColumnSummary
    targets : tuple of Target
        Empty for classes.
    classes : tuple of (str, int)
        Labels and the number of samples of each; empty for numbers.
    scores : dict
        The model's scores on these samples, by name; None for a path.
    confusion : ndarray (classes, classes) or None
        Samples of each class (rows) by the class that the model predicts.
    rankings, calibrations : tuple
        For classes: ROC and precision-recall curves, and how right the probabilities are.
    residuals : tuple of Residuals
        For numbers, one for each target.
    of_fit : bool or None
        Whether these are the samples, with their weights, that the model was fitted to; None for a path.
    weight : bool or str
        Whether the scores have sample weights, or the column that holds them.
    changes : Changes
        What the rules of the fit changed in these samples.
    """

    columns: ColumnSummary
    targets: tuple[Target, ...] = ()
    classes: tuple[tuple[str, int], ...] = ()
    scores: dict[str, float] | None = None
    confusion: np.ndarray | None = None
    rankings: tuple[Ranking, ...] = ()
    calibrations: tuple[Calibration, ...] = ()
    residuals: tuple[Residuals, ...] = ()
    of_fit: bool | None = None
    weight: bool | str = False
    changes: Changes = field(default_factory=Changes)


def describe(
    subject: SparseModel | SparsePath,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    target: Any = None,
    offset: Any = None,
    *,
    grid: Grid,
) -> DataSummary:
    """Read samples as `fit` does, and summarise them. All ranks must call this with their own rows."""
    learned = subject.learned if isinstance(subject, SparsePath) else subject.learned_
    matrix, y, weights, offsets = read_labelled(
        subject, learned, Given(X, y, sample_weight, target, offset), grid, strict=True
    )
    columns, labels = ColumnSummary.of(matrix, grid), learned.target
    changes = count_changes_of(subject, X, grid)
    weight = keep_column(sample_weight, getattr(X, "sample_weight", None))
    if isinstance(labels, Labels):
        counts = sum_over_nodes(grid, np.bincount(labels.codes(y), minlength=len(labels.classes)))
        classes = tuple(zip(class_names(labels.classes), counts.tolist(), strict=True))
        summary = DataSummary(columns, classes=classes, weight=weight, changes=changes)
    else:
        outputs = y.reshape(len(y), -1)
        targets = tuple(_distribution(one, columns.samples, grid) for one in outputs.T)
        summary = DataSummary(columns, targets=targets, weight=weight, changes=changes)
    if isinstance(subject, SparsePath):
        return summary
    return _add_scores(subject, summary, matrix, y, weights, offsets, grid)


def _distribution(y: np.ndarray, samples: int, grid: Grid) -> Target:
    mean = float(sum_over_nodes(grid, y.sum(keepdims=True))[0] / samples)
    spread = float(np.sqrt(sum_over_nodes(grid, np.square(y - mean).sum(keepdims=True))[0] / samples))
    # A constant target fills one bin, with the constant in its middle.
    edges = mean + (spread or 1.0) * BINS
    counts = sum_over_nodes(grid, np.bincount(np.searchsorted(edges, y, side="right"), minlength=len(edges) + 1))
    return Target(mean, spread, edges, counts)


def _add_scores(
    model: SparseModel,
    summary: DataSummary,
    matrix: DesignMatrix,
    y: np.ndarray,
    weights: np.ndarray,
    offset: np.ndarray | None,
    grid: Grid,
) -> DataSummary:
    """Add the model's weighted scores to the summary; predictions stay on their rank."""
    result, target = model.result_, model.learned_.target
    predictors = grid.run_together(
        lambda: add_offset(multiply(matrix, result.coef, result.intercept), model.learned_, offset)
    )
    predicted = target.predict(predictors)
    loss = LOSSES[result.loss].make(model.get_params(deep=False))
    coded = torch.from_numpy(target.encode(y, loss).astype(float))
    losses = loss.value(torch.from_numpy(predictors), coded).numpy()
    weight, total = sum_over_nodes(grid, np.array([weights.sum(), weights @ losses.mean(axis=1)]))
    if not weight > 0:
        raise ValueError("sample_weight is zero everywhere; at least one sample must have a positive weight")
    scores = {"mean loss": float(total / weight)}
    same = _is_of_fit(model, summary.columns.samples, matrix, y, weights, losses, grid)
    if isinstance(target, Labels):
        size = len(target.classes)
        pairs = target.codes(y) * size + target.codes(predicted)
        confusion = sum_over_nodes(grid, np.bincount(pairs, minlength=size * size)).reshape(size, size)
        right = sum_over_nodes(grid, np.array([weights @ (predicted == y)]))[0]
        return replace(
            summary,
            scores={"accuracy": float(right / weight)} | scores,
            confusion=confusion,
            rankings=rank_classes(target, y, predictors, weights, grid),
            calibrations=calibrate_classes(target, y, predictors, weights, grid),
            of_fit=same,
        )
    return replace(
        summary,
        scores=_errors(target, y, predicted, weights, offset, grid) | scores,
        residuals=compare_numbers(y, predicted, weights, grid),
        of_fit=same,
    )


def _is_of_fit(
    model: SparseModel,
    samples: int,
    matrix: DesignMatrix,
    y: np.ndarray,
    weights: np.ndarray,
    losses: np.ndarray,
    grid: Grid,
) -> bool:
    """Whether the model's objective on these samples is that of its fit; other samples would have another one."""
    result, settings = model.result_, model.get_params(deep=False)
    if samples != result.samples:
        return False
    try:
        _, fitted = type(model.learned_.target).learn(y, weights, model.fit_intercept, settings, grid)
    except ValueError:
        # A fit refuses such targets.
        return False
    scales = np.ones(matrix.shape[1])
    if result.standardize:
        columns = ColumnSummary.of(matrix, grid, fitted)
        # Without an intercept a fit divides by the spread about zero.
        scales = np.hypot(columns.spreads, 0.0 if model.fit_intercept else columns.means)
    ridge = float(np.square(result.coef * scales[:, None]).sum()) / (2 * result.gamma)
    objective = float(sum_over_nodes(grid, np.array([fitted @ losses.sum(axis=1)]))[0]) + ridge
    return abs(objective - result.objective) <= SAME * max(abs(result.objective), np.finfo(float).tiny)


def _errors(
    target: Any, y: np.ndarray, predicted: np.ndarray, weights: np.ndarray, offset: np.ndarray | None, grid: Grid
) -> dict[str, float]:
    """Errors of predicted numbers."""
    outputs = y.reshape(len(y), -1)
    predicted = predicted.reshape(outputs.shape)
    if offset is not None:
        # What is common to all offsets is a part of the intercept.
        total, rows = sum_over_nodes(grid, np.array([offset.mean(axis=1).sum(), len(offset)]))
        offset = offset - total / rows
    sums = sum_over_nodes(grid, target.sum_baseline(outputs, weights, offset))
    baseline = target.predict_baseline(sums, len(outputs), offset)
    parts = [target.deviances(outputs, one, weights) for one in (predicted, baseline)]
    weight = sum_over_nodes(grid, weights.sum(keepdims=True))[0]
    squares, left, all_of_it = sum_over_nodes(grid, np.stack([weights @ (outputs - predicted) ** 2, *parts]))
    errors = {"root mean squared error": float(np.sqrt(squares.mean() / weight))}
    # A constant target has nothing to explain.
    explained = {target.explained: float(np.mean(1 - left / all_of_it))} if (all_of_it > 0).all() else {}
    return explained | errors
