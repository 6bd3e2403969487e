"""A fit on the workers of a Dask cluster, seen from the user's process.

Every partition is computed first, where the scheduler likes. Then each process that holds partitions becomes a rank,
and its partitions are its samples: none of them moves.
"""

import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlparse

from dask.delayed import Delayed
from distributed import CancelledError, Client, Future, MultiLock, Variable, wait
from distributed.comm import CommClosedError

from psfit.comm import PeerLostError
from psfit.comm.meeting import LOOPBACK, Place
from psfit.comm.peers import own_place
from psfit.dask.rank import Job, give_up, run_rank, share_name
from psfit.estimators.model import SparseModel
from psfit.estimators.ranks import Outcome, read_outcomes, spec_for_ranks

# Seconds between two looks at the ranks, and at the workers.
PAUSE, WATCH = 0.02, 1.0
# Seconds for ranks that are given up to end, and for the scheduler to notice that a worker has gone.
PATIENCE = 10.0
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


def fit_on_dask(estimator: SparseModel, partitions: Sequence[Delayed], client: Client) -> SparseModel:
    """The fitted estimator; `partitions` give objects of `Partition`."""
    job = Job(uuid.uuid4().hex, estimator, spec_for_ranks(estimator))
    try:
        members = _place_partitions(client, client.compute(list(partitions)))
        # A process can be a rank of one fit at a time.
        with MultiLock([f"psfit-{member.process}" for member in members], client=client):
            outcomes = _run(client, job, members)
    except (CommClosedError, CancelledError) as error:
        raise PeerLostError(f"the Dask cluster was closed or lost during the fit ({type(error).__name__})") from None
    return read_outcomes(outcomes, [member.address for member in members])


def _run(client: Client, job: Job, members: list[Member]) -> list[Outcome]:
    """The outcomes of all ranks."""
    hosts = tuple(member.host for member in members)
    ranks = [
        client.submit(
            run_rank,
            job,
            Place(rank, hosts),
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
    if client.status != "running":
        raise PeerLostError("the Dask client was closed during the fit")
    lost = [address for address in addresses if address not in client.nthreads()]
    if lost:
        ranks = ", ".join(f"rank {addresses.index(address)} on worker {address}" for address in lost)
        raise PeerLostError(
            f"{ranks} was lost during the fit; its log has the cause (often the memory limit). Fit again"
        )


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
