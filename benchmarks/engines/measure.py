"""Fits of one engine, with the engine started beforehand; prints a line of JSON for each fit.

Arguments: the engine, the folder of Parquet files, how many fits. The first fit meets fresh workers, which import torch
and PsFiT in it; the later ones find them ready, where the engine keeps its workers.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil

# Workers of Dask import this file when they start, before the clock does; so it imports PsFiT in functions only.
RANKS, KAPPA, LABEL = 2, 5, "y"
SAMPLE = 0.1


class Meter:
    """CPU seconds of this process and of all that it has started, read several times a second."""

    def __init__(self) -> None:
        self._used: dict[tuple[int, float], float] = {}
        threading.Thread(target=self._watch, daemon=True).start()

    def read(self) -> float:
        """The sum so far; a process that has ended counts with what was last read."""
        own = psutil.Process()
        for process in [own, *own.children(recursive=True)]:
            try:
                times = process.cpu_times()
                self._used[process.pid, process.create_time()] = times.user + times.system
            except psutil.NoSuchProcess:
                continue
        return sum(list(self._used.values()))

    def _watch(self) -> None:
        while True:
            self.read()
            time.sleep(SAMPLE)


class Start:
    """The seconds in which an engine starts, without the import of its package."""

    seconds = 0.0

    def begin(self) -> None:
        """The next statement starts the engine."""
        self._began = time.perf_counter()

    def end(self) -> None:
        """The engine runs."""
        self.seconds = time.perf_counter() - self._began


STARTED = Start()


@contextmanager
def dask_fit(folder: str) -> Iterator[Callable[[], Any]]:
    """A cluster of two processes."""
    import dask.dataframe as dd
    from distributed import Client

    from psfit import GridSpec
    from psfit.dask import DaskSparseLogisticRegression

    grid = GridSpec(device="cpu")
    STARTED.begin()
    with Client(n_workers=RANKS, threads_per_worker=1, dashboard_address=":0") as client:
        STARTED.end()
        table = dd.read_parquet(folder, index=False)
        features = [name for name in table.columns if name != LABEL]
        yield lambda: DaskSparseLogisticRegression(KAPPA, grid=grid, client=client).fit(table[features], table[LABEL])


@contextmanager
def spark_fit(folder: str) -> Iterator[Callable[[], Any]]:
    """A session with two slots that has run a query."""
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import SparkSession

    from psfit import GridSpec
    from psfit.spark import SparkSparseLogisticRegression

    grid = GridSpec(device="cpu")
    STARTED.begin()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{RANKS}]").config("spark.ui.enabled", "false")
    session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    STARTED.end()
    table = session.read.parquet(folder)
    features = [name for name in table.columns if name != LABEL]
    table.selectExpr(f"sum({LABEL})").collect()
    samples = VectorAssembler(inputCols=features, outputCol="features").transform(table)
    estimator = SparkSparseLogisticRegression("features", LABEL, kappa=KAPPA, grid=grid, num_workers=RANKS)
    yield lambda: estimator.fit(samples).to_local()
    session.stop()


@contextmanager
def ray_fit(folder: str) -> Iterator[Callable[[], Any]]:
    """A Ray with two CPUs that has read the files."""
    import tempfile

    import ray
    import ray.data
    from ray.train import RunConfig

    from psfit import GridSpec, SparseLogisticRegression
    from psfit.ray import fit_on_ray

    STARTED.begin()
    ray.init(num_cpus=RANKS, include_dashboard=False, log_to_driver=False)
    STARTED.end()
    dataset = ray.data.read_parquet(folder).materialize()
    with tempfile.TemporaryDirectory() as storage:
        run = RunConfig(storage_path=storage)
        estimator = SparseLogisticRegression(KAPPA, grid=GridSpec(device="cpu"))
        yield lambda: fit_on_ray(estimator, dataset, RANKS, label=LABEL, run_config=run)
    ray.shutdown()


ENGINES = {"dask": dask_fit, "spark": spark_fit, "ray": ray_fit}


def main(engine: str, folder: str, fits: int) -> None:
    """Measure, and print."""
    with ENGINES[engine](folder) as fit:
        meter = Meter()
        for number in range(1, fits + 1):
            used, began = meter.read(), time.perf_counter()
            model = fit()
            seconds, used = time.perf_counter() - began, meter.read() - used
            row = {"engine": engine, "fit": number, "seconds": seconds, "cpu": used, "objective": model.objective_}
            print("measured", json.dumps(row | {"nodes": model.result_.nodes, "start": STARTED.seconds}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
