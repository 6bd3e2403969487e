"""Estimators: the scikit-learn face of PsFiT; scikit-learn lives here and nowhere lower."""

from psfit.estimators.classify import SparseLogisticRegression, SparseSoftmaxRegression, SparseSVC
from psfit.estimators.linear import SparseLinearRegression, SparsePoissonRegression

__all__ = [
    "SparseLinearRegression",
    "SparseLogisticRegression",
    "SparsePoissonRegression",
    "SparseSVC",
    "SparseSoftmaxRegression",
]
