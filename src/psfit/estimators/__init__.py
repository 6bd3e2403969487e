"""Estimators with the interface of scikit-learn. No package below this one uses scikit-learn."""

from psfit.estimators.classification import SparseLogisticRegression, SparseSoftmaxRegression, SparseSVC
from psfit.estimators.cv import (
    SparseGammaRegressionCV,
    SparseLinearRegressionCV,
    SparseLogisticRegressionCV,
    SparsePoissonRegressionCV,
    SparseSoftmaxRegressionCV,
    SparseSVCCV,
    SparseTweedieRegressionCV,
)
from psfit.estimators.interactions import Interactions, interactions
from psfit.estimators.near_optimal import near_optimal
from psfit.estimators.path import sparse_path
from psfit.estimators.regression import (
    SparseGammaRegression,
    SparseLinearRegression,
    SparsePoissonRegression,
    SparseTweedieRegression,
)
from psfit.estimators.results import NearOptimal, SparsePath, Stability
from psfit.estimators.stability import stability_selection

__all__ = [
    "Interactions",
    "NearOptimal",
    "SparseGammaRegression",
    "SparseGammaRegressionCV",
    "SparseLinearRegression",
    "SparseLinearRegressionCV",
    "SparseLogisticRegression",
    "SparseLogisticRegressionCV",
    "SparsePath",
    "SparsePoissonRegression",
    "SparsePoissonRegressionCV",
    "SparseSVC",
    "SparseSVCCV",
    "SparseSoftmaxRegression",
    "SparseSoftmaxRegressionCV",
    "SparseTweedieRegression",
    "SparseTweedieRegressionCV",
    "Stability",
    "interactions",
    "near_optimal",
    "sparse_path",
    "stability_selection",
]
