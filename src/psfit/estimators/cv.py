"""The models that choose their limit by cross-validation or an information criterion."""

from collections.abc import Iterable, Sequence
from typing import Any, Unpack

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import Grid, GridSpec
from psfit.common.progress import Callback
from psfit.estimators.classification import SparseLogisticRegression, SparseSoftmaxRegression, SparseSVC
from psfit.estimators.constraints import ConstraintArguments
from psfit.estimators.regression import (
    SparseGammaRegression,
    SparseLinearRegression,
    SparsePoissonRegression,
    SparseTweedieRegression,
)
from psfit.estimators.selecting import SelectingModel
from psfit.problem import Sparsity


class SparseLinearRegressionCV(SelectingModel, SparseLinearRegression):
    """`SparseLinearRegression` that chooses kappa and gamma; with the squared loss all folds share one pass."""

    def __init__(
        self,
        kappas: Iterable[int] | None = None,
        *,
        gammas: float | Sequence[float] = 1.0,
        criterion: str = "cv",
        cv: Any = None,
        scoring: Any = None,
        one_standard_error: bool = False,
        fit_intercept: bool = True,
        standardize: bool = False,
        loss: str = "squared",
        huber_delta: float = 1.35,
        sparsity: Sparsity = "element",
        solver: BiCADMM | None = None,
        grid: GridSpec | Grid | None = None,
        certify: bool = True,
        verbose: int = 0,
        callback: Callback | None = None,
        **constraints: Unpack[ConstraintArguments],
    ) -> None:
        super().__init__(
            kappas,
            gammas=gammas,
            criterion=criterion,
            cv=cv,
            scoring=scoring,
            one_standard_error=one_standard_error,
            fit_intercept=fit_intercept,
            standardize=standardize,
            sparsity=sparsity,
            solver=solver,
            grid=grid,
            certify=certify,
            verbose=verbose,
            callback=callback,
            **constraints,
        )
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
        gammas: float | Sequence[float] = 1.0,
        criterion: str = "cv",
        cv: Any = None,
        scoring: Any = None,
        one_standard_error: bool = False,
        power: float = 1.5,
        fit_intercept: bool = True,
        standardize: bool = False,
        sparsity: Sparsity = "element",
        solver: BiCADMM | None = None,
        grid: GridSpec | Grid | None = None,
        certify: bool = True,
        verbose: int = 0,
        callback: Callback | None = None,
        **constraints: Unpack[ConstraintArguments],
    ) -> None:
        super().__init__(
            kappas,
            gammas=gammas,
            criterion=criterion,
            cv=cv,
            scoring=scoring,
            one_standard_error=one_standard_error,
            fit_intercept=fit_intercept,
            standardize=standardize,
            sparsity=sparsity,
            solver=solver,
            grid=grid,
            certify=certify,
            verbose=verbose,
            callback=callback,
            **constraints,
        )
        self.power = power


class _SelectingClassifier(SelectingModel):
    def __init__(
        self,
        kappas: Iterable[int] | None = None,
        *,
        gammas: float | Sequence[float] = 1.0,
        criterion: str = "cv",
        cv: Any = None,
        scoring: Any = None,
        one_standard_error: bool = False,
        fit_intercept: bool = True,
        standardize: bool = False,
        class_weight: dict[Any, float] | str | None = None,
        sparsity: Sparsity = "element",
        solver: BiCADMM | None = None,
        grid: GridSpec | Grid | None = None,
        certify: bool = True,
        verbose: int = 0,
        callback: Callback | None = None,
        **constraints: Unpack[ConstraintArguments],
    ) -> None:
        super().__init__(
            kappas,
            gammas=gammas,
            criterion=criterion,
            cv=cv,
            scoring=scoring,
            one_standard_error=one_standard_error,
            fit_intercept=fit_intercept,
            standardize=standardize,
            sparsity=sparsity,
            solver=solver,
            grid=grid,
            certify=certify,
            verbose=verbose,
            callback=callback,
            **constraints,
        )
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
        gammas: float | Sequence[float] = 1.0,
        criterion: str = "cv",
        cv: Any = None,
        scoring: Any = None,
        one_standard_error: bool = False,
        fit_intercept: bool = True,
        standardize: bool = False,
        loss: str = "squared_hinge",
        class_weight: dict[Any, float] | str | None = None,
        sparsity: Sparsity = "element",
        solver: BiCADMM | None = None,
        grid: GridSpec | Grid | None = None,
        certify: bool = True,
        verbose: int = 0,
        callback: Callback | None = None,
        **constraints: Unpack[ConstraintArguments],
    ) -> None:
        super().__init__(
            kappas,
            gammas=gammas,
            criterion=criterion,
            cv=cv,
            scoring=scoring,
            one_standard_error=one_standard_error,
            fit_intercept=fit_intercept,
            standardize=standardize,
            class_weight=class_weight,
            sparsity=sparsity,
            solver=solver,
            grid=grid,
            certify=certify,
            verbose=verbose,
            callback=callback,
            **constraints,
        )
        self.loss = loss
