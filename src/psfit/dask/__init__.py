"""PsFiT on Dask: estimators for dask DataFrames, arrays and delayed partitions.

They need ``pip install 'psfit-toolbox[dask]'``.
"""

try:
    import distributed  # noqa: F401
except ImportError:
    raise ImportError("psfit.dask needs dask.distributed: pip install 'psfit-toolbox[dask]'") from None

from psfit.dask.estimators import (
    DaskModel,
    DaskSparseGammaRegression,
    DaskSparseLinearRegression,
    DaskSparseLogisticRegression,
    DaskSparsePoissonRegression,
    DaskSparseSoftmaxRegression,
    DaskSparseSVC,
    DaskSparseTweedieRegression,
)

__all__ = [
    "DaskModel",
    "DaskSparseGammaRegression",
    "DaskSparseLinearRegression",
    "DaskSparseLogisticRegression",
    "DaskSparsePoissonRegression",
    "DaskSparseSVC",
    "DaskSparseSoftmaxRegression",
    "DaskSparseTweedieRegression",
]
