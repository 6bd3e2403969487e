"""Estimators: the scikit-learn face of PsFiT; scikit-learn lives here and nowhere lower."""

from psfit.estimators.classification import SparseLogisticRegression, SparseSoftmaxRegression, SparseSVC
from psfit.estimators.cv import (
    SparseLinearRegressionCV,
    SparseLogisticRegressionCV,
    SparsePoissonRegressionCV,
    SparseSoftmaxRegressionCV,
    SparseSVCCV,
)
from psfit.estimators.path import Path, sparse_path
from psfit.estimators.regression import SparseLinearRegression, SparsePoissonRegression
from psfit.estimators.stability import Stability, stability_selection

__all__ = [
    "Path",
    "SparseLinearRegression",
    "SparseLinearRegressionCV",
    "SparseLogisticRegression",
    "SparseLogisticRegressionCV",
    "SparsePoissonRegression",
    "SparsePoissonRegressionCV",
    "SparseSVC",
    "SparseSVCCV",
    "SparseSoftmaxRegression",
    "SparseSoftmaxRegressionCV",
    "Stability",
    "sparse_path",
    "stability_selection",
]
