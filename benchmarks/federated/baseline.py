"""The baseline: hard thresholding with FedAvg, on Flower's simulation, with its strategy and client apps.

In each round every client makes a few gradient steps from the server's coefficients. FedAvg averages them, and the
server keeps the kappa largest. The learning rate falls from round to round.
"""

import functools
import logging
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.special

# Flower and Ray report nothing to their makers.
os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import ray
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

LOCAL_STEPS = 5
# First learning rates, in units of one over a bound on the curvature; the best by the objective is reported.
RATES = (0.3, 1.0, 3.0, 10.0)
# How often to try to start Ray.
STARTS = 5
# At the end of a run the rate has fallen to this share.
LAST_SHARE = 0.1

Sites = list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Task:
    """One fit: its limit on the nonzeros, and its first learning rate."""

    kappa: int
    rate: float


class HardThreshold(FedAvg):
    """FedAvg whose averages keep the kappa largest coefficients; the intercepts, in the last row, are free.

    All tasks travel in the same messages, each as an array of its own.
    """

    def __init__(self, tasks: list[Task], rounds: int, clients: int) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        self.tasks, self.rounds = tasks, rounds

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        share = LAST_SHARE ** ((server_round - 1) / self.rounds)
        config["rates"] = [task.rate * share for task in self.tasks]
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[Any, Any]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        kept = {}
        for number, task in enumerate(self.tasks):
            coefficients = arrays[str(number)].numpy().copy()
            sizes = np.abs(coefficients[:-1])
            if task.kappa < sizes.size:
                coefficients[:-1][sizes < np.partition(sizes, -task.kappa, axis=None)[-task.kappa]] = 0.0
            kept[str(number)] = Array(coefficients)
        return ArrayRecord(kept), metrics


@functools.cache
def read_site(folder: str, site: int) -> tuple[np.ndarray, np.ndarray]:
    """The samples of one client; each process of the simulation reads them once."""
    archive = np.load(Path(folder, f"{site}.npz"))
    return archive["X"], archive["Y"]


def make_client_app(folder: str, gamma: float, samples: int) -> ClientApp:
    """A client app that makes gradient steps for the softmax loss."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        X, Y = read_site(folder, int(context.node_config["partition-id"]))
        arrays, moved = message.content["arrays"], {}
        for number, rate in enumerate(message.content["config"]["rates"]):
            W = arrays[str(number)].numpy().copy()
            for _ in range(LOCAL_STEPS):
                slope = X.T @ ((scipy.special.softmax(X @ W, axis=1) - Y) / len(Y))
                slope[:-1] += W[:-1] / (gamma * samples)
                W -= rate * slope
            moved[str(number)] = Array(W)
        content = {"arrays": ArrayRecord(moved), "metrics": MetricRecord({"num-examples": len(Y)})}
        return Message(RecordDict(content), reply_to=message)

    return app


def run_tasks(sites: Sites, gamma: float, tasks: list[Task], rounds: int) -> list[np.ndarray]:
    """The coefficients of each task, with the intercepts as the last row, from one simulation for all."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    found: list[np.ndarray] = []
    shape = sites[0][0].shape[1], sites[0][1].shape[1]
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        start = ArrayRecord({str(number): Array(np.zeros(shape)) for number in range(len(tasks))})
        result = HardThreshold(tasks, rounds, len(sites)).start(grid, start, num_rounds=rounds)
        found.extend(result.arrays[str(number)].numpy() for number in range(len(tasks)))

    with tempfile.TemporaryDirectory() as folder:
        for number, (X, Y) in enumerate(sites):
            np.savez(Path(folder, f"{number}.npz"), X=X, Y=Y)
        client = make_client_app(folder, gamma, sum(len(Y) for _, Y in sites))
        start_ray()
        settings = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
        run_simulation(server, client, len(sites), backend_config=settings)  # type: ignore[arg-type]
    return found


def start_ray() -> None:
    """Start the Ray that Flower's simulation uses; on a busy machine its first tries take longer than it allows."""
    for tries_left in reversed(range(STARTS)):
        if ray.is_initialized():
            return
        try:
            ray.init(include_dashboard=False, log_to_driver=False)
        except Exception:
            if not tries_left:
                raise
            ray.shutdown()


def fit_baseline(
    sites: Sites,
    kappas: list[int],
    gamma: float,
    curvature: float,
    rounds: int,
    objective: Callable[[np.ndarray], float],
) -> list[tuple[np.ndarray, float]]:
    """For each limit the best coefficients of all learning rates, and the rate."""
    tasks = [Task(kappa, rate / curvature) for kappa in kappas for rate in RATES]
    found = run_tasks(sites, gamma, tasks, rounds)
    best = []
    for start in range(0, len(tasks), len(RATES)):
        tried = list(zip(found[start : start + len(RATES)], RATES, strict=True))
        best.append(min(tried, key=lambda one: np.nan_to_num(objective(one[0]), nan=np.inf)))
    return best
