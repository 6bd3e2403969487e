"""The ServerApp: PsFiT's server with Flower's messages as its transport."""

import json
import logging
import os
import time
from pathlib import Path

from flwr.app import Context
from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid, ServerApp

from psfit.federated.files import ANSWERS, FAILURE, MODEL, ORDER, RESULT, SERVER_APP, SUMS, write_whole
from psfit.federated.flower_client import make_content, read_content
from psfit.federated.job import Job
from psfit.federated.messages import START, Message
from psfit.federated.server import Server
from psfit.federated.settings import ServerSettings
from psfit.federated.sum_log import SumLog

LOG = logging.getLogger("psfit.federated.server")
# Seconds between two looks for replies, and between two looks for new nodes.
POLL = 0.2
LOOK = 2.0


app = ServerApp()


class FlowerTransport:
    """Messages to SuperNodes. Which client a node serves is known from its first reply."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.nodes: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._asked: dict[int, float] = {}
        self._inviting: dict[str, int] = {}
        self._arrived: list[tuple[str, Message]] = []

    def send(self, name: str, message: Message) -> None:
        online = set(self.grid.get_node_ids())
        self.nodes = {known: node for known, node in self.nodes.items() if node in online}
        self._inviting = {number: node for number, node in self._inviting.items() if node in online}
        if name in self.nodes:
            self._push(self.nodes[name], message)
        elif message.kind == START:
            for node in online - set(self.nodes.values()):
                if time.monotonic() - self._asked.get(node, -LOOK) >= LOOK:
                    self._asked[node] = time.monotonic()
                    self._push(node, message)

    def receive(self, timeout: float) -> tuple[str, Message] | None:
        deadline = time.monotonic() + timeout
        while not self._arrived:
            self._pull()
            if not self._arrived:
                if time.monotonic() > deadline:
                    return None
                time.sleep(POLL)
        return self._arrived.pop(0)

    def _push(self, node: int, message: Message) -> None:
        # A node that is busy needs one invitation only.
        if message.kind == START and node in self._inviting.values():
            return
        pushed = FlowerMessage(make_content(message.pack()), node, "query")
        for number in self.grid.push_messages([pushed]):
            if number is not None:
                self._waiting[number] = node
                if message.kind == START:
                    self._inviting[number] = node

    def _pull(self) -> None:
        if not self._waiting:
            return
        for reply in self.grid.pull_messages(list(self._waiting)):
            self._inviting.pop(reply.metadata.reply_to_message_id, None)
            node = self._waiting.pop(reply.metadata.reply_to_message_id, None)
            if node is None:
                continue
            if reply.has_error():
                # Its client may be served by another node by now: all nodes without a client are asked again.
                LOG.warning("node %s could not answer", node)
                self.nodes = {known: other for known, other in self.nodes.items() if other != node}
                continue
            try:
                message = Message.unpack(read_content(reply))
                name = str(message.facts["name"])
            except (ValueError, KeyError, TypeError):
                LOG.warning("node %s sent a message that cannot be read", node)
                continue
            if self.nodes.setdefault(name, node) == node:
                self._arrived.append((name, message))
            else:
                LOG.warning("node %s says that it is client %s, which another node serves", node, name)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the order in the folder that the run's configuration names."""
    folder = Path(str(context.run_config["folder"]))
    (folder / SERVER_APP).write_text(str(os.getpid()))
    order = json.loads((folder / ORDER).read_text())
    job, settings = Job.from_facts(order["job"]), ServerSettings(**order["settings"])
    try:
        log = SumLog(folder / SUMS, {"names": order["names"], "secure": settings.secure, "job": job.as_facts()})
        outcome = Server(order["names"], job, FlowerTransport(grid), log, settings).run()
    except (RuntimeError, ValueError) as error:
        write_whole(folder / FAILURE, f"{type(error).__name__}: {error}".encode())
        raise
    write_whole(folder / MODEL, outcome.model)
    write_whole(folder / ANSWERS, json.dumps(outcome.answers).encode())
    write_whole(folder / RESULT, json.dumps(outcome.as_facts(), indent=1).encode())
