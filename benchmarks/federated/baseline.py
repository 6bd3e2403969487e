"""The baseline: hard thresholding with FedAvg, on Flower's strategy and client apps.

In each round every client makes a few gradient steps from the server's coefficients. FedAvg averages them, and the
server keeps the kappa largest. The apps run in this process; Flower's own strategy does the averaging.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy.special
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

logging.getLogger("flwr").setLevel(logging.ERROR)
# Messages name the run that they belong to, which Flower's own programs would have set.
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

LOCAL_STEPS = 5
ROUNDS = 200
# Learning rates, in units of one over a bound on the curvature; the best by the objective is reported.
RATES = (1.0, 3.0, 10.0, 30.0)

Sites = dict[int, tuple[Any, np.ndarray]]


class HardThreshold(FedAvg):
    """FedAvg whose average keeps the kappa largest coefficients; the intercepts, in the last row, are free."""

    def __init__(self, kappa: int, clients: int) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        self.kappa = kappa

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[Any, Any]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        coefficients = arrays["W"].numpy().copy()
        sizes = np.abs(coefficients[:-1])
        if self.kappa < sizes.size:
            coefficients[:-1][sizes < np.partition(sizes, -self.kappa, axis=None)[-self.kappa]] = 0.0
        return ArrayRecord({"W": Array(coefficients)}), metrics


class InProcessGrid(Grid):
    """Runs the client app of each node in this process."""

    def __init__(self, app: ClientApp, nodes: list[int]) -> None:
        self.app, self.nodes, self.rounds = app, nodes, 0

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return self.nodes

    def get_nodes(self) -> Any:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        sent = list(messages)
        self.rounds += bool(sent)
        replies = []
        for message in sent:
            node = message.metadata.dst_node_id
            context = Context(0, node, {}, RecordDict(), {"node": node})
            replies.append(self.app(message, context))
        return replies


def make_app(sites: Sites, gamma: float, samples: int, rate: float) -> ClientApp:
    """A client app that makes gradient steps for the softmax loss."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        X, Y = sites[int(context.run_config["node"])]
        W = message.content["arrays"]["W"].numpy().copy()
        for _ in range(LOCAL_STEPS):
            slope = (scipy.special.softmax(X @ W, axis=1) - Y) / len(Y)
            slope = np.asarray(X.T @ slope)
            slope[:-1] += W[:-1] / (gamma * samples)
            W -= rate * slope
        content = RecordDict(
            {"arrays": ArrayRecord({"W": Array(W)}), "metrics": MetricRecord({"num-examples": len(Y)})}
        )
        return Message(content, reply_to=message)

    return app


def fit_baseline(
    sites: Sites, kappa: int, gamma: float, curvature: float, objective: Callable[[np.ndarray], float]
) -> tuple[np.ndarray, float]:
    """The best coefficients of all learning rates, with the intercepts as the last row; and the rate."""
    samples = sum(len(Y) for _, Y in sites.values())
    X, Y = next(iter(sites.values()))
    tried = []
    for rate in RATES:
        grid = InProcessGrid(make_app(sites, gamma, samples, rate / curvature), list(sites))
        start = ArrayRecord({"W": Array(np.zeros((X.shape[1], Y.shape[1])))})
        result = HardThreshold(kappa, len(sites)).start(grid, start, num_rounds=ROUNDS)
        tried.append((result.arrays["W"].numpy(), rate))
    return min(tried, key=lambda one: np.nan_to_num(objective(one[0]), nan=np.inf))
