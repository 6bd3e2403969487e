"""Regression of numbers: squared and Huber loss, and counts with the Poisson loss."""

from typing import Any, Unpack

import numpy as np
from sklearn.base import RegressorMixin

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import Grid, GridSpec
from psfit.common.arguments import POSITIVE, Rule, one_of
from psfit.common.progress import Callback
from psfit.estimators.constraints import ConstraintArguments
from psfit.estimators.model import SparseModel
from psfit.estimators.reading import as_array
from psfit.estimators.registry import losses_of
from psfit.problem import Sparsity


class _Regressor(RegressorMixin, SparseModel):
    """Targets are numbers, one column for each output."""

    def predict(self, X: Any) -> np.ndarray:
        """Predicted targets, shaped like y was."""
        predicted: np.ndarray = self._target.predict(self._predictors(X))
        return predicted

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients ``(p,)``, or ``(targets, p)`` if y had two dimensions."""
        coef = self.result_.coef
        return coef[:, 0] if self._target.single else coef.T

    @property
    def intercept_(self) -> float | np.ndarray:
        """The intercept, or one per target."""
        return float(self.result_.intercept[0]) if self._target.single else self.result_.intercept


class SparseLinearRegression(_Regressor):
    """Linear regression with at most kappa nonzero coefficients.

    Minimises ``sum (X x + intercept - y)^2 + ||x||^2 / (2 gamma)`` subject to ``||x||_0 <= kappa``, or the Huber
    loss in place of the square. With several targets each has its own kappa, unless ``sparsity="feature"``.

    Parameters
    ----------
    loss : {"squared", "huber"}, default="squared"
        The square of the residual, or the Huber loss, which limits the influence of outliers in y.
    huber_delta : float, default=1.35
        Larger residuals have a linear loss; in units of y.
    """

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
        grid: GridSpec | Grid | None = None,
        certify: bool = True,
        warm_start: bool = False,
        verbose: int = 0,
        callback: Callback | None = None,
        **constraints: Unpack[ConstraintArguments],
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
            **constraints,
        )
        self.loss = loss
        self.huber_delta = huber_delta

    @classmethod
    def _rules(cls) -> dict[str, Rule]:
        losses = one_of(*losses_of("SparseLinearRegression"))
        return super()._rules() | {"loss": losses, "huber_delta": POSITIVE}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class SparsePoissonRegression(_Regressor):
    """Regression of counts with a log link and at most kappa nonzero coefficients.

    Minimises ``sum exp(eta) - y eta + ||x||^2 / (2 gamma)`` subject to ``||x||_0 <= kappa``, with
    ``eta = X x + intercept``; y holds counts, or other numbers that are not negative.
    """

    loss = "poisson"

    def predict(self, X: Any) -> np.ndarray:
        """Expected counts ``exp(X coef + intercept)``."""
        return super().predict(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share D^2 of the Poisson deviance that the model explains, as in scikit-learn's models of counts.

        One is perfect; zero is as good as predicting the mean of y for all samples.
        """
        return float(self._target.score(as_array(y), self.predict(X), as_array(sample_weight)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
