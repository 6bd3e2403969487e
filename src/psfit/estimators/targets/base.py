"""Targets of an estimator: how y is read, how it is encoded for the loss, how predictors become predictions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from psfit.comm import Grid
from psfit.losses import Loss


class TargetError(ValueError):
    """What is wrong with the targets; the message begins with what they are called."""

    def __init__(self, problem: str, name: str = "y") -> None:
        super().__init__(f"{name} {problem}")
        self.problem = problem

    def rename(self, name: str) -> "TargetError":
        """The same error for targets that users know by another name, such as that of a column."""
        return TargetError(self.problem, name)


@dataclass(frozen=True)
class Target(ABC):
    """The targets of a fit: facts about y on all ranks. Predictors are ``(m, c)`` everywhere."""

    # Whether y holds numbers; if not, it holds labels.
    numeric: ClassVar[bool] = True
    # What the exponential of a coefficient is called, where it has a meaning.
    ratio: ClassVar[str | None] = None

    @classmethod
    @abstractmethod
    def read(cls, y: Any, rows: int) -> np.ndarray:
        """The targets of this rank's samples, checked."""

    @classmethod
    @abstractmethod
    def learn(
        cls, y: np.ndarray, weights: np.ndarray, fit_intercept: bool, parameters: Mapping[str, Any], grid: Grid
    ) -> tuple[Self, np.ndarray]:
        """The target of all ranks' samples, and this rank's weights to fit with. All ranks must call this.

        `parameters` are those of the estimator, such as ``class_weight``.
        """

    @abstractmethod
    def encode(self, y: np.ndarray, loss: Loss) -> np.ndarray:
        """Targets in the form that the loss needs, floats ``(m, c)``."""

    @abstractmethod
    def predict(self, predictors: np.ndarray) -> np.ndarray:
        """Predicted targets, shaped like y was."""

    @abstractmethod
    def score(self, y: Any, predicted: np.ndarray, sample_weight: Any = None, offset: Any = None) -> float:
        """How good predictions are: one is perfect. Their offsets matter with a log link."""

    def needs(self, y: np.ndarray, fit_intercept: bool) -> np.ndarray:
        """Columns ``(m, k)`` whose sum over the training samples of every split must be positive."""
        return np.zeros((len(y), 0))

    def describe_lack(self, column: int, part: int) -> str:
        """The message about a split in which the sum of that column is zero."""
        return f"y: part {part} of the samples to train on lacks what the model needs; use fewer or shuffled folds"

    def to_sklearn(self, coef: np.ndarray, intercept: np.ndarray) -> Any:
        """scikit-learn's model with these coefficients ``(p, c)``, which predicts the same."""
        raise ValueError("scikit-learn has no model that predicts such targets; use coef_ and intercept_")
