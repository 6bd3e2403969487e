"""A real Spark with broken data, lost processes and too few slots: a clear error, and no process left over."""

import os
import sys

import numpy as np
import pytest
from engine_jobs import (
    CPU,
    CUTS,
    LONG,
    X,
    Y,
    die_at_work,
    first_after,
    stop_in_mid_fit,
    wait_for_end,
    work_slowly,
)
from launch import run
from pyspark.sql import SparkSession
from spark_samples import start_session, table

import psfit.spark
from psfit import (
    BiCADMM,
    PeerLostError,
    SparseLinearRegression,
)
from psfit.estimators.registry import LOSSES
from psfit.spark import (
    SparkSparseLinearRegression,
    SparkSparseSVC,
)
from psfit.spark.fit import fit_on_spark

# Spark's own: it knows pandas 2, and its sockets are closed by the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark.*"),
]

# A fit where four cores run two tasks.
SEVERAL_CORES = """
import os, sys
from pyspark.sql import SparkSession
from psfit.spark import SparkSparseLinearRegression

os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[4]").config("spark.task.cpus", "2").getOrCreate()
rows = [([float(k), float(k % 7)], float(k)) for k in range(40)]
table = spark.createDataFrame(rows, ["features", "label"]).repartition(4)
print(SparkSparseLinearRegression(kappa=1).fit(table).to_local().result_.nodes)
spark.stop()
"""


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
    with pytest.raises(TypeError, match="num_workers=0 must be an integer of at least 1, or None"):
        SparkSparseLinearRegression("features", "squared", num_workers=0)
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


def kill_executor(folder):
    """A callback that notes the process, and kills the executor of the first one that works."""
    path = str(folder)

    def callback(progress):
        import signal

        import psutil

        open(f"{path}/{os.getpid()}", "a").close()
        try:
            os.mkdir(f"{path}-killed")
        except FileExistsError:
            return
        # The process of a task is a child of the daemon that the executor has started.
        os.kill(psutil.Process().parent().ppid(), signal.SIGKILL)

    return callback


@pytest.mark.long
def test_a_killed_executor_is_named(tmp_path):
    """Two executors are processes of their own, as on a cluster."""
    if SparkSession.getActiveSession() is not None:
        SparkSession.getActiveSession().stop()
    cluster = start_session("local-cluster[2,1,1024]", real=True)
    try:
        frame = table(cluster, cuts=CUTS[::2])
        estimator = SparkSparseLinearRegression("features", "squared", kappa=3, solver=LONG, grid=CPU)
        plain = estimator._make_plain().set_params(callback=kill_executor(tmp_path))
        with pytest.raises(PeerLostError, match=r"Spark has ended the fit: ExecutorLostFailure \(executor \d"):
            fit_on_spark(plain, estimator._select(frame), None)
        wait_for_end([int(path.name) for path in tmp_path.iterdir()])
        again = SparkSparseLinearRegression("features", "squared", kappa=3, grid=CPU).fit(frame)
        assert again.to_local().result_.samples == len(X)
    finally:
        cluster.stop()


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
def test_ranks_are_as_many_as_tasks_with_several_cores(tmp_path):
    """Spark waits minutes for more; a session keeps its cores per task, so this one has a process of its own."""
    program = tmp_path / "fit.py"
    program.write_text(SEVERAL_CORES)
    done = run([sys.executable, str(program)])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "2"
