"""PsFiT, the Parallel Sparse Fitting Toolbox: sparse linear models under an exact limit on nonzero coefficients."""

# First of all, since it is about what follows.
from psfit import _command as _command
from psfit._version import __version__
from psfit.bicadmm import BiCADMM
from psfit.checkpoint import CheckpointError
from psfit.comm import GridSpec, PeerLostError, RemoteError
from psfit.data import Dense, FileSource, Source
from psfit.estimators import (
    Path,
    SparseLinearRegression,
    SparseLinearRegressionCV,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
    SparsePoissonRegression,
    SparsePoissonRegressionCV,
    SparseSoftmaxRegression,
    SparseSoftmaxRegressionCV,
    SparseSVC,
    SparseSVCCV,
    Stability,
    sparse_path,
    stability_selection,
)
from psfit.iterate import StoppedError
from psfit.model_file import load, save
from psfit.problem import Problem
from psfit.reporting import report
from psfit.result import Record, Result, Status
from psfit.solve import solve
from psfit.watch import Progress

__all__ = [
    "BiCADMM",
    "CheckpointError",
    "Dense",
    "FileSource",
    "GridSpec",
    "Path",
    "PeerLostError",
    "Problem",
    "Progress",
    "Record",
    "RemoteError",
    "Result",
    "Source",
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
    "Status",
    "StoppedError",
    "__version__",
    "load",
    "report",
    "save",
    "solve",
    "sparse_path",
    "stability_selection",
]
