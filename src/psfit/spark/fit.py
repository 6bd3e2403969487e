"""A fit on Spark: a barrier stage, in which each partition is a task and each task is a rank.

A barrier stage starts all its tasks together, and lets them exchange texts; that is how the ranks find each other. The
rows of a partition go to the Python process of its task, and no further.
"""

import pickle
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import BarrierTaskContext, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from psfit.comm import GridSpec, PeerLostError
from psfit.comm.meeting import Place, meet
from psfit.estimators.model import SparseModel
from psfit.estimators.ranks import Outcome, Partition, fit_rank, keep_failure, read_outcomes, spec_for_ranks
from psfit.spark.columns import read_features

SCHEMA = "rank int, place string, outcome binary"
ROW = pa.schema([("rank", pa.int32()), ("place", pa.string()), ("outcome", pa.binary())])
# What Spark says where a barrier stage would have to read partitions of several tables, as after a union.
NOT_IN_BARRIER = "SPARK-24820"
# The line that names what has failed: of a Python process its error, of an executor how it has ended.
RAISED = re.compile(r"(?:: )?([\w.]*(?:Error|Exception|Failure (?:\(.*\) )?Reason): .*)")


@dataclass(frozen=True)
class Work:
    """What every task does; `names` are those of the features, if they have any."""

    estimator: SparseModel
    spec: GridSpec
    names: list[str] | None = None

    @property
    def is_retried(self) -> bool:
        """Whether the stage is tried again after a process was lost: there is a checkpoint to go on from."""
        return self.estimator.solver is not None and self.estimator.solver.checkpoint is not None


def fit_on_spark(
    estimator: SparseModel, samples: DataFrame, workers: int | None, names: list[str] | None = None
) -> SparseModel:
    """The fitted estimator; the table has the columns `features`, `label` and perhaps `weight` and `offset`."""
    work = Work(estimator, spec_for_ranks(estimator), names)
    context = samples.sparkSession.sparkContext
    slots = _count_slots(context)
    held = samples.rdd.getNumPartitions()
    ranks = workers or min(held, slots)
    if ranks > slots:
        raise ValueError(
            f"num_workers={ranks}, but Spark can run only {slots} tasks at once; all ranks must run together: pass at "
            f"most {slots}, or give Spark more cores"
        )
    if held != ranks:
        samples = samples.repartition(ranks)
    try:
        rows = _run(work, samples)
    except Exception as error:
        # Of a session that was stopped pyspark raises whatever it stumbles over first.
        if not isinstance(error, (PySparkException, Py4JError)) and context._jsc is not None:
            raise
        if NOT_IN_BARRIER not in str(error):
            raise _describe(error, stopped=context._jsc is None) from None
        rows = _run(work, samples.repartition(ranks))
    outcomes = sorted((pickle.loads(row.outcome) for row in rows), key=lambda outcome: outcome.rank)
    places = {row.rank: row.place for row in rows}
    return read_outcomes(outcomes, [places[rank] for rank in sorted(places)])


def _count_slots(context: SparkContext) -> int:
    """How many tasks Spark can run at once: a task may take several cores. For more ranks it would wait for minutes."""
    scheduler = context._jsc.sc()
    slots = scheduler.maxNumConcurrentTasks(scheduler.resourceProfileManager().defaultResourceProfile())
    # Before any executor has come, Spark knows a default only.
    return int(slots or context.defaultParallelism)


def _run(work: Work, samples: DataFrame) -> list[Any]:
    """The rows of all ranks.

    Spark never tries the last stage of a job again if it is a barrier stage, and tries earlier ones several times. So a
    shuffle follows where there is a checkpoint to go on from; without one a lost process ends the fit.
    """
    rows = samples.mapInArrow(partial(_run_task, work), SCHEMA, barrier=True)
    return (rows.repartition(1) if work.is_retried else rows).collect()


def _run_task(work: Work, batches: Iterable[Any]) -> Iterator[Any]:
    """One rank; runs in a Python process of an executor, and gives one row."""
    context = BarrierTaskContext.get()
    hosts = tuple(info.address.rpartition(":")[0] or info.address for info in context.getTaskInfos())
    place = Place.among(hosts, context.partitionId())
    outcome = keep_failure(place.rank, lambda: _fit(work, context, place, batches))
    if isinstance(outcome.failure, PeerLostError) and work.is_retried:
        # A task that succeeds after the stage has failed would be left out when Spark tries the stage again, and the
        # others would wait for it.
        raise outcome.failure
    row = {"rank": place.rank, "place": hosts[place.rank], "outcome": pickle.dumps(outcome)}
    yield pa.RecordBatch.from_pylist([row], schema=ROW)


def _fit(work: Work, context: BarrierTaskContext, place: Place, batches: Iterable[Any]) -> Outcome:
    def gather() -> list[Partition]:
        return [_read(batch) for batch in batches]

    spec = work.spec
    gpus = context.resources().get("gpu")
    if gpus is not None and spec.device in ("auto", "cuda"):
        spec = replace(spec, device=f"cuda:{gpus.addresses[0]}")
    with meet(place, lambda text: context.allGather(text)[0], spec):
        return fit_rank(work.estimator, spec, gather, place.rank, names=work.names)


def _read(batch: pa.RecordBatch) -> Partition:
    label, weight, offset = (
        batch[name].to_numpy(zero_copy_only=False) if name in batch.schema.names else None
        for name in ("label", "weight", "offset")
    )
    return Partition(read_features(batch["features"]), label, weight, offset)


def _describe(error: Exception, stopped: bool) -> PeerLostError:
    """What has happened to the stage, in one line: tasks end with an error only if their process is lost or killed."""
    if stopped:
        return PeerLostError("the Spark session was stopped during the fit")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [found.group(1) for found in map(RAISED.match, lines) if found]
    return PeerLostError(f"Spark has ended the fit: {(raised[-1:] or lines or ['no reason was given'])[0]}")
