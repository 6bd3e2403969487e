"""Targets that are counts: predictors are logarithms of expected counts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import column_or_1d

from psfit.comm import Grid
from psfit.estimators.kinds import require_numbers
from psfit.estimators.reading import sum_over_nodes
from psfit.estimators.targets.base import TargetError
from psfit.estimators.targets.numbers import Numbers


@dataclass(frozen=True)
class Counts(Numbers):
    """Numbers that are not negative, with a log link."""

    ratio: ClassVar[str | None] = "rate ratio"
    explained: ClassVar[str] = "D\u00b2"

    @property
    def power(self) -> float:
        """The variance of a target is a multiple of this power of its mean; it says which deviance is explained."""
        return 1.0

    @classmethod
    def read(cls, y: Any, rows: int) -> np.ndarray:
        require_numbers(y, "y")
        target = super().read(column_or_1d(y, warn=True), rows)
        if (target < 0).any():
            row = int((target < 0).argmax())
            raise TargetError(
                f"must not be negative with a log link, but it is {target[row]:g} in row {row} (counted from 0); "
                "correct such rows, or use SparseLinearRegression"
            )
        return target

    @classmethod
    def learn(
        cls, y: np.ndarray, weights: np.ndarray, fit_intercept: bool, parameters: Mapping[str, Any], grid: Grid
    ) -> tuple[Self, np.ndarray]:
        if fit_intercept and not sum_over_nodes(grid, (weights @ y).reshape(1)) > 0:
            raise TargetError("is zero for every sample with a positive weight: the intercept has no finite optimum")
        return super().learn(y, weights, fit_intercept, parameters, grid)

    def predict(self, predictors: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(super().predict(predictors)))

    def score(self, y: Any, predicted: np.ndarray, sample_weight: Any = None, offset: Any = None) -> float:
        """The share of the deviance that the predictions explain, D^2.

        With an offset it is compared with the best model of an intercept and this offset.
        """
        from sklearn.metrics import d2_tweedie_score

        if offset is None:
            return float(d2_tweedie_score(y, _positive(predicted), power=self.power, sample_weight=sample_weight))
        y = np.asarray(y, dtype=float).reshape(-1, 1)
        weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        shift = np.asarray(offset, dtype=float).reshape(len(y), 1)
        # What is common to all offsets is a part of the intercept.
        shift = shift - shift.mean()
        baseline = self.predict_baseline(self.sum_baseline(y, weights, shift), len(y), shift)
        left, whole = (self.deviances(y, one.reshape(-1, 1), weights)[0] for one in (predicted, baseline))
        return float(1 - left / whole) if whole > 0 else math.nan

    def sum_baseline(self, y: np.ndarray, weights: np.ndarray, offset: np.ndarray | None) -> np.ndarray:
        if offset is None:
            return super().sum_baseline(y, weights, offset)
        # The deviance of exp(c + offset) has its minimum where the weighted sum of (y - mean) mean^(1 - power) is zero.
        tops = weights @ (y * np.exp((1 - self.power) * offset))
        return np.stack([tops, weights @ np.exp((2 - self.power) * offset)])

    def predict_baseline(self, sums: np.ndarray, rows: int, offset: np.ndarray | None) -> np.ndarray:
        baseline = super().predict_baseline(sums, rows, offset)
        return baseline if offset is None else np.asarray(baseline * np.exp(offset))

    def deviances(self, y: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> np.ndarray:
        from sklearn.metrics import mean_tweedie_deviance

        total = float(weights.sum())
        if not total:
            return np.zeros(1)
        expected = _positive(predicted).ravel()
        mean = mean_tweedie_deviance(y.ravel(), expected, sample_weight=weights, power=self.power)
        return np.array([total * mean])

    def needs(self, y: np.ndarray, fit_intercept: bool) -> np.ndarray:
        """The counts themselves, if there is an intercept to fit."""
        return y.reshape(len(y), -1)[:, : int(fit_intercept)]

    def describe_lack(self, column: int, part: int) -> str:
        return (
            f"y is zero for all samples of part {part} to train on: the intercept has no finite optimum; use fewer or "
            "shuffled folds"
        )

    def to_sklearn(self, coef: np.ndarray, intercept: np.ndarray) -> Any:
        from sklearn.linear_model import PoissonRegressor

        return self._fill_glm(PoissonRegressor(), coef, intercept)

    def _fill_glm(self, model: Any, coef: np.ndarray, intercept: np.ndarray) -> Any:
        """scikit-learn's generalised linear model; its `predict` takes the inverse of the link from its loss."""
        model = self._fill(model, coef, intercept)
        model._base_loss = model._get_loss()
        return model


def _positive(predicted: np.ndarray) -> np.ndarray:
    """The deviance needs positive expected values, but for a predictor far below zero they round to zero."""
    return np.maximum(predicted, np.finfo(float).tiny)
