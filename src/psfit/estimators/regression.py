"""Regression of numbers: squared and Huber loss; with a log link, the Poisson, Gamma and Tweedie losses."""

from typing import Any, Unpack

import numpy as np
from sklearn.base import RegressorMixin

from psfit.common.arguments import POSITIVE, Rule, number, one_of
from psfit.estimators.labelled import score_labelled
from psfit.estimators.model import SparseModel
from psfit.estimators.posing import Given
from psfit.estimators.reading import as_array
from psfit.estimators.registry import losses_of
from psfit.estimators.shared_arguments import ModelArguments

POWER = number(
    "a number from 1 to 2, since other powers have no convex loss with a log link (0 is SparseLinearRegression)",
    lambda value: 1 <= value <= 2,
)


class _Regressor(RegressorMixin, SparseModel):
    """Targets are numbers, one column for each output."""

    def predict(self, X: Any, *, offset: Any = None) -> np.ndarray:
        """Predicted targets, shaped like y was; a model that was fitted with an `offset` needs one here, too."""
        predicted: np.ndarray = self._target.predict(self._predictors(X, offset))
        return predicted

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, *, offset: Any = None) -> float:
        """The share R^2 of the variance of y that the model explains.

        One is perfect; zero is as good as predicting the mean of y for all samples. y is not needed if X is a file or
        a table with the target.
        """
        # The offset may be a column of a file or a table.
        named = isinstance(offset, str) or (offset is None and bool(self.learned_.offset))
        if y is None or named:
            return score_labelled(self, Given(X, y, sample_weight, offset=offset))
        predicted = self.predict(X, offset=offset)
        return float(self._target.score(as_array(y), predicted, as_array(sample_weight), as_array(offset)))

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
        loss: str = "squared",
        huber_delta: float = 1.35,
        **shared: Unpack[ModelArguments],
    ) -> None:
        super().__init__(kappa, **shared)
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


class _LogLinkRegressor(_Regressor):
    """The logarithm of the expected target is linear in the features; targets are never negative."""

    def predict(self, X: Any, *, offset: Any = None) -> np.ndarray:
        """Expected targets ``exp(X coef + intercept + offset)``."""
        return super().predict(X, offset=offset)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, *, offset: Any = None) -> float:
        """The share D^2 of the deviance that the model explains, as in scikit-learn's models of such targets.

        One is perfect; zero is as good as predicting the mean of y for all samples, or with an `offset` as good as the
        best model of an intercept and this offset. y is not needed if X is a file or a table with the target.
        """
        return super().score(X, y, sample_weight, offset=offset)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


class SparsePoissonRegression(_LogLinkRegressor):
    """Regression of counts with a log link and at most kappa nonzero coefficients.

    Minimises ``sum exp(eta) - y eta + ||x||^2 / (2 gamma)`` subject to ``||x||_0 <= kappa``, with
    ``eta = X x + intercept``; y holds counts, or other numbers that are not negative.
    """

    loss = "poisson"


class SparseGammaRegression(_LogLinkRegressor):
    """Regression of positive numbers with a log link and at most kappa nonzero coefficients.

    Minimises ``sum y exp(-eta) - log y + eta - 1 + ||x||^2 / (2 gamma)`` subject to ``||x||_0 <= kappa``, with
    ``eta = X x + intercept``: half the deviance of a Gamma distribution, whose standard deviation is a multiple of its
    mean. An example is the size of claims.
    """

    loss = "gamma"


class SparseTweedieRegression(_LogLinkRegressor):
    """Regression of numbers that are zero or positive, with a log link and at most kappa nonzero coefficients.

    Minimises half the deviance of a Tweedie distribution with mean ``exp(eta)``, ``eta = X x + intercept``, plus
    ``||x||^2 / (2 gamma)``, subject to ``||x||_0 <= kappa``. An example is the total of all claims of a policy, which
    is often zero.

    Parameters
    ----------
    power : float from 1 to 2, default=1.5
        The variance of y is a multiple of this power of its mean. 1 is Poisson regression, 2 is Gamma regression (for
        positive y). With other powers the problem is not convex; 0 is `SparseLinearRegression`, without a log link.
    """

    loss = "tweedie"

    def __init__(
        self, kappa: int | float | None = None, *, power: float = 1.5, **shared: Unpack[ModelArguments]
    ) -> None:
        super().__init__(kappa, **shared)
        self.power = power

    @classmethod
    def _rules(cls) -> dict[str, Rule]:
        return super()._rules() | {"power": POWER}
