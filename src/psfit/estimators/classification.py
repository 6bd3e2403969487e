"""Classification: logistic and softmax regression, support vector machines."""

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, log_expit, log_softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import check_consistent_length, column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import Grid, GridSpec
from psfit.common.arguments import NONE, Rule, number, one_of, satisfying
from psfit.common.progress import Callback
from psfit.data.io.cells import EXACT
from psfit.estimators.kinds import require_labels
from psfit.estimators.labels import all_classes
from psfit.estimators.model import SparseModel
from psfit.estimators.reading import summed
from psfit.losses import Hinge, Logistic, Loss, Softmax, SquaredHinge
from psfit.problem import Sparsity

# More numbers than these are hardly names of classes.
MOST_NUMBERS = 100
FACTOR = number("a number that is not negative", lambda value: 0 <= value < np.inf)
CLASS_WEIGHT = satisfying(
    "a dict from labels to numbers that are not negative",
    lambda value: isinstance(value, dict) and all(FACTOR.read(one) >= 0 for one in value.values()),
)


class Classifier(ClassifierMixin, SparseModel):
    """Labels of any type become +-1 columns or one-hot rows; `class_weight` multiplies the sample weights.

    Parameters
    ----------
    class_weight : dict, "balanced" or None, default=None
        A factor on the losses of each class, by label. "balanced" gives all classes the same total weight.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    """

    _rules: ClassVar[dict[str, Rule]] = {"class_weight": CLASS_WEIGHT | one_of("balanced") | NONE}

    classes_: np.ndarray

    def __init__(
        self,
        kappa: int | float | None = None,
        *,
        gamma: float = 1.0,
        fit_intercept: bool = True,
        standardize: bool = False,
        class_weight: dict[Any, float] | str | None = None,
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
        self.class_weight = class_weight

    def _read_target(self, y: Any, rows: int) -> np.ndarray:
        require_labels(y, "y")
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        check_consistent_length(np.empty(rows), y)
        return np.asarray(y)

    def _encode(self, y: np.ndarray, weights: np.ndarray, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
        self.classes_ = all_classes(np.unique(y), grid)
        if self.classes_.dtype.kind in "iuf" and len(self.classes_) > MOST_NUMBERS:
            raise ValueError(
                f"y holds {len(self.classes_)} different numbers, which looks like regression: use the squared loss "
                "(SparseLinearRegression); classes that many must be text"
            )
        if self.classes_.dtype.kind == "f" and (np.abs(self.classes_) >= EXACT).any():
            raise ValueError(
                f"y holds the label {self.classes_[np.abs(self.classes_).argmax()]:.0f}; floating point does not tell "
                "such whole numbers apart: write labels as text"
            )
        codes = np.searchsorted(self.classes_, y)
        weights = weights * self._class_weights(codes, grid)[codes]
        count = np.bincount(codes, weights=weights > 0, minlength=len(self.classes_))
        counted = summed(grid, count) > 0
        if counted.sum() < 2:
            raise ValueError(
                f"y holds only one class ({self.classes_[counted]!r}) among the samples whose weight is not zero; "
                "two or more are needed"
            )
        return self._columns(codes), weights

    def _class_weights(self, codes: np.ndarray, grid: Grid) -> np.ndarray:
        """A factor for each class; "balanced" counts the samples of all nodes."""
        if self.class_weight == "balanced":
            count = summed(grid, np.bincount(codes, minlength=len(self.classes_)))
            return np.asarray(count.sum() / (len(count) * count))
        return np.asarray(compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_))

    @abstractmethod
    def _columns(self, codes: np.ndarray) -> np.ndarray:
        """Class numbers as targets of the loss."""

    def _one_hot(self, codes: np.ndarray) -> np.ndarray:
        return np.eye(len(self.classes_))[codes]

    def _signs(self, codes: np.ndarray) -> np.ndarray:
        """One column of +-1 for two classes, else one per class against the rest."""
        if len(self.classes_) == 2:
            return np.where(codes == 1, 1.0, -1.0).reshape(-1, 1)
        return 2 * self._one_hot(codes) - 1

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients ``(1, p)`` for two classes with one predictor, else ``(classes, p)``."""
        return self.result_.coef.T

    @property
    def intercept_(self) -> np.ndarray:
        """One intercept per row of `coef_`."""
        return self.result_.intercept

    def decision_function(self, X: Any) -> np.ndarray:
        """Predictors: ``(m,)`` for two classes, positive for ``classes_[1]``; else ``(m, classes)``."""
        predictor = self._predictor(X)
        if predictor.shape[1] == 1:
            return predictor[:, 0]
        return predictor[:, 1] - predictor[:, 0] if predictor.shape[1] == 2 else predictor

    def predict(self, X: Any) -> np.ndarray:
        """The most likely label of each sample."""
        decision = self.decision_function(X)
        return self.classes_[(decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(axis=1)]


class _ProbabilisticClassifier(Classifier):
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the class probabilities, ``(m, classes)``, accurate far into the tails."""
        decision = self.decision_function(X)
        if decision.ndim == 1:
            return np.column_stack([log_expit(-decision), log_expit(decision)])
        return np.asarray(log_softmax(decision, axis=1))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, ``(m, classes)``."""
        decision = self.decision_function(X)
        if decision.ndim == 1:
            return np.column_stack([expit(-decision), expit(decision)])
        return np.exp(log_softmax(decision, axis=1))


class SparseLogisticRegression(_ProbabilisticClassifier):
    """Logistic regression with at most kappa nonzero coefficients; softmax regression for more than two classes.

    Minimises ``sum log(1 + exp(-y eta)) + ||x||^2 / (2 gamma)`` subject to ``||x||_0 <= kappa``, with
    ``eta = X x + intercept`` and y = -1 or +1; `gamma` is scikit-learn's ``C``. For more than two classes it does what
    `SparseSoftmaxRegression` does.
    """

    def _columns(self, codes: np.ndarray) -> np.ndarray:
        return self._signs(codes) if len(self.classes_) == 2 else self._one_hot(codes)

    def _loss(self, target: np.ndarray) -> Loss:
        return Logistic() if len(self.classes_) == 2 else Softmax()


class SparseSoftmaxRegression(_ProbabilisticClassifier):
    """Softmax regression, one predictor per class, with kappa over all of their coefficients (or rows of them).

    Minimises ``sum logsumexp(eta) - eta_y + ||x||^2 / (2 gamma)`` subject to the limit, with a column of
    ``eta = X x + intercept`` for each class, two classes included.
    """

    def _columns(self, codes: np.ndarray) -> np.ndarray:
        return self._one_hot(codes)

    def _loss(self, target: np.ndarray) -> Loss:
        return Softmax()


class SparseSVC(Classifier):
    """A linear support vector machine with at most kappa nonzero coefficients.

    Minimises ``sum max(0, 1 - y eta)^2 + ||x||^2 / (2 gamma)``, or the hinge without the square, subject to
    ``||x||_0 <= kappa``, with ``eta = X x + intercept`` and y = -1 or +1; `gamma` is scikit-learn's ``C``. Several
    classes are fitted one against the rest, each with its own kappa unless ``sparsity="feature"``. There are no
    probabilities: `decision_function` gives margins.

    Parameters
    ----------
    loss : {"squared_hinge", "hinge"}, default="squared_hinge"
        ``max(0, 1 - y eta)``, squared or not.
    """

    _rules: ClassVar[dict[str, Rule]] = {"loss": one_of("squared_hinge", "hinge")}

    def __init__(
        self,
        kappa: int | float | None = None,
        *,
        gamma: float = 1.0,
        fit_intercept: bool = True,
        standardize: bool = False,
        loss: str = "squared_hinge",
        class_weight: dict[Any, float] | str | None = None,
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
            class_weight=class_weight,
            sparsity=sparsity,
            solver=solver,
            grid=grid,
            certify=certify,
            warm_start=warm_start,
            verbose=verbose,
            callback=callback,
        )
        self.loss = loss

    def _columns(self, codes: np.ndarray) -> np.ndarray:
        return self._signs(codes)

    def _loss(self, target: np.ndarray) -> Loss:
        return SquaredHinge() if self.loss == "squared_hinge" else Hinge()
