"""Targets that are numbers, one column for each output: predictors are predictions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_array, check_consistent_length

from psfit.comm import Grid
from psfit.estimators.kinds import require_finite_entries, require_numbers
from psfit.estimators.targets.base import Target
from psfit.losses import Loss


@dataclass(frozen=True)
class Numbers(Target):
    """Numbers; `single` says that y had one dimension."""

    single: bool
    # What a score says is explained.
    explained: ClassVar[str] = "R\u00b2"

    @classmethod
    def read(cls, y: Any, rows: int) -> np.ndarray:
        require_numbers(y, "y", "for classes use the logistic loss (SparseLogisticRegression)")
        target = check_array(
            y, ensure_2d=False, allow_nd=False, dtype=np.float64, ensure_all_finite=False, input_name="y"
        )
        require_finite_entries(target, "y")
        check_consistent_length(np.empty(rows), target)
        return np.asarray(target)

    @classmethod
    def learn(
        cls, y: np.ndarray, weights: np.ndarray, fit_intercept: bool, parameters: Mapping[str, Any], grid: Grid
    ) -> tuple[Self, np.ndarray]:
        return cls.of(y.ndim == 1, parameters), weights

    @classmethod
    def of(cls, single: bool, parameters: Mapping[str, Any]) -> Self:
        """The target of an estimator with these parameters."""
        return cls(single)

    def encode(self, y: np.ndarray, loss: Loss) -> np.ndarray:
        return y.reshape(len(y), -1)

    def predict(self, predictors: np.ndarray) -> np.ndarray:
        return predictors[:, 0] if self.single else predictors

    def score(self, y: Any, predicted: np.ndarray, sample_weight: Any = None, offset: Any = None) -> float:
        """The share of the variance that the predictions explain, R^2."""
        from sklearn.metrics import r2_score

        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def sum_baseline(self, y: np.ndarray, weights: np.ndarray, offset: np.ndarray | None) -> np.ndarray:
        """Sums ``(2, targets)`` over samples, from which `predict_baseline` makes a prediction without features."""
        return np.stack([weights @ y, np.full(y.shape[1], weights.sum())])

    def predict_baseline(self, sums: np.ndarray, rows: int, offset: np.ndarray | None) -> np.ndarray:
        """The best prediction without features ``(rows, targets)``, from the `sums` over all samples: the mean."""
        return np.broadcast_to(sums[0] / sums[1], (rows, sums.shape[1]))

    def deviances(self, y: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The weighted sum over samples, for each output, of what the predictions leave unexplained."""
        return np.asarray(weights @ (y - predicted) ** 2)

    def to_sklearn(self, coef: np.ndarray, intercept: np.ndarray) -> Any:
        from sklearn.linear_model import LinearRegression

        return self._fill(LinearRegression(), coef, intercept)

    def _fill(self, model: Any, coef: np.ndarray, intercept: np.ndarray) -> Any:
        """scikit-learn's model with coefficients in its shape."""
        model.coef_ = coef[:, 0] if self.single else coef.T
        model.intercept_ = float(intercept[0]) if self.single else intercept
        return model
