"""Classification: logistic and softmax regression, support vector machines."""

from typing import Any, Unpack

import numpy as np
from sklearn.base import ClassifierMixin

from psfit.common.arguments import NONE, Rule, number, one_of, satisfying
from psfit.estimators.labelled import score_labelled
from psfit.estimators.model import SparseModel
from psfit.estimators.posing import Given
from psfit.estimators.reading import as_array
from psfit.estimators.registry import losses_of
from psfit.estimators.shared_arguments import ModelArguments

FACTOR = number("a number that is not negative", lambda value: 0 <= value < np.inf)
CLASS_WEIGHT = satisfying(
    "a dict from labels to numbers that are not negative",
    lambda value: isinstance(value, dict) and all(FACTOR.read(one) >= 0 for one in value.values()),
)


class Classifier(ClassifierMixin, SparseModel):
    """Targets are labels of any type; `class_weight` multiplies the sample weights.

    Parameters
    ----------
    class_weight : dict, "balanced" or None, default=None
        A factor on the losses of each class, by label. "balanced" gives all classes the same total weight.
    """

    def __init__(
        self,
        kappa: int | float | None = None,
        *,
        class_weight: dict[Any, float] | str | None = None,
        **shared: Unpack[ModelArguments],
    ) -> None:
        super().__init__(kappa, **shared)
        self.class_weight = class_weight

    @classmethod
    def _rules(cls) -> dict[str, Rule]:
        return super()._rules() | {"class_weight": CLASS_WEIGHT | one_of("balanced") | NONE}

    @property
    def classes_(self) -> np.ndarray:
        """The labels, sorted."""
        classes: np.ndarray = self._target.classes
        return classes

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients ``(1, p)`` for two classes with one predictor, else ``(classes, p)``."""
        return self.result_.coef.T

    @property
    def intercept_(self) -> np.ndarray:
        """One intercept per row of `coef_`."""
        return self.result_.intercept

    def decision_function(self, X: Any, *, offset: Any = None) -> np.ndarray:
        """Predictors: ``(m,)`` for two classes, positive for ``classes_[1]``; else ``(m, classes)``.

        A model that was fitted with an `offset` needs one here, too, and in the other methods for new samples.
        """
        return np.asarray(self._target.decide(self._predictors(X, offset)))

    def predict(self, X: Any, *, offset: Any = None) -> np.ndarray:
        """The most likely label of each sample."""
        return np.asarray(self._target.predict(self._predictors(X, offset)))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, *, offset: Any = None) -> float:
        """The share of the labels that are predicted; y is not needed if X is a file or a table with the target."""
        if y is None:
            return score_labelled(self, Given(X, sample_weight=sample_weight, offset=offset))
        return float(self._target.score(as_array(y), self.predict(X, offset=offset), as_array(sample_weight)))


class _ProbabilisticClassifier(Classifier):
    def predict_log_proba(self, X: Any, *, offset: Any = None) -> np.ndarray:
        """Logarithms of the class probabilities, ``(m, classes)``, accurate far into the tails."""
        return np.asarray(self._target.log_probabilities(self._predictors(X, offset)))

    def predict_proba(self, X: Any, *, offset: Any = None) -> np.ndarray:
        """Class probabilities, ``(m, classes)``."""
        return np.asarray(self._target.probabilities(self._predictors(X, offset)))


class SparseLogisticRegression(_ProbabilisticClassifier):
    """Logistic regression with at most kappa nonzero coefficients; softmax regression for more than two classes.

    Minimises ``sum log(1 + exp(-y eta)) + ||x||^2 / (2 gamma)`` subject to ``||x||_0 <= kappa``, with
    ``eta = X x + intercept`` and y = -1 or +1; `gamma` is scikit-learn's ``C``. For more than two classes it is the
    same as `SparseSoftmaxRegression`.
    """

    loss = "logistic"


class SparseSoftmaxRegression(_ProbabilisticClassifier):
    """Softmax regression, one predictor per class; kappa limits all their coefficients together (or rows of them).

    Minimises ``sum logsumexp(eta) - eta_y + ||x||^2 / (2 gamma)`` subject to the limit, with a column of
    ``eta = X x + intercept`` for each class, also for two classes.
    """

    loss = "softmax"


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

    def __init__(
        self,
        kappa: int | float | None = None,
        *,
        loss: str = "squared_hinge",
        class_weight: dict[Any, float] | str | None = None,
        **shared: Unpack[ModelArguments],
    ) -> None:
        super().__init__(kappa, class_weight=class_weight, **shared)
        self.loss = loss

    @classmethod
    def _rules(cls) -> dict[str, Rule]:
        return super()._rules() | {"loss": one_of(*losses_of("SparseSVC"))}
