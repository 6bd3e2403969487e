"""Estimators: the scikit-learn face of PsFiT; scikit-learn lives here and nowhere lower."""

from psfit.estimators.classify import SparseLogisticRegression, SparseSoftmaxRegression, SparseSVC
from psfit.estimators.linear import SparseLinearRegression, SparsePoissonRegression
from psfit.estimators.path import Path, sparse_path

__all__ = [
    "Path",
    "SparseLinearRegression",
    "SparseLogisticRegression",
    "SparsePoissonRegression",
    "SparseSVC",
    "SparseSoftmaxRegression",
    "sparse_path",
]
