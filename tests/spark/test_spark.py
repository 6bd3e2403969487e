"""PsFiT on a real Spark: a local master with three slots, each with its own Python processes.

These are forked from one that has imported PsFiT, which saves seconds for each; tests that take long have Spark's own.
"""

import gc
import os
import sys

import numpy as np
import pandas as pd
import pytest
from engine_jobs import (
    COUNTS,
    CPU,
    CUTS,
    JOBS,
    LONG,
    NAMED,
    OFFSET,
    X,
    Y,
    die_at_work,
    first_after,
    require_predictions,
    require_same,
    settings,
    stop_in_mid_fit,
    torchrun_answers,
    work_slowly,
)
from jobs import ENGINES
from launch import HERE, environment, run
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.feature import StringIndexer, VectorAssembler
from pyspark.ml.linalg import SparseVector, Vectors, VectorUDT
from pyspark.ml.tuning import CrossValidator, CrossValidatorModel, ParamGridBuilder
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DoubleType, LongType, StringType, StructField, StructType

import psfit.spark
from psfit import (
    BiCADMM,
    PeerLostError,
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
)
from psfit.estimators.registry import LOSSES
from psfit.spark import (
    SparkSparseLinearRegression,
    SparkSparseLogisticRegression,
    SparkSparsePoissonRegression,
    SparkSparseSVC,
)
from psfit.spark.fit import fit_on_spark

# Spark's own: it knows pandas 2, and its sockets are closed by the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark.*"),
]
SCHEMA = StructType(
    [
        StructField("features", VectorUDT()),
        StructField("numbers", ArrayType(DoubleType())),
        StructField("squared", DoubleType()),
        StructField("logistic", StringType()),
        StructField("softmax", LongType()),
        StructField("weight", DoubleType()),
    ]
)


@pytest.fixture
def spark(request):
    """A session; a test that stops it leaves the next one a new session in the same Java process."""
    return start_session("local[3]", real=request.node.get_closest_marker("long") is not None)


def start_session(master, real):
    os.environ.update(environment(PYSPARK_PYTHON=sys.executable))
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "3").config("spark.ui.showConsoleProgress", "false")
    if not real:
        # Compilers of Java that find the fastest code take longer than what is run here.
        builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        builder = builder.config("spark.python.daemon.module", "warm.spark_daemon")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="module", autouse=True)
def end():
    yield
    if SparkSession.getActiveSession() is not None:
        SparkSession.getActiveSession().stop()


def rows_of(features=X):
    """A row for each sample: every second vector is sparse."""
    names = [JOBS[name].y for name in ENGINES]
    for k, (squared, logistic, softmax) in enumerate(zip(*names, strict=True)):
        row = np.asarray(features[k])
        vector = Vectors.dense(row) if k % 2 else SparseVector(len(row), np.arange(len(row)), row)
        yield vector, row.tolist(), float(squared), str(logistic), int(softmax), float(k % 3)


def table(spark, features=X, cuts=CUTS):
    """The samples in partitions of uneven sizes, one of them empty."""
    rows = list(rows_of(features))
    parts = [rows[a:b] for a, b in cuts]
    rdd = spark.sparkContext.parallelize(parts, len(parts)).flatMap(lambda part: part)
    return spark.createDataFrame(rdd, SCHEMA)


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
    with pytest.raises(ValueError, match="include='c0': the features have no names"):
        SparkSparseLinearRegression("features", "squared", kappa=3, grid=CPU, include="c0").fit(table(spark))


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


def test_a_broken_partition_ends_with_the_message_of_its_rank(spark):
    holed = X.copy()
    holed[120, 4] = np.nan
    with pytest.raises(ValueError, match="NaN in column 4") as caught:
        SparkSparseLinearRegression("features", "squared", kappa=3, grid=CPU).fit(table(spark, holed))
    assert caught.value.__notes__[0].startswith("on rank 2 of 3")
    narrow = [row if k < 50 else row[:-1] for k, row in enumerate(X)]
    with pytest.raises(ValueError, match="features is 12 on rank 0 but 11 on rank 1"):
        SparkSparseLinearRegression("numbers", "squared", kappa=3, grid=CPU).fit(table(spark, narrow))


def test_what_cannot_be_fitted_is_refused(spark):
    frame = table(spark)
    with pytest.raises(ValueError, match="features_col='x': there is no such column; there are features, numbers"):
        SparkSparseLinearRegression("x", "squared").fit(frame)
    with pytest.raises(TypeError, match="features_col='squared' holds double; it must hold vectors or arrays"):
        SparkSparseLinearRegression("squared", "squared").fit(frame)
    with pytest.raises(ValueError, match="num_workers=9, but Spark can run only 3 tasks at once"):
        SparkSparseLinearRegression("features", "squared", num_workers=9).fit(frame)
    with pytest.raises(TypeError, match="kappa='many' must be an integer"):
        SparkSparseLinearRegression(kappa="many")
    with pytest.raises(TypeError, match=r"has no parameter 'verbose'|unexpected keyword argument 'verbose'"):
        SparkSparseSVC(verbose=1)
    assert set(psfit.spark.__all__) >= {f"Spark{entry.estimator}" for entry in LOSSES.values()}


def test_a_killed_worker_ends_the_fit_and_the_next_one_works(spark, tmp_path):
    frame = table(spark)
    estimator = SparkSparseLinearRegression("features", "squared", kappa=3, solver=LONG, grid=CPU)
    plain = estimator._make_plain().set_params(callback=die_at_work(tmp_path / "dead"))
    with pytest.raises(PeerLostError, match=r"Spark has ended the fit: .*crashed"):
        fit_on_spark(plain, estimator._select(frame), None)
    assert (
        SparkSparseLinearRegression("features", "squared", kappa=3, grid=CPU).fit(frame).to_local().result_.nodes == 2
    )


@pytest.mark.long
def test_a_session_that_stops_in_mid_fit_leaves_no_process(spark, tmp_path):
    estimator = SparkSparseLinearRegression("features", "squared", kappa=3, solver=LONG, grid=CPU)
    plain = estimator._make_plain().set_params(callback=work_slowly(tmp_path))
    samples = estimator._select(table(spark))
    stop_in_mid_fit(lambda: fit_on_spark(plain, samples, None), spark.stop, tmp_path, 2)


@pytest.mark.long
def test_a_stage_that_spark_tries_again_goes_on_from_the_checkpoint(spark, tmp_path):
    solver = BiCADMM(effort="low", tol=1e-12, max_iter=60, checkpoint=tmp_path / "kept", checkpoint_every=10)
    estimator = SparkSparseLinearRegression("features", "squared", kappa=3, solver=solver, grid=CPU)
    plain = estimator._make_plain().set_params(callback=die_at_work(tmp_path / "dead", 25))
    model = fit_on_spark(plain, estimator._select(table(spark)), None)
    assert first_after(tmp_path / "dead") == 21
    assert model.objective_ == pytest.approx(SparseLinearRegression(3).fit(X, Y).objective_, rel=1e-9)


@pytest.mark.long
def test_the_example_tunes_a_pipeline(tmp_path):
    program = [sys.executable, str(HERE.parents[1] / "examples/spark_pipeline.py"), str(tmp_path / "pipeline")]
    done = run(program)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(": ") for line in done.stdout.splitlines())
    assert len(said["features"].split(", ")) == 4
    assert int(said["right"].split()[0]) > 0.93 * 569
