"""PsFiT, the Parallel Sparse Fitting Toolbox: sparse linear models under an exact limit on nonzero coefficients."""

from psfit.bicadmm import BiCADMM
from psfit.comm import GridSpec
from psfit.data import Dense, Source
from psfit.estimators import (
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
    SparseSoftmaxRegression,
    SparseSVC,
)
from psfit.model_file import load, save
from psfit.problem import Problem
from psfit.result import Record, Result, Status
from psfit.solve import solve

__version__ = "0.1.0"

__all__ = [
    "BiCADMM",
    "Dense",
    "GridSpec",
    "Problem",
    "Record",
    "Result",
    "Source",
    "SparseLinearRegression",
    "SparseLogisticRegression",
    "SparsePoissonRegression",
    "SparseSVC",
    "SparseSoftmaxRegression",
    "Status",
    "load",
    "save",
    "solve",
]
