"""The models that choose their limit by cross-validation or an information criterion."""

from collections.abc import Iterable
from typing import Any, Unpack

from psfit.estimators.classification import SparseLogisticRegression, SparseSoftmaxRegression, SparseSVC
from psfit.estimators.regression import (
    SparseGammaRegression,
    SparseLinearRegression,
    SparsePoissonRegression,
    SparseTweedieRegression,
)
from psfit.estimators.selecting import SelectingModel
from psfit.estimators.shared_arguments import SelectionArguments


class SparseLinearRegressionCV(SelectingModel, SparseLinearRegression):
    """`SparseLinearRegression` that chooses kappa and gamma; with the squared loss all folds share one pass."""

    def __init__(
        self,
        kappas: Iterable[int] | None = None,
        *,
        loss: str = "squared",
        huber_delta: float = 1.35,
        **shared: Unpack[SelectionArguments],
    ) -> None:
        super().__init__(kappas, **shared)
        self.loss = loss
        self.huber_delta = huber_delta


class SparsePoissonRegressionCV(SelectingModel, SparsePoissonRegression):
    """`SparsePoissonRegression` that chooses kappa and gamma."""


class SparseGammaRegressionCV(SelectingModel, SparseGammaRegression):
    """`SparseGammaRegression` that chooses kappa and gamma."""


class SparseTweedieRegressionCV(SelectingModel, SparseTweedieRegression):
    """`SparseTweedieRegression` that chooses kappa and gamma."""

    def __init__(
        self,
        kappas: Iterable[int] | None = None,
        *,
        power: float = 1.5,
        **shared: Unpack[SelectionArguments],
    ) -> None:
        super().__init__(kappas, **shared)
        self.power = power


class _SelectingClassifier(SelectingModel):
    def __init__(
        self,
        kappas: Iterable[int] | None = None,
        *,
        class_weight: dict[Any, float] | str | None = None,
        **shared: Unpack[SelectionArguments],
    ) -> None:
        super().__init__(kappas, **shared)
        self.class_weight = class_weight


class SparseLogisticRegressionCV(_SelectingClassifier, SparseLogisticRegression):
    """`SparseLogisticRegression` that chooses kappa and gamma."""


class SparseSoftmaxRegressionCV(_SelectingClassifier, SparseSoftmaxRegression):
    """`SparseSoftmaxRegression` that chooses kappa and gamma."""


class SparseSVCCV(_SelectingClassifier, SparseSVC):
    """`SparseSVC` that chooses kappa and gamma."""

    def __init__(
        self,
        kappas: Iterable[int] | None = None,
        *,
        loss: str = "squared_hinge",
        class_weight: dict[Any, float] | str | None = None,
        **shared: Unpack[SelectionArguments],
    ) -> None:
        super().__init__(kappas, class_weight=class_weight, **shared)
        self.loss = loss
