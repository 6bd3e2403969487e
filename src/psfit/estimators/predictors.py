"""Predictors of new samples, and predictions from known predictors."""

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from torch import Tensor

from psfit.comm import GridSpec
from psfit.data import DesignMatrix, SampleSource
from psfit.estimators.offsets import choose_offset, read_offset, spread_offset
from psfit.estimators.posing import Learned
from psfit.estimators.reading import Features, Fitted, as_known_source, place, read_known, require_finite
from psfit.estimators.targets import Target
from psfit.pipeline.result import Result


def compute_predictors(fitted: Fitted, learned: Learned, result: Result, X: Any, offset: Any = None) -> np.ndarray:
    """``X coef + intercept``, shape ``(m, c)``, plus the offset if the fit had one; tensors are multiplied on their
    device, files while they are read.
    """
    source = as_known_source(X, learned.features, offset=offset)
    if source is not None:
        return read_and_multiply(type(fitted).__name__, learned, result, source, offset)[0]
    offset = choose_offset(learned.offset, offset, None)
    values = read_known(X, fitted)
    where = str(values.device) if isinstance(values, Tensor) else "cpu"
    matrix = place(values, GridSpec(backend="serial", device=where).build())
    require_finite(matrix, learned.features.names)
    return add_offset(multiply(matrix, result.coef, result.intercept), learned, offset)


def add_offset(predictors: np.ndarray, learned: Learned, offset: Any) -> np.ndarray:
    """Predictors ``(m, c)`` plus the offset, if there is one."""
    given = read_offset(offset, len(predictors))
    if given is None:
        return predictors
    return predictors + spread_offset(given, predictors.shape[1], not learned.target.numeric)


def read_and_multiply(
    owner: str, learned: Learned, result: Result, source: SampleSource, offset: Any = None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The same for a file or a table, read like that of the fit; and its columns that are passed through.

    If names are known, only used features are read.
    """
    features, offset = learned.features, choose_offset(learned.offset, offset, source)
    coef, names = result.coef, features.names
    if names is not None and len(result.support) > 0:
        names, coef = names[result.support], coef[result.support]
    grid = GridSpec(backend="serial", device="cpu").build()
    bare = source.change(sample_weight=None, offset=offset if isinstance(offset, str) else None)
    known = None if names is None else tuple(names)
    found = bare.read(grid, known, labelled=False, features=features.count, schema=features.schema)
    matrix = found.matrix
    if matrix.shape[1] != len(coef):
        raise ValueError(f"X has {matrix.shape[1]} features, but {owner} is expecting {len(coef)}")
    predictors = multiply(matrix, coef, result.intercept)
    return add_offset(predictors, learned, offset if found.offset is None else found.offset), found.ids


def read_matrix(fitted: Fitted, features: Features, X: Any) -> DesignMatrix:
    """All features of new samples on the CPU, read as `predict` reads them."""
    grid = GridSpec(backend="serial", device="cpu").build()
    source = as_known_source(X, features)
    if source is None:
        matrix = place(read_known(X, fitted), grid)
        require_finite(matrix, features.names)
        return matrix
    names = None if features.names is None else tuple(features.names)
    bare = source.change(sample_weight=None, offset=None)
    return bare.read(grid, names, labelled=False, features=features.count, schema=features.schema).matrix


def multiply(matrix: DesignMatrix, coefficients: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """``matrix coefficients + intercept`` in float64, strip by strip."""
    coef = torch.from_numpy(coefficients).to(matrix.device)
    parts = [strip.mv(coef) for _, strip in matrix.strips(torch.float64)]
    return np.asarray(torch.cat(parts).cpu().numpy() + intercept)


def _has(method: str) -> Any:
    """A test whether the target of predictions has this method."""
    return lambda predictions: hasattr(predictions.target, method)


class Predictions(BaseEstimator):
    """A fitted model for scikit-learn's scorers whose `predictors` of the samples are known; it ignores X.

    Its `target` turns the predictors into predictions.
    """

    def __init__(self, target: Target, predictors: np.ndarray) -> None:
        self.target = target
        self.predictors = predictors

    def predict(self, X: Any = None) -> np.ndarray:
        """Predicted targets."""
        return self.target.predict(self.predictors)

    @available_if(_has("decide"))
    def decision_function(self, X: Any = None) -> np.ndarray:
        """Decision values of labels."""
        return np.asarray(self.target.decide(self.predictors))  # type: ignore[attr-defined]

    @available_if(_has("probabilities"))
    def predict_proba(self, X: Any = None) -> np.ndarray:
        """Class probabilities."""
        return np.asarray(self.target.probabilities(self.predictors))  # type: ignore[attr-defined]

    @available_if(_has("log_probabilities"))
    def predict_log_proba(self, X: Any = None) -> np.ndarray:
        """Logarithms of class probabilities."""
        return np.asarray(self.target.log_probabilities(self.predictors))  # type: ignore[attr-defined]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The same score as that of the estimators."""
        return self.target.score(y, self.predict(), sample_weight)

    @property
    def classes_(self) -> np.ndarray:
        """The labels, where the targets are labels."""
        return np.asarray(self.target.classes)  # type: ignore[attr-defined]

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.target.numeric:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        else:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        return tags
