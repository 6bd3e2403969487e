"""How ranks find each other that an engine such as Spark, Dask or Ray has started.

    rank 0        listens on a free port, and makes a token that nobody can guess
    the engine    brings address and token from rank 0 to the others, over its own channels
    every rank    joins the part of the store that the token names, works, and leaves

If all ranks are on one host, rank 0 listens on the loopback interface only. Otherwise each rank uses the network
interface on which it reaches rank 0: names of hosts often lead to an address that others cannot reach.

The token keeps apart jobs that use the same port one after the other. It is no key: what the ranks send each other is
encrypted only if gloo is told to (GLOO_DEVICE_TRANSPORT=TCP_TLS), and most builds of torch refuse that.
"""

import fcntl
import json
import os
import socket
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch.distributed as dist

from psfit.comm import process_group
from psfit.comm.grid import GridSpec, RemoteError, choose_device

LOOPBACK = "127.0.0.1"
# The system's request for the address of an interface.
GET_ADDRESS = 0x8915
# What rank 0 tells in the place of an invitation.
FAILURE = "failure"


@dataclass(frozen=True)
class Place:
    """A rank of a job: its number, the number of ranks, its number among those on its host, and where rank 0 listens.

    Only rank 0 needs to know the last one.
    """

    rank: int
    size: int
    local_rank: int
    address: str

    @classmethod
    def among(cls, hosts: Sequence[str], rank: int) -> "Place":
        """The place of a rank if the hosts of all ranks are known, in order of rank."""
        address = LOOPBACK if len(set(hosts)) == 1 else hosts[0]
        return cls(rank, len(hosts), list(hosts[:rank]).count(hosts[rank]), address)


@dataclass(frozen=True)
class Invitation:
    """What rank 0 tells the others: its address, its port and the token."""

    address: str
    port: int
    token: str


@contextmanager
def meet(
    place: Place,
    share: Callable[[str], str],
    spec: GridSpec,
    is_given_up: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Join the other ranks, so that torch.distributed connects them, and leave them at the end.

    Parameters
    ----------
    place : Place
        This rank.
    share : callable
        Given a text, the text of rank 0: the engine's own channel. Every rank calls it once.
    spec : GridSpec
        The device (NCCL connects GPUs, gloo connects CPUs), and how many seconds to wait for the others, now and in
        each exchange.
    is_given_up : callable
        Whether the engine has given up the job, asked while this rank waits for the others to come.
    """
    if place.size == 1:
        yield
        return
    with socket.socket() as listener:
        invitation = _exchange(place, share, listener)
        store = _open_store(invitation, place, listener, spec.timeout)
    settings = {"LOCAL_RANK": str(place.local_rank), "GLOO_SOCKET_IFNAME": _interface(invitation)}
    with _set_environment(settings):
        try:
            device = choose_device(spec.device, None)
            process_group.join(store, place.rank, place.size, device, spec.timeout, is_given_up)
            yield
        finally:
            # Threads of a group that is not left keep a worker of the engine from ending.
            process_group.leave()
            if dist.is_initialized():
                dist.destroy_process_group()


def _exchange(place: Place, share: Callable[[str], str], listener: socket.socket) -> Invitation:
    """The invitation of rank 0. An error here must not keep the others waiting, who need the text of rank 0."""
    text, failure = "", None
    try:
        if dist.is_initialized():
            raise RuntimeError("this process is a rank of another job; a process can take part in one fit at a time")
        if place.rank == 0:
            listener.bind((place.address, 0))
            listener.listen(place.size)
            text = json.dumps(asdict(Invitation(place.address, listener.getsockname()[1], uuid.uuid4().hex)))
    except Exception as error:
        failure = error
        text = json.dumps({FAILURE: f"{type(error).__name__}: {error} (rank 0 listens on {place.address})"})
    found = json.loads(share(text))
    if failure is not None:
        raise failure
    if FAILURE in found:
        raise RemoteError(f"rank 0 cannot be reached: {found[FAILURE]}")
    return Invitation(**found)


def _open_store(invitation: Invitation, place: Place, listener: socket.socket, timeout: float) -> dist.Store:
    first = place.rank == 0
    store = dist.TCPStore(
        invitation.address,
        invitation.port,
        place.size,
        is_master=first,
        timeout=timedelta(seconds=timeout),
        wait_for_workers=False,
        # The store closes the socket itself.
        master_listen_fd=listener.detach() if first else None,
    )
    return dist.PrefixStore(invitation.token, store)


def _interface(invitation: Invitation) -> str:
    """The name of the network interface on which this rank reaches rank 0; empty if the system does not tell."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((invitation.address, invitation.port))
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                if _interface_address(probe, name) == own:
                    return name
    return ""


def _interface_address(probe: socket.socket, name: str) -> str:
    reply = fcntl.ioctl(probe.fileno(), GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
    return socket.inet_ntoa(reply[20:24])


@contextmanager
def _set_environment(settings: dict[str, str]) -> Iterator[None]:
    """Set variables that the user has not set, for a while."""
    own = {name: value for name, value in settings.items() if value and name not in os.environ}
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            os.environ.pop(name, None)
