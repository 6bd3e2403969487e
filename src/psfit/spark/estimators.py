"""The estimators and models of pyspark.ml, one pair for each plain estimator, with the same parameters."""

import inspect
from functools import partial
from typing import Any

from pyspark.ml import Estimator, Model
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasFeaturesCol,
    HasLabelCol,
    HasPredictionCol,
    HasProbabilityCol,
    HasRawPredictionCol,
    HasWeightCol,
)
from pyspark.ml.util import MLReadable, MLWritable
from pyspark.sql import DataFrame

from psfit.common.arguments import NONE, integer
from psfit.estimators import (
    SparseGammaRegression,
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
    SparseSoftmaxRegression,
    SparseSVC,
    SparseTweedieRegression,
)
from psfit.estimators.docstrings import PARAMETERS, split
from psfit.estimators.model import SparseModel
from psfit.spark.columns import find_names, require_column, select_features, select_labels, select_numbers
from psfit.spark.fit import fit_on_spark
from psfit.spark.persistence import Reader, Writer
from psfit.spark.transform import OUTPUTS, add_predictions

# Arguments of this package, by the names that Spark has for them.
COLUMNS = {
    "features_col": "featuresCol",
    "label_col": "labelCol",
    "weight_col": "weightCol",
    "prediction_col": "predictionCol",
    "raw_prediction_col": "rawPredictionCol",
    "probability_col": "probabilityCol",
    "offset_col": "offsetCol",
}
# Parameters of the plain estimators that have no meaning where the fit runs on other machines.
LOCAL = ("warm_start", "verbose", "callback")


class _Shared(HasFeaturesCol, HasLabelCol, HasPredictionCol, MLReadable, MLWritable):
    """What estimators and models have in common: parameters, and how they are saved."""

    offsetCol: Param[Any] = Param(
        Params._dummy(),
        "offsetCol",
        "numbers that are added to the linear predictors",
        TypeConverters.toString,
    )
    _plain: type[SparseModel]

    def write(self) -> Writer:
        """A writer: ``.write().overwrite().save(path)``."""
        return Writer(self)

    @classmethod
    def read(cls) -> Reader:
        """A reader: ``.read().load(path)``."""
        return Reader(cls)

    def _value(self, name: str) -> Any:
        """The value of a parameter, None if it has none."""
        name = COLUMNS.get(name, name)
        return self.getOrDefault(name) if self.hasParam(name) and self.isDefined(name) else None


class SparkEstimator(_Shared, HasWeightCol, Estimator):
    """What the estimators for Spark have in common: a fit where the partitions are.

    Parameters
    ----------
    features_col : str, default="features"
        A column of vectors (dense or sparse) or of arrays of numbers.
    label_col : str, default="label"
        The targets: numbers, or labels of any type for classification.
    weight_col : str or None, default=None
        Weights of the samples' losses.
    offset_col : str or None, default=None
        Numbers that are added to the linear predictors, such as the logarithm of exposure; not for more than two
        classes. The model reads the same column.
    prediction_col : str, default="prediction"
        The column of predictions that a model adds.
    raw_prediction_col, probability_col : str, default="rawPrediction", "probability"
        For classification: the columns of margins and of probabilities, vectors with an entry for each class. An empty
        name leaves a column out.
    num_workers : int or None, default=None
        Ranks of the fit; the table is divided anew if it has another number of partitions. None means a rank for each
        partition, as many as Spark can run at once.
    """

    num_workers: Param[Any] = Param(
        Params._dummy(),
        "num_workers",
        "ranks of the fit; None: one for each partition",
        partial(integer(1) | NONE, "num_workers"),
    )
    _model: type["SparkModel"]

    def _fit(self, dataset: DataFrame) -> "SparkModel":
        names = find_names(dataset, self._value("features_col"))
        fitted = fit_on_spark(self._make_plain(), self._select(dataset), self._value("num_workers"), names)
        return self._copyValues(self._model(fitted))

    def setParams(self, **settings: Any) -> "SparkEstimator":
        """Set parameters by the names of the constructor; None is the default of a column."""
        given = {COLUMNS.get(name, name): value for name, value in settings.items()}
        unknown = [name for name in given if not self.hasParam(name)]
        if unknown:
            raise TypeError(f"{type(self).__name__} has no parameter {unknown[0]!r}")
        for name in COLUMNS.values():
            if name in given and given[name] is None:
                self.clear(self.getParam(name))
                del given[name]
        self._set(**given)
        return self

    def _make_plain(self) -> SparseModel:
        names = [name for name in inspect.signature(self._plain).parameters if name not in LOCAL]
        return self._plain(**{name: self._value(name) for name in names})

    def _select(self, dataset: DataFrame) -> DataFrame:
        """The columns that the ranks need."""
        named = {kind: self._value(kind) for kind in ("features_col", "label_col", "weight_col", "offset_col")}
        for kind, name in named.items():
            if name is not None:
                require_column(dataset, kind, name)
        columns = [
            select_features(dataset, named["features_col"]).alias("features"),
            select_labels(dataset, named["label_col"]).alias("label"),
        ]
        for kind, field in (("weight_col", "weight"), ("offset_col", "offset")):
            if named[kind] is not None:
                columns.append(select_numbers(dataset, kind, named[kind]).alias(field))
        return dataset.select(*columns)


class SparkModel(_Shared, HasWeightCol, Model):
    """A fitted model: adds columns of predictions to a table."""

    model: SparseModel | None

    def __init__(self, model: SparseModel | None = None) -> None:
        super().__init__()
        self.model = model

    def to_local(self) -> Any:
        """The model without Spark: a plain estimator, as for data in memory."""
        assert self.model is not None
        return self.model

    def _transform(self, dataset: DataFrame) -> DataFrame:
        features, offset = self._value("features_col"), self._value("offset_col")
        require_column(dataset, "features_col", features)
        if offset is not None:
            require_column(dataset, "offset_col", offset)
        names = {kind: self._value(kind) for kind in OUTPUTS}
        return add_predictions(self.to_local(), dataset, features, offset, names)

    def copy(self, extra: Any = None) -> "SparkModel":
        """A copy, with other values of parameters."""
        copied: SparkModel = super().copy(extra)
        copied.model = self.model
        return copied


def _read_value(rule: Any, name: str, value: Any) -> Any:
    read = rule(name, value)
    # The rule puts labels beside their features; the plain estimator, which reads them again, expects labels alone.
    return value if name == "groups" else read


def _make_params(plain: type[SparseModel]) -> dict[str, Any]:
    """Spark's parameters with the names, the texts and the rules of the plain estimator's."""
    texts = split(plain.__doc__ or "")[1][PARAMETERS]
    rules = plain._rules()
    return {
        name: Param(Params._dummy(), name, texts.get(name, name), partial(_read_value, rules[name], name))
        for name in inspect.signature(plain).parameters
        if name not in LOCAL
    }


def _make_pair(plain: type[SparseModel]) -> tuple[Any, Any]:
    """The estimator and its model."""
    kinds: list[type] = [HasRawPredictionCol] if hasattr(plain, "decision_function") else []
    kinds += [HasProbabilityCol] if hasattr(plain, "predict_proba") else []
    params = _make_params(plain)
    defaults = {name: inspect.signature(plain).parameters[name].default for name in params} | {"num_workers": None}
    shared = ["features_col", "label_col", "weight_col", "prediction_col"]
    keys = [*shared, *["raw_prediction_col", "probability_col"][: len(kinds)], "offset_col"]
    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [inspect.Parameter(name, keyword, default=None) for name in keys]
        + [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in defaults.items()]
    )

    def __init__(self: Any, *args: Any, **settings: Any) -> None:
        SparkEstimator.__init__(self)
        self._setDefault(**defaults)
        self.setParams(**signature.bind(*args, **settings).arguments)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    name = f"Spark{plain.__name__}"
    about = {"__module__": __name__, "_plain": plain, **params}
    text = f"`{plain.__name__}` on Spark: see `SparkEstimator` for the columns, and there for the other parameters."
    model = type(f"{name}Model", (SparkModel, *kinds), {**about, "__doc__": f"The fitted model of `{name}`."})
    methods = {"__init__": __init__, "_model": model, "__doc__": text}
    estimator = type(name, (SparkEstimator, *kinds), {**about, **methods})
    return estimator, model


SparkSparseLinearRegression, SparkSparseLinearRegressionModel = _make_pair(SparseLinearRegression)
SparkSparseLogisticRegression, SparkSparseLogisticRegressionModel = _make_pair(SparseLogisticRegression)
SparkSparsePoissonRegression, SparkSparsePoissonRegressionModel = _make_pair(SparsePoissonRegression)
SparkSparseSVC, SparkSparseSVCModel = _make_pair(SparseSVC)
SparkSparseSoftmaxRegression, SparkSparseSoftmaxRegressionModel = _make_pair(SparseSoftmaxRegression)
SparkSparseGammaRegression, SparkSparseGammaRegressionModel = _make_pair(SparseGammaRegression)
SparkSparseTweedieRegression, SparkSparseTweedieRegressionModel = _make_pair(SparseTweedieRegression)
