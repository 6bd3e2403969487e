"""A federation in one process: the clients are threads. It costs no start of processes, so it serves most tests."""

import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from psfit.federated import Job, LocalData, ServerSettings
from psfit.federated.messages import Message
from psfit.federated.server import Server
from psfit.federated.simulation import Member, Simulated, make_members, unpack_model
from psfit.federated.sum_log import SumLog
from psfit.federated.worker import Worker


class Threads:
    """Clients that answer in threads; `kill` forgets all that a client knows, and `start` makes it anew."""

    def __init__(self, members: Mapping[str, Member]) -> None:
        self.members, self.workers = dict(members), dict[str, Worker]()
        self.replies: queue.Queue[tuple[str, bytes]] = queue.Queue()
        for name in members:
            self.start(name)

    def start(self, name: str) -> None:
        member = self.members[name]
        self.workers[name] = Worker(member.identity, lambda job: member.data, member.roster, member.policy)

    def kill(self, name: str) -> None:
        worker = self.workers.pop(name)
        if worker.run is not None:
            worker.run.link.end("killed")

    def send(self, name: str, message: Message) -> None:
        # Messages travel as bytes, as over a network.
        if name in self.workers:
            threading.Thread(target=self._answer, args=(name, self.workers[name], message.pack()), daemon=True).start()

    def receive(self, timeout: float) -> tuple[str, Message] | None:
        try:
            name, data = self.replies.get(timeout=timeout)
        except queue.Empty:
            return None
        return name, Message.unpack(data)

    def _answer(self, name: str, worker: Worker, data: bytes) -> None:
        reply = worker.handle(Message.unpack(data)).pack()
        if self.workers.get(name) is worker:
            self.replies.put((name, reply))


def run_federation(
    job: Job,
    data: Mapping[str, LocalData],
    settings: ServerSettings | None = None,
    *,
    connect: Callable[[Mapping[str, Member]], Threads] = Threads,
    may_leave: tuple[str, ...] = (),
    folder: Path | None = None,
) -> Simulated:
    """As `psfit.federated.simulate`, with threads as clients."""
    settings = settings or ServerSettings()
    log = SumLog(folder, {"job": job.as_facts()})
    outcome = Server(list(data), job, connect(make_members(data, settings, may_leave)), log, settings).run()
    return Simulated(unpack_model(outcome.model), outcome)
