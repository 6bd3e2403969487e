"""PsFiT, the Parallel Sparse Fitting Toolbox: sparse linear models under an exact limit on nonzero coefficients."""

import sys

# This import comes first: it handles Ctrl-C during all imports below.
from psfit.common import startup_interrupt as startup_interrupt

# isort: split

from psfit.admm.bicadmm import BiCADMM
from psfit.admm.checkpoint import CheckpointError
from psfit.admm.loop import StoppedError
from psfit.admm.record import Record
from psfit.comm import GridSpec, PeerLostError, RemoteError
from psfit.common.progress import Progress
from psfit.common.status import Status
from psfit.common.version import __version__
from psfit.data import Dense, FileSource, Source
from psfit.estimators import (
    SparseLinearRegression,
    SparseLinearRegressionCV,
    SparseLogisticRegression,
    SparseLogisticRegressionCV,
    SparsePath,
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
from psfit.estimators.persistence.model_file import load, save
from psfit.pipeline.result import Result
from psfit.pipeline.solve import solve
from psfit.problem import Problem
from psfit.reporting import plots, report

__all__ = [
    "BiCADMM",
    "CheckpointError",
    "Dense",
    "FileSource",
    "GridSpec",
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
    "SparsePath",
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

# Plots are made by the reports, and keep a public module of their own.
sys.modules[f"{__name__}.plots"] = plots
