"""A fit on the workers of a Dask cluster, seen from the user's process.

Every partition is computed first, where the scheduler likes. Then each process that holds partitions becomes a rank,
and its partitions are its samples: none of them moves.
"""

import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlparse

from dask.delayed import Delayed
from distributed import CancelledError, Client, Future, Semaphore, Variable, wait
from distributed.comm import CommClosedError

from psfit.comm import PeerLostError
from psfit.comm.meeting import LOOPBACK, Place
from psfit.comm.peers import own_place
from psfit.dask.rank import Job, give_up, run_rank, share_name
from psfit.estimators.model import SparseModel
from psfit.estimators.ranks import Outcome, read_outcomes, spec_for_ranks

# Seconds between two looks at the ranks, and at the workers. A nanny needs longer to start a lost worker again, perhaps
# at the same address.
PAUSE, WATCH = 0.02, 0.25
# Seconds for ranks that are given up to end, and for the scheduler to notice that a worker has gone.
PATIENCE = 10.0
# Seconds for other workers to come in the place of lost ones.
RETURN = 60.0
RUNNING = "pending"


@dataclass(frozen=True)
class Member:
    """A process that holds partitions: the address of its worker, and its partitions in order."""

    address: str
    process: str
    partitions: list[Future]

    @property
    def host(self) -> str:
        """The host of the worker."""
        return urlparse(self.address).hostname or LOOPBACK if "inproc" not in self.address else LOOPBACK


def make_job(estimator: SparseModel, rules: Mapping[str, Any] | None = None) -> Job:
    """A fit of this estimator; with `rules`, the partitions are tables that are read by them."""
    return Job(uuid.uuid4().hex, estimator, spec_for_ranks(estimator), rules)


def fit_on_dask(job: Job, partitions: Sequence[Delayed], client: Client, restarts: int = 0) -> SparseModel:
    """The fitted estimator; `partitions` give objects of `Partition`. Lost workers are replaced `restarts` times."""
    if client.asynchronous:
        raise ValueError("client: it is asynchronous, and a fit waits for its answer; pass Client(asynchronous=False)")
    try:
        members = _place_partitions(client, client.compute(list(partitions)))
        for attempt in range(restarts):
            try:
                return _fit(client, replace(job, name=f"{job.name}-{attempt}"), members)
            except PeerLostError:
                members = _replace_lost(client, members)
        return _fit(client, job, members)
    except (CommClosedError, CancelledError) as error:
        raise PeerLostError(f"the Dask cluster was closed or lost during the fit ({type(error).__name__})") from None


def _fit(client: Client, job: Job, members: list[Member]) -> SparseModel:
    with _reserve(client, [member.process for member in members]):
        outcomes = _run(client, job, members)
    return read_outcomes(outcomes, [member.address for member in members])


@contextmanager
def _reserve(client: Client, processes: list[str]) -> Iterator[None]:
    """Wait until no other fit has a rank in these processes: each can be a rank of one fit at a time.

    If the user's process is killed, the scheduler frees them after a while (``distributed.scheduler.locks``), which it
    would not do for a `MultiLock`. All fits ask in the same order, so that none waits for one that waits for it.
    """
    there = {"scheduler_rpc": client.scheduler, "loop": client.loop}
    locks = [Semaphore(1, f"psfit-{process}", **there) for process in sorted(set(processes))]
    with ExitStack() as stack:
        for lock in locks:
            if hasattr(lock, "refresh_callback"):
                stack.callback(client.loop.add_callback, lock.refresh_callback.stop)
        for lock in locks:
            lock.acquire()
            stack.callback(_release, lock)
        yield


def _release(lock: Semaphore) -> None:
    # The cluster itself may be gone.
    with suppress(Exception):
        lock.release()


def _run(client: Client, job: Job, members: list[Member]) -> list[Outcome]:
    """The outcomes of all ranks."""
    hosts = [member.host for member in members]
    ranks = [
        client.submit(
            run_rank,
            job,
            Place.among(hosts, rank),
            member.partitions,
            workers=[member.address],
            key=f"psfit-fit-{job.name}-{rank}",
            pure=False,
        )
        for rank, member in enumerate(members)
    ]
    addresses = [member.address for member in members]
    with _end_together(client, job.name, ranks, addresses):
        return _wait_for(client, ranks, addresses)


def _place_partitions(client: Client, futures: list[Future]) -> list[Member]:
    """The processes that hold the partitions, in the order of their first partition."""
    wait(futures)
    # An error in a partition is raised here, as it was on its worker.
    for future in futures:
        if future.status != "finished":
            future.result()
    holders = client.who_has(futures)
    missing = [future for future in futures if not holders[future.key]]
    if missing:
        raise PeerLostError(f"{len(missing)} of {len(futures)} partitions were lost with their workers; fit again")
    chosen = {future.key: sorted(holders[future.key])[0] for future in futures}
    processes = client.run(own_place, workers=sorted(set(chosen.values())))
    groups: dict[str, list[Future]] = defaultdict(list)
    for future in futures:
        groups[processes[chosen[future.key]]].append(future)
    return [Member(chosen[held[0].key], process, held) for process, held in groups.items()]


def _replace_lost(client: Client, members: list[Member]) -> list[Member]:
    """The same ranks with the same partitions, on other workers where theirs have gone, as soon as there are enough.

    The checkpoints of a rank belong to its partitions. Dask computes those again that were lost.
    """
    _require_running(client)
    end = time.monotonic() + RETURN
    while True:
        processes = client.run(own_place, on_error="ignore")
        # A worker that was started again at its old address keeps its rank.
        taken = {processes[member.address] for member in members if member.address in processes}
        free = {process: address for address, process in processes.items() if process not in taken}
        lost = [rank for rank, member in enumerate(members) if member.address not in processes]
        if len(free) >= len(lost):
            break
        if time.monotonic() > end:
            raise PeerLostError(
                f"{len(lost)} worker(s) were lost during the fit, and {len(free)} are free to take their places; start "
                "workers, and fit again"
            )
        time.sleep(WATCH)
    found = dict(zip(lost, free.values(), strict=False))
    addresses = [found.get(rank, member.address) for rank, member in enumerate(members)]
    return [
        replace(member, process=processes[address], address=address)
        for member, address in zip(members, addresses, strict=True)
    ]


def _wait_for(client: Client, ranks: list[Future], addresses: list[str]) -> list[Outcome]:
    """The outcomes of all ranks; raises an error as soon as one of them is lost."""
    looked = time.monotonic()
    while any(rank.status == RUNNING for rank in ranks):
        if time.monotonic() - looked > WATCH:
            _require_workers(client, addresses)
            looked = time.monotonic()
        time.sleep(PAUSE)
    _require_workers(client, addresses)
    return [rank.result() for rank in ranks]


def _require_workers(client: Client, addresses: list[str]) -> None:
    """Raise an error if a worker has gone."""
    _require_running(client)
    lost = [address for address in addresses if address not in client.nthreads()]
    if lost:
        ranks = ", ".join(f"rank {addresses.index(address)} on worker {address}" for address in lost)
        raise PeerLostError(
            f"{ranks} was lost during the fit; its log has the cause (often the memory limit). Fit again"
        )


def _require_running(client: Client) -> None:
    if client.status != "running":
        raise PeerLostError("the Dask client was closed during the fit")


@contextmanager
def _end_together(client: Client, job: str, ranks: list[Future], addresses: list[str]) -> Iterator[None]:
    """At an error or an interrupt, end the ranks that still work."""
    try:
        yield
    except BaseException:
        # The cluster itself may be gone.
        with suppress(Exception):
            alive = [address for address in addresses if address in client.nthreads()]
            client.run(give_up, job, workers=alive)
            left = [rank for rank, address in zip(ranks, addresses, strict=True) if address in alive]
            wait(left, timeout=PATIENCE)
        with suppress(Exception):
            client.cancel(ranks)
        raise
    finally:
        with suppress(Exception):
            Variable(share_name(job), client=client).delete()
