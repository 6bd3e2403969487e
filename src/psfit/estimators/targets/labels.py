"""Targets that are labels of any type: classes become columns of +-1 or one-hot rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, log_expit, log_softmax
from sklearn.utils import check_consistent_length, column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from psfit.comm import Grid
from psfit.common.names import list_names
from psfit.data.schema import EXACT
from psfit.estimators.kinds import require_labels
from psfit.estimators.reading import sum_over_nodes
from psfit.estimators.targets.base import Target, TargetError
from psfit.estimators.targets.classes import gather_classes
from psfit.losses import Loss

# With more different numbers than this, y is probably not a set of labels.
MOST_NUMBERS = 100


@dataclass(frozen=True, eq=False)
class Labels(Target):
    """Labels; `classes` are those of all ranks, sorted. Predictors are margins."""

    classes: np.ndarray
    numeric: ClassVar[bool] = False

    @classmethod
    def read(cls, y: Any, rows: int) -> np.ndarray:
        require_labels(y, "y")
        y = column_or_1d(y, warn=True)
        _require_classes(y)
        check_consistent_length(np.empty(rows), y)
        return np.asarray(y)

    @classmethod
    def learn(
        cls, y: np.ndarray, weights: np.ndarray, fit_intercept: bool, parameters: Mapping[str, Any], grid: Grid
    ) -> tuple[Self, np.ndarray]:
        target = cls(gather_classes(np.unique(y), grid))
        _require_names(target.classes)
        codes = target.codes(y)
        weights = weights * target._class_weights(parameters.get("class_weight"), codes, grid)[codes]
        count = np.bincount(codes, weights=weights > 0, minlength=len(target.classes))
        present = sum_over_nodes(grid, count) > 0
        if present.sum() < 2:
            found = ", ".join(map(repr, target.classes[present].tolist()))
            raise TargetError(
                f"holds only one class ({found}) among the samples whose weight is not zero; two or more are needed"
            )
        return target, weights

    def _class_weights(self, class_weight: Any, codes: np.ndarray, grid: Grid) -> np.ndarray:
        """A factor for each class; "balanced" counts the samples of all nodes."""
        if class_weight == "balanced":
            count = sum_over_nodes(grid, np.bincount(codes, minlength=len(self.classes)))
            return np.asarray(count.sum() / (len(count) * count))
        return np.asarray(compute_class_weight(class_weight, classes=self.classes, y=self.classes))

    def codes(self, y: np.ndarray) -> np.ndarray:
        """The numbers of the samples' classes; all labels must be known."""
        return np.searchsorted(self.classes, y)

    def require_known(self, y: np.ndarray, name: str = "y") -> None:
        """Refuse labels that were not in the fit; messages call them by their `name`."""
        known = np.isin(y, self.classes)
        if not known.all():
            row = int((~known).argmax())
            raise TargetError(
                f"holds the label {str(y[row])!r} in row {row} (counted from 0), which the model has not seen; it "
                f"knows {list_names(map(repr, self.classes.tolist()), 10)}",
                name,
            )

    def encode(self, y: np.ndarray, loss: Loss) -> np.ndarray:
        """One-hot rows for a joint loss. Else a column of +-1 for two classes; for more, one for each class against the
        rest.
        """
        codes = self.codes(y)
        if not loss.joint and len(self.classes) == 2:
            return np.where(codes == 1, 1.0, -1.0).reshape(-1, 1)
        one_hot = np.eye(len(self.classes))[codes]
        return one_hot if loss.joint else 2 * one_hot - 1

    def outputs(self, loss: type[Loss]) -> int:
        """Columns of predictors."""
        return 1 if len(self.classes) == 2 and not loss.joint else len(self.classes)

    def decide(self, predictors: np.ndarray) -> np.ndarray:
        """Decision values: ``(m,)`` for two classes, positive for the second; else ``(m, classes)``."""
        if predictors.shape[1] == 1:
            return predictors[:, 0]
        return predictors[:, 1] - predictors[:, 0] if predictors.shape[1] == 2 else predictors

    def predict(self, predictors: np.ndarray) -> np.ndarray:
        decision = self.decide(predictors)
        return self.classes[(decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(axis=1)]

    def score(self, y: Any, predicted: np.ndarray, sample_weight: Any = None, offset: Any = None) -> float:
        """The share of labels that are predicted."""
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def needs(self, y: np.ndarray, fit_intercept: bool) -> np.ndarray:
        """Samples of every class."""
        return (y[:, None] == self.classes).astype(float)

    def describe_lack(self, column: int, part: int) -> str:
        return (
            f"y: part {part} of the samples to train on holds none of class {self.classes[column]}, which is too rare; "
            "use fewer or stratified folds, or leave it out"
        )

    def to_sklearn(self, coef: np.ndarray, intercept: np.ndarray) -> Any:
        from sklearn.svm import LinearSVC

        return self._fill(LinearSVC(), coef, intercept)

    def _fill(self, model: Any, coef: np.ndarray, intercept: np.ndarray) -> Any:
        """scikit-learn's model with coefficients in its shape; of two columns it stores the difference."""
        if coef.shape[1] == 2:
            coef, intercept = coef[:, 1:] - coef[:, :1], intercept[1:] - intercept[:1]
        model.classes_, model.coef_, model.intercept_ = self.classes, coef.T, intercept
        return model


@dataclass(frozen=True, eq=False)
class LogitLabels(Labels):
    """Labels whose predictors are logarithms of odds, so that there are probabilities."""

    ratio: ClassVar[str | None] = "odds ratio"

    def log_probabilities(self, predictors: np.ndarray) -> np.ndarray:
        """Logarithms of the class probabilities, ``(m, classes)``, accurate far into the tails."""
        decision = self.decide(predictors)
        if decision.ndim == 1:
            return np.column_stack([log_expit(-decision), log_expit(decision)])
        return np.asarray(log_softmax(decision, axis=1))

    def probabilities(self, predictors: np.ndarray) -> np.ndarray:
        """Class probabilities, ``(m, classes)``."""
        decision = self.decide(predictors)
        if decision.ndim == 1:
            return np.column_stack([expit(-decision), expit(decision)])
        return np.exp(log_softmax(decision, axis=1))

    def to_sklearn(self, coef: np.ndarray, intercept: np.ndarray) -> Any:
        from sklearn.linear_model import LogisticRegression

        return self._fill(LogisticRegression(), coef, intercept)


def _require_classes(y: np.ndarray) -> None:
    """Refuse targets that are no classes, in the words of scikit-learn, with a remedy."""
    if y.dtype.kind == "O" and len({isinstance(label, str) for label in y.ravel()}) > 1:
        raise TargetError("holds labels that are text and labels that are not; write all of them as text")
    try:
        check_classification_targets(y)
    except ValueError as error:
        raise ValueError(f"{error} For numbers use SparseLinearRegression (--loss squared).") from None


def _require_names(classes: np.ndarray) -> None:
    """Refuse numbers that are probably not labels, or that floating point cannot distinguish."""
    if classes.dtype.kind in "iuf" and len(classes) > MOST_NUMBERS:
        raise TargetError(
            f"holds {len(classes)} different numbers, which looks like regression: use SparseLinearRegression; so many "
            "classes must be text"
        )
    if classes.dtype.kind == "f" and (np.abs(classes) >= EXACT).any():
        raise TargetError(
            f"holds the label {classes[np.abs(classes).argmax()]:.0f}; floating point cannot distinguish such "
            "whole numbers: write labels as text"
        )
