"""Labelled samples for a fitted model: read as the fit read its own, and scored."""

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from psfit.comm import Grid, GridSpec
from psfit.data import DesignMatrix, SampleSource
from psfit.data.changes import Changes, count_changes
from psfit.estimators.offsets import choose_offset, read_offset
from psfit.estimators.posing import Given, Learned, read_target
from psfit.estimators.predictors import add_offset, multiply
from psfit.estimators.reading import (
    Fitted,
    as_known_source,
    place,
    read_known,
    read_weights,
    require_finite,
)
from psfit.estimators.targets import Labels

if TYPE_CHECKING:
    from psfit.estimators.model import SparseModel

# The features of the fit, the target and the weights of this rank's samples, and their offsets if there are some.
Read = tuple[DesignMatrix, np.ndarray, np.ndarray, np.ndarray | None]


def read_labelled(
    subject: Fitted,
    learned: Learned,
    given: Given,
    grid: Grid,
    support: np.ndarray | None = None,
    strict: bool = False,
) -> Read:
    """Labelled samples of this rank for a fitted model. All ranks must call this with their own rows.

    Of a file or a table whose columns have names, only the features of the `support` are read, if one is given. With
    `strict`, labels that the model does not know are refused.
    """
    features, y, weight = learned.features, given.y, given.sample_weight
    names = features.names
    if names is not None and support is not None and len(support) > 0:
        names = names[support]
    source = grid.run_together(lambda: as_known_source(given.X, features, y, weight, given.target, given.offset))
    offset = grid.run_together(lambda: choose_offset(learned.offset, given.offset, source))
    if source is None:
        return grid.run_together(lambda: _read_arrays(subject, learned, given, offset, strict, grid))
    weight = None if weight is None or isinstance(weight, str) else weight
    found = source.change(offset=offset if isinstance(offset, str) else None).read(
        grid,
        None if names is None else tuple(names),
        labelled=y is None,
        features=features.count,
        schema=features.schema,
        numeric=learned.target.numeric,
    )
    known = found.schema.target_name if source.target is None else source.target
    name = source.name_column(known if y is None else None, "y")
    weight_name = source.name_column(source.sample_weight if weight is None else None, "sample_weight")
    return grid.run_together(
        lambda: _check(
            learned,
            found.matrix,
            found.y if y is None else y,
            found.weight if weight is None else weight,
            offset if found.offset is None else found.offset,
            features.count if names is None else len(names),
            strict,
            (name, weight_name),
        )
    )


def _read_arrays(subject: Fitted, learned: Learned, given: Given, offset: Any, strict: bool, grid: Grid) -> Read:
    matrix = place(read_known(given.X, subject), grid)
    require_finite(matrix, learned.features.names)
    return _check(learned, matrix, given.y, given.sample_weight, offset, learned.features.count, strict)


def _check(
    learned: Learned,
    matrix: DesignMatrix,
    y: Any,
    weight: Any,
    offset: Any,
    count: int,
    strict: bool,
    names: tuple[str, str] = ("y", "sample_weight"),
) -> Read:
    """Samples that fit together; messages call target and weights by their `names`."""
    rows, p = matrix.shape
    if p != count:
        raise ValueError(f"X has {p} features, but the model was fitted with {count}")
    if y is None:
        raise ValueError("y: the samples have no target; pass y, or say where it is with target")
    target = read_target(learned.target, y, rows, names[0])
    if strict and isinstance(learned.target, Labels):
        learned.target.require_known(target, names[0])
    return matrix, target, read_weights(weight, rows, names[1]), read_offset(offset, rows)


def count_changes_of(subject: Any, source: Any, grid: Grid, only_used: bool = False) -> Changes:
    """What the rules of the fit change in the samples of a source: in all columns, or in those that the model uses."""
    learned: Learned = getattr(subject, "learned_", None) or subject.learned
    names = learned.features.names
    if names is None or not isinstance(source, SampleSource):
        return Changes()
    used = names[subject.result_.support] if only_used else names
    return count_changes(source, learned.features.schema, tuple(map(str, used)), grid)


def predict_labelled(
    model: "SparseModel", given: Given, grid: Grid, strict: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Targets, predictors, weights and offsets of labelled samples; of a file or a table only the used features are
    read.
    """
    learned, result = model.learned_, model.result_
    matrix, y, weights, offset = read_labelled(model, learned, given, grid, result.support, strict)
    # Arrays have all features.
    coef = result.coef if matrix.shape[1] == len(result.coef) else result.coef[result.support]
    return y, add_offset(multiply(matrix, coef, result.intercept), learned, offset), weights, offset


def score_labelled(model: "SparseModel", given: Given) -> float:
    """The score of a model on a file or a table that has its target itself."""
    check_is_fitted(model)
    y, predictors, weights, offset = predict_labelled(model, given, GridSpec(backend="serial", device="cpu").build())
    target = model.learned_.target
    return float(target.score(y, target.predict(predictors), weights, offset))
