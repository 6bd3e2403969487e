"""PsFiT on Spark: estimators and models of pyspark.ml, for its pipelines.

They need ``pip install 'psfit-toolbox[spark]'``, and Java.
"""

try:
    import pyspark  # noqa: F401
except ImportError:
    raise ImportError(
        "psfit.spark needs pyspark 4: pip install 'psfit-toolbox[spark]' (Spark itself needs Java)"
    ) from None

from psfit.spark.estimators import (
    SparkEstimator,
    SparkModel,
    SparkSparseGammaRegression,
    SparkSparseGammaRegressionModel,
    SparkSparseLinearRegression,
    SparkSparseLinearRegressionModel,
    SparkSparseLogisticRegression,
    SparkSparseLogisticRegressionModel,
    SparkSparsePoissonRegression,
    SparkSparsePoissonRegressionModel,
    SparkSparseSoftmaxRegression,
    SparkSparseSoftmaxRegressionModel,
    SparkSparseSVC,
    SparkSparseSVCModel,
    SparkSparseTweedieRegression,
    SparkSparseTweedieRegressionModel,
)

__all__ = [
    "SparkEstimator",
    "SparkModel",
    "SparkSparseGammaRegression",
    "SparkSparseGammaRegressionModel",
    "SparkSparseLinearRegression",
    "SparkSparseLinearRegressionModel",
    "SparkSparseLogisticRegression",
    "SparkSparseLogisticRegressionModel",
    "SparkSparsePoissonRegression",
    "SparkSparsePoissonRegressionModel",
    "SparkSparseSVC",
    "SparkSparseSVCModel",
    "SparkSparseSoftmaxRegression",
    "SparkSparseSoftmaxRegressionModel",
    "SparkSparseTweedieRegression",
    "SparkSparseTweedieRegressionModel",
]
