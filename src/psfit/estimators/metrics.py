"""Scores of a model's predictions on labelled samples, by name; scikit-learn computes them."""

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import UndefinedMetricWarning

from psfit.estimators.targets import Labels, Target
from psfit.estimators.targets.counts import Counts


def score_predictions(
    target: Target, y: np.ndarray, predictors: np.ndarray, weights: np.ndarray, offset: np.ndarray | None = None
) -> dict[str, float | None]:
    """The usual scores for such targets; None where a score is not defined for these samples.

    The `offset` is the part of the predictors that was known before.
    """
    if isinstance(target, Labels):
        return _score_labels(target, y, predictors, weights)
    from sklearn.metrics import mean_absolute_error, root_mean_squared_error

    predicted = target.predict(predictors)
    with warnings.catch_warnings():
        # scikit-learn warns of a single sample in words of its own.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        explained = target.score(y, predicted, weights, offset)
    first = {"D2" if isinstance(target, Counts) else "R2": explained}
    errors = {
        "root_mean_squared_error": float(root_mean_squared_error(y, predicted, sample_weight=weights)),
        "mean_absolute_error": float(mean_absolute_error(y, predicted, sample_weight=weights)),
    }
    return {name: value if np.isfinite(value) else None for name, value in (first | errors).items()}


def _score_labels(target: Any, y: np.ndarray, predictors: np.ndarray, weights: np.ndarray) -> dict[str, float | None]:
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss, roc_auc_score

    predicted, seen = target.predict(predictors), np.unique(y)
    found: dict[str, float | None] = {
        "accuracy": float(accuracy_score(y, predicted, sample_weight=weights)),
        "balanced_accuracy": float(balanced_accuracy_score(y, predicted, sample_weight=weights))
        if set(np.unique(predicted)) <= set(seen)
        else None,
    }
    every = len(seen) == len(target.classes)
    if len(target.classes) == 2:
        decided = target.decide(predictors)
        found["roc_auc"] = (
            float(roc_auc_score(y == target.classes[1], decided, sample_weight=weights)) if every else None
        )
    if hasattr(target, "probabilities"):
        shares = target.probabilities(predictors)
        found["log_loss"] = float(log_loss(y, shares, sample_weight=weights, labels=target.classes))
        if len(target.classes) > 2:
            ranked = roc_auc_score(y, shares, multi_class="ovr", labels=target.classes) if every else None
            found["roc_auc"] = None if ranked is None else float(ranked)
    return found
