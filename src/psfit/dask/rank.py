"""What runs on a Dask worker: one rank of a fit."""

import atexit
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from distributed import Client, Variable, get_client, get_worker

from psfit.comm import GridSpec
from psfit.comm.meeting import Place, meet
from psfit.comm.rendezvous import GivenUpError
from psfit.common.progress import Progress
from psfit.estimators.model import SparseModel
from psfit.estimators.ranks import Outcome, Partition, fit_rank, keep_failure

# Seconds between two looks for what rank 0 has told.
PAUSE = 0.2
# Names of the fits that the user's process has given up; the workers' event loops add to it while a rank works.
GIVEN_UP: set[str] = set()


@dataclass(frozen=True)
class Job:
    """A fit on several workers: its name, what to fit, the grid to build, and how tables are read."""

    name: str
    estimator: SparseModel
    spec: GridSpec
    rules: Mapping[str, Any] | None = None


def run_rank(job: Job, place: Place, partitions: Sequence[Partition]) -> Outcome:
    """Meet the other ranks, and fit."""
    _end_quickly()
    try:
        return keep_failure(place.rank, lambda: _fit(job, place, partitions))
    finally:
        GIVEN_UP.discard(job.name)


def _fit(job: Job, place: Place, partitions: Sequence[Partition]) -> Outcome:
    worker = get_worker()
    tasks, key = worker.state.tasks, worker.get_current_task()

    def is_given_up() -> bool:
        # Without the user's process, nobody needs the task any more, and the scheduler cancels it.
        return job.name in GIVEN_UP or key not in tasks or tasks[key].state == "cancelled"

    job.estimator.set_params(callback=_stop_if(is_given_up, job.estimator.callback))
    with meet(place, lambda text: _share(job.name, place, text, is_given_up), job.spec, is_given_up):
        return fit_rank(job.estimator, job.spec, lambda: partitions, place.rank, job.rules)


def give_up(name: str) -> None:
    """End the fit of this name on this worker, as soon as it can."""
    GIVEN_UP.add(name)


@cache
def _end_quickly() -> None:
    """Let this process end without a delay.

    When Python ends, it searches all objects for garbage, several times. With torch and scikit-learn that takes
    seconds, and a nanny kills a worker that has not ended after four. Frozen objects are not searched.
    """
    atexit.register(gc.freeze)


def share_name(job: str) -> str:
    """The name of the variable through which rank 0 tells the others where it is."""
    return f"psfit-{job}"


def _share(job: str, place: Place, text: str, is_given_up: Callable[[], bool]) -> str:
    """The text of rank 0, through the scheduler."""
    client: Client = get_client()
    variable = Variable(share_name(job), client=client)
    if place.rank == 0:
        variable.set(text)
        return text
    while True:
        try:
            return str(variable.get(timeout=PAUSE))
        except TimeoutError:
            if is_given_up():
                raise GivenUpError("the fit was given up before rank 0 had started") from None
            time.sleep(PAUSE)


def _stop_if(is_given_up: Callable[[], bool], callback: Any) -> Callable[[Progress], bool]:
    """A callback that also ends a fit which is given up."""

    def watch(progress: Progress) -> bool:
        asked = callback is not None and bool(callback(progress))
        return asked or is_given_up()

    return watch
