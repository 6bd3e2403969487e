"""Regression of numbers: squared and Huber loss, and counts with the Poisson loss."""

from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import Grid, GridSpec
from psfit.common.arguments import POSITIVE, Rule, one_of
from psfit.common.progress import Callback
from psfit.estimators.kinds import require_numbers
from psfit.estimators.model import SparseModel
from psfit.estimators.reading import as_array, summed
from psfit.losses import Huber, Loss, Poisson, Squared
from psfit.problem import Sparsity


class _Regressor(RegressorMixin, SparseModel):
    """Targets are numbers, one column per output."""

    _single: bool

    def _read_target(self, y: Any, rows: int) -> np.ndarray:
        require_numbers(y, "y", "for classes use the logistic loss (SparseLogisticRegression)")
        target = check_array(y, ensure_2d=False, allow_nd=False, dtype=np.float64, input_name="y")
        check_consistent_length(np.empty(rows), target)
        return np.asarray(target)

    def _encode(self, y: np.ndarray, weights: np.ndarray, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
        self._single = y.ndim == 1
        return y.reshape(len(y), -1), weights

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients ``(p,)``, or ``(targets, p)`` if y had two dimensions."""
        coef = self.result_.coef
        return coef[:, 0] if self._single else coef.T

    @property
    def intercept_(self) -> float | np.ndarray:
        """The intercept, or one per target."""
        return float(self.result_.intercept[0]) if self._single else self.result_.intercept


class SparseLinearRegression(_Regressor):
    """Linear regression with at most kappa nonzero coefficients.

    Minimises ``sum (X x + intercept - y)^2 + ||x||^2 / (2 gamma)`` subject to ``||x||_0 <= kappa``, or the Huber
    loss in place of the square. With several targets each has its own kappa, unless ``sparsity="feature"``.

    Parameters
    ----------
    loss : {"squared", "huber"}, default="squared"
        The square of the residual, or the Huber loss, which outliers in y cannot carry away.
    huber_delta : float, default=1.35
        Residuals beyond it count linearly; in units of y.
    """

    _rules: ClassVar[dict[str, Rule]] = {"loss": one_of("squared", "huber"), "huber_delta": POSITIVE}

    def __init__(
        self,
        kappa: int | float | None = None,
        *,
        gamma: float = 1.0,
        fit_intercept: bool = True,
        standardize: bool = False,
        loss: str = "squared",
        huber_delta: float = 1.35,
        sparsity: Sparsity = "element",
        solver: BiCADMM | None = None,
        grid: GridSpec | None = None,
        certify: bool = True,
        warm_start: bool = False,
        verbose: int = 0,
        callback: Callback | None = None,
    ) -> None:
        super().__init__(
            kappa,
            gamma=gamma,
            fit_intercept=fit_intercept,
            standardize=standardize,
            sparsity=sparsity,
            solver=solver,
            grid=grid,
            certify=certify,
            warm_start=warm_start,
            verbose=verbose,
            callback=callback,
        )
        self.loss = loss
        self.huber_delta = huber_delta

    def _loss(self, target: np.ndarray) -> Loss:
        return Squared() if self.loss == "squared" else Huber(float(self.huber_delta))

    def predict(self, X: Any) -> np.ndarray:
        """Predicted targets, shaped like y was."""
        predictor = self._predictor(X)
        return predictor[:, 0] if self._single else predictor

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class SparsePoissonRegression(_Regressor):
    """Regression of counts with a log link and at most kappa nonzero coefficients.

    Minimises ``sum exp(eta) - y eta + ||x||^2 / (2 gamma)`` subject to ``||x||_0 <= kappa``, with
    ``eta = X x + intercept``; y holds counts, or other numbers that are not negative.
    """

    def _read_target(self, y: Any, rows: int) -> np.ndarray:
        require_numbers(y, "y")
        target = super()._read_target(column_or_1d(y, warn=True), rows)
        if (target < 0).any():
            raise ValueError(f"y must not be negative for counts; entry {int((target < 0).argmax())} is")
        return target

    def _encode(self, y: np.ndarray, weights: np.ndarray, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
        if self.fit_intercept and not summed(grid, (weights @ y).reshape(1)) > 0:
            raise ValueError("y is zero for every sample that counts: the intercept has no finite optimum")
        return super()._encode(y, weights, grid)

    def _loss(self, target: np.ndarray) -> Loss:
        return Poisson()

    def predict(self, X: Any) -> np.ndarray:
        """Expected counts ``exp(X coef + intercept)``."""
        return np.exp(self._predictor(X)[:, 0])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the Poisson deviance that the model explains, D^2, as for scikit-learn's models of counts.

        One is perfect, zero is as good as the mean of y for all samples.
        """
        # The deviance needs positive counts; those of a predictor far below zero round to zero.
        expected = np.maximum(self.predict(X), np.finfo(float).tiny)
        weight = as_array(sample_weight)
        return float(d2_tweedie_score(as_array(y), expected, power=1, sample_weight=weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
