"""PsFiT on a real Spark: a local master with three slots, each with its own Python processes.

These are forked from one that has imported PsFiT, which saves seconds for each; tests that take long have Spark's own.
"""

import gc
import sys

import numpy as np
import pandas as pd
import pytest
from engine_jobs import (
    COUNTS,
    CPU,
    JOBS,
    NAMED,
    OFFSET,
    X,
    Y,
    require_predictions,
    require_same,
    settings,
    torchrun_answers,
)
from jobs import ENGINES
from launch import HERE, run
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.feature import StringIndexer, VectorAssembler
from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, ParamGridBuilder
from spark_samples import table

import psfit.spark
from psfit import (
    BiCADMM,
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
)
from psfit.spark import (
    SparkSparseLinearRegression,
    SparkSparseLogisticRegression,
    SparkSparsePoissonRegression,
)

# Spark's own: it knows pandas 2, and its sockets are closed by the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark.*"),
]


def test_answers_and_predictions_are_those_of_torchrun(spark, tmp_path_factory):
    answers, frame = torchrun_answers(tmp_path_factory), table(spark)
    for name in ENGINES:
        job, column = JOBS[name], "numbers" if name == "logistic" else "features"
        model = getattr(psfit.spark, f"Spark{job.model.__name__}")(column, name, **settings(job)).fit(frame)
        local = model.to_local()
        assert type(local) is job.model
        require_same(local, answers[name])
        added = model.transform(frame).drop("features", "numbers").collect()
        require_predictions([row.prediction for row in added], local.predict(X))
        if name != "squared":
            require_predictions([row.probability.toArray() for row in added], local.predict_proba(X))
            margins = local.decision_function(X)
            margins = np.column_stack([-margins, margins]) if margins.ndim == 1 else margins
            require_predictions([row.rawPrediction.toArray() for row in added], margins)


def test_weights_workers_and_tables_that_were_joined(spark):
    """Partitions of two tables cannot be read in a barrier stage, so they are divided anew."""
    frame, weight = table(spark), np.arange(len(X)) % 3
    joined = table(spark, cuts=[(0, 20)]).union(table(spark, cuts=[(20, 60)]))
    assert joined.rdd.getNumPartitions() == 2
    known = SparseLinearRegression(3).fit(X[:60], Y[:60], weight[:60])
    model = SparkSparseLinearRegression("features", "squared", "weight", kappa=3, grid=CPU).fit(joined).to_local()
    assert model.objective_ == pytest.approx(known.objective_, rel=1e-9)
    two = SparkSparseLinearRegression("features", "squared", kappa=3, grid=CPU, num_workers=2).fit(frame).to_local()
    assert two.result_.nodes == 2
    assert two.result_.samples == len(X)


def test_offsets_and_constraints_by_the_names_of_a_vector(spark):
    """The control is the plain estimator with the same table in memory."""
    rows = [(*map(float, row), int(count), float(o)) for row, count, o in zip(X, COUNTS, OFFSET, strict=True)]
    frame = spark.createDataFrame(rows, [*NAMED, "count", "exposed"]).repartition(2)
    frame = VectorAssembler(inputCols=NAMED, outputCol="features").transform(frame)
    constraints = {"include": ["c2"], "exclude": ["c5"], "upper": {"c1": 0.05}}
    known = SparsePoissonRegression(2, **constraints).fit(pd.DataFrame(X, columns=NAMED), COUNTS, offset=OFFSET)
    columns = {"label_col": "count", "offset_col": "exposed"}
    model = SparkSparsePoissonRegression(**columns, kappa=2, grid=CPU, **constraints).fit(frame)
    local = model.to_local()
    assert local.objective_ == pytest.approx(known.objective_, rel=1e-6)
    assert local.feature_names_in_[local.support_].tolist() == known.feature_names_in_[known.support_].tolist()
    found = model.transform(frame).select(*NAMED, "exposed", "prediction").toPandas()
    require_predictions(found["prediction"], local.predict(found[NAMED], offset=found["exposed"]))
    turned = VectorAssembler(inputCols=NAMED[::-1], outputCol="features").transform(frame.drop("features"))
    with pytest.raises(ValueError, match="entry 0 of its vectors is 'c11', where in the fit it was 'c0'"):
        model.transform(turned)
    less = VectorAssembler(inputCols=NAMED[:-1], outputCol="features").transform(frame.drop("features"))
    with pytest.raises(ValueError, match="entry 11 of its vectors is missing, where in the fit it was 'c11'"):
        model.transform(less)
    with pytest.raises(ValueError, match="include='c0': the features have no names"):
        SparkSparseLinearRegression("features", "squared", kappa=3, grid=CPU, include="c0").fit(table(spark))


def test_groups_dicts_and_arrays_are_kept_as_they_were_given(spark, tmp_path):
    """The keys of JSON are texts; numbers of features and labels are not."""
    labels = ["a"] * 6 + ["b"] * 6
    given = {"groups": labels, "lower": {0: -1.0, 7: 0.0}, "upper": np.full(12, 5.0), "kappa": 1}
    estimator = SparkSparseLinearRegression("features", "squared", "weight", grid=CPU, **given)
    estimator.write().overwrite().save(str(tmp_path / "estimator"))
    loaded = SparkSparseLinearRegression.load(str(tmp_path / "estimator")).setParams(weight_col=None)
    local = loaded.fit(table(spark)).to_local()
    known = SparseLinearRegression(**given).fit(X, Y)
    assert local.objective_ == pytest.approx(known.objective_, rel=1e-9)
    np.testing.assert_array_equal(local.support_, known.support_)
    by_index = pd.Series(labels, index=NAMED)
    SparkSparseLinearRegression(groups=by_index, at_most={"a": 1}).save(str(tmp_path / "series"))
    again = SparkSparseLinearRegression.load(str(tmp_path / "series"))
    pd.testing.assert_series_equal(again.getOrDefault("groups"), by_index, check_dtype=False)
    assert again.getOrDefault("at_most") == {"a": 1}


@pytest.mark.long
def test_a_pipeline_is_tuned_saved_and_loaded(spark, tmp_path):
    columns = [f"c{k}" for k in range(4)]
    rows = [(*map(float, row[[1, 5, 9, 0]]), str(label)) for row, label in zip(X, JOBS["logistic"].y, strict=True)]
    frame = spark.createDataFrame(rows, [*columns, "answer"]).repartition(2)
    solver = BiCADMM(effort="low", max_iter=2000)
    classes = {0.0: 1.0, 1.0: 2.0}
    fit = SparkSparseLogisticRegression(gamma=0.1, solver=solver, grid=CPU, class_weight=classes)
    steps = [
        StringIndexer(inputCol="answer", outputCol="label"),
        VectorAssembler(inputCols=columns, outputCol="features"),
    ]
    pipeline = Pipeline(stages=[*steps, fit])
    grid = ParamGridBuilder().addGrid(fit.kappa, [1, 3]).build()
    tuned = CrossValidator(
        estimator=pipeline, estimatorParamMaps=grid, evaluator=BinaryClassificationEvaluator(), numFolds=2, seed=0
    ).fit(frame)
    assert np.argmax(tuned.avgMetrics) == 1
    best = tuned.bestModel.stages[-1].to_local()
    assert (best.kappa, best.gamma, best.class_weight) == (3, 0.1, classes)
    # The control: the same samples in memory, with the labels that StringIndexer has given.
    labels = tuned.bestModel.stages[0].labels
    codes = np.array([float(labels.index(answer)) for answer in JOBS["logistic"].y])
    known = SparseLogisticRegression(3, gamma=0.1, class_weight=classes).fit(X[:, [1, 5, 9, 0]], codes)
    assert best.objective_ == pytest.approx(known.objective_, rel=1e-6)
    tuned.write().save(str(tmp_path / "tuned"))
    again = CrossValidatorModel.load(str(tmp_path / "tuned"))
    assert isinstance(again.bestModel, PipelineModel)
    expected = [row.probability.toArray() for row in tuned.transform(frame).select("probability").collect()]
    found = [row.probability.toArray() for row in again.transform(frame).select("probability").collect()]
    require_predictions(found, expected)
    pipeline.write().save(str(tmp_path / "pipeline"))
    loaded = Pipeline.load(str(tmp_path / "pipeline")).getStages()[-1]
    assert loaded.getOrDefault("solver") == solver
    assert loaded.getOrDefault("grid") == CPU
    assert loaded.getOrDefault("class_weight") == classes
    # CrossValidator leaves its pool of threads to the garbage collector, which warns of it.
    gc.collect()


@pytest.mark.long
def test_the_example_tunes_a_pipeline(tmp_path):
    program = [sys.executable, str(HERE.parents[1] / "examples/spark_pipeline.py"), str(tmp_path / "pipeline")]
    done = run(program)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(": ") for line in done.stdout.splitlines())
    assert len(said["features"].split(", ")) == 4
    assert int(said["right"].split()[0]) > 0.93 * 569
