"""PsFiT, the Parallel Sparse Fitting Toolbox: sparse linear models under an exact limit on nonzero coefficients.

The public names are imported when they are first used: torch takes seconds, which ``psfit --help`` need not wait for.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

# This import comes before all others of PsFiT: it handles Ctrl-C while they are imported.
from psfit.common import startup_interrupt as startup_interrupt
from psfit.common.version import __version__

# Type checkers read these imports; PLACES says the same to `__getattr__`.
if TYPE_CHECKING:
    from psfit.admm.bicadmm import BiCADMM
    from psfit.admm.checkpoint import CheckpointError
    from psfit.admm.loop import StoppedError
    from psfit.admm.record import Record
    from psfit.comm import GridSpec, PeerLostError, RemoteError
    from psfit.common.progress import Progress
    from psfit.common.status import Status
    from psfit.data import DataWarning, Dense, FileSource, ReadingWarning, Source, TableSource
    from psfit.estimators import (
        Interactions,
        NearOptimal,
        SparseGammaRegression,
        SparseGammaRegressionCV,
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
        SparseTweedieRegression,
        SparseTweedieRegressionCV,
        Stability,
        interactions,
        near_optimal,
        sparse_path,
        stability_selection,
    )
    from psfit.estimators.persistence.model_file import load, save
    from psfit.pipeline.result import Result
    from psfit.pipeline.solve import solve
    from psfit.problem import Problem
    from psfit.reporting import plots as plots
    from psfit.reporting import report

PLACES = {
    "BiCADMM": "psfit.admm.bicadmm",
    "CheckpointError": "psfit.admm.checkpoint",
    "Dense": "psfit.data",
    "FileSource": "psfit.data",
    "GridSpec": "psfit.comm",
    "Interactions": "psfit.estimators",
    "NearOptimal": "psfit.estimators",
    "PeerLostError": "psfit.comm",
    "Problem": "psfit.problem",
    "Progress": "psfit.common.progress",
    "Record": "psfit.admm.record",
    "DataWarning": "psfit.data",
    "ReadingWarning": "psfit.data",
    "RemoteError": "psfit.comm",
    "Result": "psfit.pipeline.result",
    "Source": "psfit.data",
    "SparseGammaRegression": "psfit.estimators",
    "SparseGammaRegressionCV": "psfit.estimators",
    "SparseLinearRegression": "psfit.estimators",
    "SparseLinearRegressionCV": "psfit.estimators",
    "SparseLogisticRegression": "psfit.estimators",
    "SparseLogisticRegressionCV": "psfit.estimators",
    "SparsePath": "psfit.estimators",
    "SparsePoissonRegression": "psfit.estimators",
    "SparsePoissonRegressionCV": "psfit.estimators",
    "SparseSVC": "psfit.estimators",
    "SparseSVCCV": "psfit.estimators",
    "SparseSoftmaxRegression": "psfit.estimators",
    "SparseSoftmaxRegressionCV": "psfit.estimators",
    "SparseTweedieRegression": "psfit.estimators",
    "SparseTweedieRegressionCV": "psfit.estimators",
    "Stability": "psfit.estimators",
    "Status": "psfit.common.status",
    "StoppedError": "psfit.admm.loop",
    "TableSource": "psfit.data",
    "interactions": "psfit.estimators",
    "load": "psfit.estimators.persistence.model_file",
    "near_optimal": "psfit.estimators",
    "report": "psfit.reporting",
    "save": "psfit.estimators.persistence.model_file",
    "solve": "psfit.pipeline.solve",
    "sparse_path": "psfit.estimators",
    "stability_selection": "psfit.estimators",
}
__all__ = [
    "BiCADMM",
    "CheckpointError",
    "DataWarning",
    "Dense",
    "FileSource",
    "GridSpec",
    "Interactions",
    "NearOptimal",
    "PeerLostError",
    "Problem",
    "Progress",
    "ReadingWarning",
    "Record",
    "RemoteError",
    "Result",
    "Source",
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
    "Status",
    "StoppedError",
    "TableSource",
    "__version__",
    "interactions",
    "load",
    "near_optimal",
    "report",
    "save",
    "solve",
    "sparse_path",
    "stability_selection",
]


def __getattr__(name: str) -> Any:
    """Import a public name on its first use."""
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(PLACES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Plots(ModuleType):
    """The public module ``psfit.plots``: what lies in `psfit.reporting.plots`, imported on first use."""

    def __getattr__(self, name: str) -> Any:
        # Tools such as `inspect` ask all modules for names like `__file__`; that must not import anything.
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module("psfit.reporting.plots"), name)

    def __dir__(self) -> list[str]:
        return dir(import_module("psfit.reporting.plots"))


if not TYPE_CHECKING:
    plots = sys.modules[f"{__name__}.plots"] = _Plots(f"{__name__}.plots")
