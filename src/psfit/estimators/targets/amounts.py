"""Targets that are positive numbers, or zero and positive numbers, whose spread grows with their mean."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from psfit.comm import Grid
from psfit.estimators.reading import sum_over_nodes
from psfit.estimators.targets.base import TargetError
from psfit.estimators.targets.counts import Counts
from psfit.losses import Loss


@dataclass(frozen=True)
class Amounts(Counts):
    """Positive numbers with a log link; the Gamma loss has their logarithms as targets."""

    ratio: ClassVar[str | None] = "ratio of means"

    @property
    def power(self) -> float:
        return 2.0

    @classmethod
    def read(cls, y: Any, rows: int) -> np.ndarray:
        target = super().read(y, rows)
        if (target == 0).any():
            row = int((target == 0).argmax())
            raise TargetError(
                f"must be positive for the gamma loss, but it is 0 in row {row} (counted from 0); use "
                "SparseTweedieRegression, which takes zeros"
            )
        return target

    def encode(self, y: np.ndarray, loss: Loss) -> np.ndarray:
        return np.log(super().encode(y, loss))

    def to_sklearn(self, coef: np.ndarray, intercept: np.ndarray) -> Any:
        from sklearn.linear_model import GammaRegressor

        return self._fill_glm(GammaRegressor(), coef, intercept)


@dataclass(frozen=True)
class Totals(Counts):
    """Numbers that are zero or positive, with a log link and the deviance of a Tweedie distribution."""

    exponent: float = 1.5
    ratio: ClassVar[str | None] = "ratio of means"

    @property
    def power(self) -> float:
        return self.exponent

    @classmethod
    def of(cls, single: bool, parameters: Mapping[str, Any]) -> Self:
        return cls(single, float(parameters.get("power", cls.exponent)))

    @classmethod
    def learn(
        cls, y: np.ndarray, weights: np.ndarray, fit_intercept: bool, parameters: Mapping[str, Any], grid: Grid
    ) -> tuple[Self, np.ndarray]:
        found, effective = super().learn(y, weights, fit_intercept, parameters, grid)
        zeros = int(sum_over_nodes(grid, np.array([(y == 0).sum()]))[0])
        if found.exponent == 2 and zeros:
            raise TargetError(f"must be positive with power=2, but {zeros} entries are zero; use a power below 2")
        return found, effective

    def to_sklearn(self, coef: np.ndarray, intercept: np.ndarray) -> Any:
        from sklearn.linear_model import TweedieRegressor

        return self._fill_glm(TweedieRegressor(power=self.exponent, link="log"), coef, intercept)
