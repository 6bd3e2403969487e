"""A summary of samples and of a model's scores on them; several ranks exchange only sums."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier

from psfit.comm import Grid
from psfit.data import DesignMatrix
from psfit.data.summary import ColumnSummary
from psfit.estimators.model import SparseModel
from psfit.estimators.path import Path, model_for
from psfit.estimators.reading import as_array, as_file, place, read_design, read_weights, require_finite, summed
from psfit.estimators.scores import answering
from psfit.reporting.names import class_names

# Bins of the target, from three standard deviations below the mean to three above. The smallest and the largest
# target are not shown: they are values of single samples, which do not leave a node.
BINS = np.linspace(-3.0, 3.0, 25)


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
    """

    columns: ColumnSummary
    targets: tuple[Target, ...] = ()
    classes: tuple[tuple[str, int], ...] = ()
    scores: dict[str, float] | None = None
    confusion: np.ndarray | None = None


def describe(
    subject: SparseModel | Path, X: Any, y: Any = None, sample_weight: Any = None, target: Any = None, *, grid: Grid
) -> DataSummary:
    """Read samples as `fit` does, and summarise them. All ranks must call this with their own rows."""
    model = subject if isinstance(subject, SparseModel) else _reading_model(subject)
    matrix, y, weights = _read(model, X, y, sample_weight, target, grid)
    columns = ColumnSummary.of(matrix, grid)
    if is_classifier(model):
        codes = grid.together(lambda: _class_codes(model, y))
        counts = summed(grid, np.bincount(codes, minlength=len(model.classes_)))
        summary = DataSummary(columns, classes=tuple(zip(class_names(model.classes_), counts.tolist(), strict=True)))
    else:
        codes = y.reshape(len(y), -1)
        summary = DataSummary(columns, targets=tuple(_distribution(one, columns.samples, grid) for one in codes.T))
    if isinstance(subject, Path):
        return summary
    return _add_scores(model, summary, matrix, y, codes, weights, grid)


def _reading_model(path: Path) -> SparseModel:
    """An estimator that reads samples in the same way as those of the path."""
    model = model_for(path.loss)
    model.n_features_in_ = path.coefs.shape[2]
    if path.feature_names is not None:
        model.feature_names_in_ = path.feature_names
    if path.classes is not None:
        model.classes_ = path.classes
    model._schema = path.schema
    return model


def _read(
    model: SparseModel, X: Any, y: Any, sample_weight: Any, target: Any, grid: Grid
) -> tuple[DesignMatrix, np.ndarray, np.ndarray]:
    """The features of the model, the target and the weights of this rank's samples."""
    source = grid.together(lambda: as_file(X, y, sample_weight, target))
    if source is None:
        return grid.together(lambda: _read_arrays(model, X, y, sample_weight, grid))
    names = tuple(getattr(model, "feature_names_in_", ())) or None
    given = None if sample_weight is None or isinstance(sample_weight, str) else sample_weight
    found = source.read(
        grid,
        names,
        labelled=y is None,
        features=model.n_features_in_,
        schema=model._schema,
        numeric=not is_classifier(model),
    )
    return grid.together(
        lambda: _check_shapes(
            model, found.matrix, found.y if y is None else y, found.weight if given is None else given
        )
    )


def _read_arrays(
    model: SparseModel, X: Any, y: Any, sample_weight: Any, grid: Grid
) -> tuple[DesignMatrix, np.ndarray, np.ndarray]:
    matrix = place(read_design(model, X, reset=False), grid)
    require_finite(model, matrix)
    return _check_shapes(model, matrix, y, sample_weight)


def _check_shapes(
    model: SparseModel, matrix: DesignMatrix, y: Any, weight: Any
) -> tuple[DesignMatrix, np.ndarray, np.ndarray]:
    rows, p = matrix.shape
    if p != model.n_features_in_:
        raise ValueError(f"X has {p} features, but the model was fitted with {model.n_features_in_}")
    if y is None:
        raise ValueError("y: the samples have no target; pass y, or say where it is with target")
    return matrix, model._read_target(as_array(y), rows), read_weights(weight, rows)


def _class_codes(model: Any, y: np.ndarray) -> np.ndarray:
    """The number of each sample's class; a label that the model does not know is an error."""
    known = np.isin(y, model.classes_)
    if not known.all():
        raise ValueError(
            f"y holds the label {str(y[~known][0])!r}, which the model has not seen; it knows "
            f"{', '.join(map(str, model.classes_[:10]))}{', ...' if len(model.classes_) > 10 else ''}"
        )
    return np.searchsorted(model.classes_, y)


def _distribution(y: np.ndarray, samples: int, grid: Grid) -> Target:
    mean = float(summed(grid, y.sum(keepdims=True))[0] / samples)
    spread = float(np.sqrt(summed(grid, np.square(y - mean).sum(keepdims=True))[0] / samples))
    # A constant target fills one bin, with the constant in its middle.
    edges = mean + (spread or 1.0) * BINS
    counts = summed(grid, np.bincount(np.searchsorted(edges, y, side="right"), minlength=len(edges) + 1))
    return Target(mean, spread, edges, counts)


def _add_scores(
    model: Any,
    summary: DataSummary,
    matrix: DesignMatrix,
    y: np.ndarray,
    codes: np.ndarray,
    weights: np.ndarray,
    grid: Grid,
) -> DataSummary:
    """Add the model's weighted scores to the summary; predictions stay on their rank."""
    predictor = grid.together(lambda: model._product(matrix, model.result_.coef))
    predicted = answering(model, predictor).predict(None)
    coded = model._columns(codes) if summary.classes else codes
    losses = model._loss(coded).value(torch.from_numpy(predictor), torch.from_numpy(coded.astype(float))).numpy()
    weight, loss = summed(grid, np.array([weights.sum(), weights @ losses.mean(axis=1)]))
    if not weight > 0:
        raise ValueError("sample_weight is zero everywhere; at least one sample must count")
    scores = {"mean loss": float(loss / weight)}
    if summary.classes:
        size = len(model.classes_)
        pairs = codes * size + np.searchsorted(model.classes_, predicted)
        confusion = summed(grid, np.bincount(pairs, minlength=size * size)).reshape(size, size)
        right = summed(grid, np.array([weights @ (predicted == y)]))[0]
        return replace(summary, scores={"accuracy": float(right / weight)} | scores, confusion=confusion)
    off = y.reshape(len(y), -1) - predicted.reshape(len(y), -1)
    centre = summed(grid, weights @ codes) / weight
    left, all_of_it = summed(grid, np.stack([weights @ off**2, weights @ (codes - centre) ** 2]))
    errors = {"root mean squared error": float(np.sqrt(left.mean() / weight))}
    # A constant target has nothing to explain.
    explained = {"R\u00b2": float(np.mean(1 - left / all_of_it))} if (all_of_it > 0).all() else {}
    return replace(summary, scores=explained | errors | scores)
