"""A federation on one machine: the server and the clients of a real one, with pipes in place of a network."""

import multiprocessing
import queue
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from psfit.estimators.model import SparseModel
from psfit.estimators.persistence.model_file import load
from psfit.federated.identities import Identity, Roster
from psfit.federated.job import Job, LocalData
from psfit.federated.messages import Message
from psfit.federated.questions import Found, from_facts
from psfit.federated.server import Server
from psfit.federated.settings import Outcome, ServerSettings
from psfit.federated.sum_log import SumLog
from psfit.federated.worker import Policy, Worker

# Clients are processes that are forked from one that has imported PsFiT once, and nothing else.
PROCESSES = multiprocessing.get_context("forkserver")
PRELOADED = ["psfit.federated.simulation", "psfit.federated.preload"]


@dataclass(frozen=True)
class Member:
    """What the process of a client needs: who it is, whom it trusts, and its samples."""

    identity: Identity
    roster: Roster | None
    policy: Policy
    data: LocalData


class PipeTransport:
    """Processes of clients, and pipes to them. A client that has been killed can be started again."""

    def __init__(self, members: Mapping[str, Member]) -> None:
        self.members = dict(members)
        # An empty reply tells that the process of a client has ended by itself.
        self.replies: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._killed: set[str] = set()
        self.processes: dict[str, multiprocessing.process.BaseProcess] = {}
        self._pipes: dict[str, Connection] = {}
        PROCESSES.set_forkserver_preload(PRELOADED)
        for name in members:
            self.start(name)

    def start(self, name: str) -> None:
        """Start the process of a client."""
        here, there = PROCESSES.Pipe()
        process = PROCESSES.Process(target=_serve_pipe, args=(there, self.members[name]), daemon=True)
        process.start()
        there.close()
        self._killed.discard(name)
        self.processes[name], self._pipes[name] = process, here
        threading.Thread(target=self._read, args=(name, here), daemon=True).start()

    def kill(self, name: str) -> None:
        """Kill the process of a client at once."""
        self._killed.add(name)
        self.processes[name].kill()
        self.processes[name].join()

    def close(self) -> None:
        """End all processes."""
        for name in self.processes:
            self.kill(name)

    def send(self, name: str, message: Message) -> None:
        try:
            self._pipes[name].send_bytes(message.pack())
        except OSError:
            # The process has ended; the server will miss its reply.
            return

    def receive(self, timeout: float) -> tuple[str, Message] | None:
        try:
            name, data = self.replies.get(timeout=timeout)
        except queue.Empty:
            return None
        if not data:
            process = self.processes[name]
            process.join(1.0)
            raise RuntimeError(
                f"the process of client {name!r} ended by itself with exit code {process.exitcode}; its own message is "
                "above"
            )
        return name, Message.unpack(data)

    def _read(self, name: str, pipe: Connection) -> None:
        try:
            while True:
                self.replies.put((name, pipe.recv_bytes()))
        except (EOFError, OSError):
            if name not in self._killed and pipe is self._pipes.get(name):
                self.replies.put((name, b""))


def _serve_pipe(pipe: Connection, member: Member) -> None:
    """The process of a client: answer each message in a thread of its own."""
    worker = Worker(member.identity, lambda job: member.data, member.roster, member.policy)
    lock = threading.Lock()

    def answer(data: bytes) -> None:
        reply = worker.handle(Message.unpack(data)).pack()
        with lock:
            pipe.send_bytes(reply)

    try:
        while True:
            threading.Thread(target=answer, args=(pipe.recv_bytes(),), daemon=True).start()
    except (EOFError, OSError):
        return


@dataclass(frozen=True)
class Simulated:
    """The model and the answers to questions, which all clients have, and how the run ended."""

    model: SparseModel
    outcome: Outcome

    @property
    def answers(self) -> dict[str, Found]:
        """The answers to the questions of the job, by the names of the questions."""
        return {kind: from_facts(kind, facts, self.model) for kind, facts in self.outcome.answers.items()}


def simulate(
    job: Job,
    data: Mapping[str, LocalData],
    settings: ServerSettings | None = None,
    checkpoint: Path | None = None,
    connect: Callable[[Mapping[str, Member]], PipeTransport] = PipeTransport,
) -> Simulated:
    """Run a job over clients on this machine, each a process of its own.

    Parameters
    ----------
    job : Job
        What to fit.
    data : dict of str to LocalData
        The samples of each client, by its name.
    settings : ServerSettings, optional
        Secure sums or plain ones, the fewest clients of a sum, timeouts.
    checkpoint : Path, optional
        The folder of the server's checkpoint. A run that was interrupted goes on from it.
    connect : callable, optional
        Makes the transport.

    Returns
    -------
    Simulated
        ``model`` is the fitted estimator, ``outcome`` what the server knows.
    """
    settings = settings or ServerSettings()
    about = {"names": list(data), "secure": settings.secure, "job": job.as_facts()}
    log = SumLog(checkpoint, about)
    transport = connect(make_members(data, settings))
    try:
        outcome = Server(list(data), job, transport, log, settings).run()
    finally:
        transport.close()
    return Simulated(unpack_model(outcome.model), outcome)


def make_members(
    data: Mapping[str, LocalData], settings: ServerSettings, may_leave: Collection[str] = ()
) -> dict[str, Member]:
    """A client with a new identity for each set of samples; the others may go on without those in `may_leave`."""
    policy = Policy(settings.secure, settings.min_clients)
    if not settings.secure:
        return {name: Member(Identity(name, b""), None, policy, own) for name, own in data.items()}
    identities = {name: Identity.create(name, name in may_leave) for name in data}
    roster = Roster.create(one.public for one in identities.values())
    return {name: Member(identities[name], roster, policy, own) for name, own in data.items()}


def unpack_model(content: bytes) -> SparseModel:
    """The model in the bytes of its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.psfit")
        path.write_bytes(content)
        return load(path)
