"""A federation over a network: the server's and the client's side of one run on Flower."""

import json
import logging
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from psfit.comm import ALONE
from psfit.data import Dense, FileSource
from psfit.federated.contacts import FederationError
from psfit.federated.files import FAILURE, MODEL, ORDER, RESULT, SERVER_APP
from psfit.federated.job import Answer, Job, LocalData
from psfit.federated.launch import (
    Certificates,
    end_leftover,
    find_free_port,
    open_socket,
    start_program,
    submit_run,
    superlink_arguments,
    supernode_arguments,
    wait_for_free_port,
    wait_for_port,
    write_app,
)
from psfit.federated.link import FederationEndedError
from psfit.federated.settings import ServerSettings
from psfit.federated.worker import Worker

LOG = logging.getLogger("psfit.federated")
# Seconds between two looks for the end, and for the last answers to leave a client.
POLL = 0.5
LAST_ANSWERS = 5.0
# Seconds between two SuperNodes, if one has ended.
RESTART = 5.0
# Seconds after which a client with an answer does not wait for the end of the run any more.
LAST_WAIT = 60.0


def serve_run(
    job: Job,
    names: list[str],
    settings: ServerSettings,
    folder: Path,
    host: str,
    port: int,
    certificates: Certificates | None,
) -> dict[str, Any]:
    """Run a job on Flower from this machine, and return what happened; the model is in the folder.

    A run that was interrupted goes on from the sums in the folder.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in (RESULT, FAILURE, MODEL):
        (folder / name).unlink(missing_ok=True)
    order = {"job": job.as_facts(), "names": names, "settings": asdict(settings)}
    (folder / ORDER).write_text(json.dumps(order, indent=1))
    home, log = folder / "flower", folder / "superlink.log"
    home.mkdir(exist_ok=True)
    end_leftover("flower-superlink", log.with_suffix(".pid"))
    end_leftover("flwr-serverapp", folder / SERVER_APP)
    wait_for_free_port(_own_name(host), port)
    with start_program("flower-superlink", *superlink_arguments(host, port, certificates), home=home, log=log) as link:
        wait_for_port(_own_name(host), port, link, log)
        submit_run(write_app(folder / "app"), folder, f"{_own_name(host)}:{port}", certificates, home)
        LOG.info("the run has started; waiting for clients: %s", ", ".join(names))
        while not (folder / RESULT).exists():
            if (folder / FAILURE).exists():
                raise FederationError((folder / FAILURE).read_text())
            if link.poll() is not None:
                raise FederationError(f"Flower's SuperLink has ended; {log} has the reason")
            time.sleep(POLL)
    facts: dict[str, Any] = json.loads((folder / RESULT).read_text())
    return facts


def join_run(
    worker: Worker, superlink: str, authority: Path | None, log: Path, patience: float
) -> tuple[Answer, tuple[str, ...]]:
    """Take part in one run as a client: the answer, and whose samples it belongs to.

    `log` gets the messages of Flower's SuperNode.
    """
    with tempfile.TemporaryDirectory(prefix="psfit-") as place:
        address = Path(place, "socket", "client")
        arguments = supernode_arguments(superlink, authority, address, find_free_port())
        with open_socket(worker, address):
            while not _serve_node(worker, arguments, Path(place, "flower"), log, patience):
                LOG.warning("Flower's SuperNode has ended, perhaps with its server; it is started again")
                time.sleep(RESTART)
    run = worker.run
    if run is None or run.answer is None:
        raise FederationEndedError("the run ended without an answer" if run is None else run.link.ended)
    return run.answer, run.names


def _serve_node(worker: Worker, arguments: list[str], home: Path, log: Path, patience: float) -> bool:
    """Run a SuperNode until the run is over; False if it ended before, and another one may find the server again."""
    began, end = time.monotonic(), float("inf")
    with start_program("flower-supernode", *arguments, home=home, log=log) as node:
        while not worker.over.wait(POLL) and time.monotonic() < end:
            if worker.reported.is_set():
                end = min(end, time.monotonic() + LAST_WAIT)
            if worker.run is None and time.monotonic() > began + patience:
                raise FederationError(f"no run has started within {patience:g} s")
            if node.poll() is not None:
                if time.monotonic() > worker.heard + patience:
                    raise FederationError(f"Flower's SuperNode has ended; {log} has the reason")
                return False
        time.sleep(LAST_ANSWERS)
    return True


def read_samples(path: Path, job: Job) -> LocalData:
    """The samples of a client's file, with the columns of the job in their order."""
    if job.columns is None or job.target is None:
        raise ValueError("columns, target: clients with files need a job that names the columns and the target")
    source = FileSource(
        path, target=job.target, columns=tuple(job.columns), sample_weight=job.weight, offset=job.offset
    )
    samples = source.read(ALONE.build())
    names = list(samples.names or ())
    if sorted(names) != sorted(job.columns) or samples.y is None or not isinstance(samples.matrix, Dense):
        raise ValueError(f"{path} does not hold the columns and the target of the job as numbers in memory")
    X = samples.matrix.values.numpy()[:, [names.index(name) for name in job.columns]]
    return LocalData(np.asarray(X, dtype=np.float64), np.asarray(samples.y), samples.weight, samples.offset)


def _own_name(host: str) -> str:
    return "127.0.0.1" if host == "0.0.0.0" else host
