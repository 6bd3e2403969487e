"""A real deployment on this machine: Flower's SuperLink and SuperNodes, processes of their own, with TLS.

The commands of PsFiT that start them are forked (see `tests/warm`), because four imports of torch are saved so.
"""

import datetime
import ipaddress
import json
import re
import subprocess
import time
from typing import ClassVar

import numpy as np
import pytest
from launch import active, programs

import psfit
from psfit.federated import Job, LocalData, simulate
from psfit.federated.launch import find_free_port
from psfit.federated.simulation import PipeTransport

pytest.importorskip("flwr")


def write_certificates(folder):
    """An authority, and a certificate of it for this machine."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def name(text):
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    authority_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def certify(subject, key):
        builder = x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name("authority"))
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))

    authority = certify("authority", authority_key).add_extension(x509.BasicConstraints(True, None), critical=True)
    here = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    server = certify("localhost", server_key).add_extension(here, critical=False)
    pem = serialization.Encoding.PEM
    files = {"authority": authority, "certificate": server}
    for which, builder in files.items():
        (folder / f"{which}.pem").write_bytes(builder.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(server_key.private_bytes(pem, *private))


class Deployment:
    """A folder with the files of all parties, and their commands as processes."""

    def __init__(self, folder, names, job):
        self.folder, self.names, self.port = folder, names, find_free_port()
        rng = np.random.default_rng(7)
        self.X = rng.normal(size=(50 * len(names), 6))
        self.y = 2 * self.X[:, 1] - self.X[:, 4] + rng.normal(size=len(self.X))
        columns = [f"x{j}" for j in range(6)]
        self.parts = {name: slice(k, None, len(names)) for k, name in enumerate(names)}
        for k, (name, part) in enumerate(self.parts.items()):
            # Each client has its columns in another order: they are matched by name.
            order = np.roll(np.arange(7), k)
            table = np.column_stack([self.X, self.y])[part][:, order]
            header = ",".join(np.array([*columns, "y"])[order])
            np.savetxt(folder / f"{name}.csv", table, delimiter=",", header=header, comments="")
        identities = [psfit.federated.Identity.create(name) for name in names]
        for one in identities:
            one.save(folder / f"{one.name}.identity")
        psfit.federated.Roster.create(one.public for one in identities).save(folder / "roster.json")
        self.facts = {"estimator": "SparseLinearRegression", "columns": columns, "target": "y"} | job
        (folder / "job.json").write_text(json.dumps(self.facts))
        write_certificates(folder)

    def start(self, log, *arguments):
        with open(self.folder / log, "a") as file:
            command = [str(programs() / "psfit"), "federated", *map(str, arguments)]
            return subprocess.Popen(command, stdout=file, stderr=file, cwd=self.folder, env=active())

    def start_server(self, *limits):
        tls = ["--authority", "authority.pem", "--certificate", "certificate.pem", "--key", "key.pem"]
        return self.start(
            "server.log", "server", "job.json", "--clients", ",".join(self.names), "--folder", "run", "--port",
            self.port, *tls, *limits, "--out", "server.psfit",
        )  # fmt: skip

    def start_client(self, name, *limits):
        return self.start(
            f"{name}.log", "client", f"{name}.csv", "--identity", f"{name}.identity", "--roster", "roster.json",
            "--superlink", f"127.0.0.1:{self.port}", "--authority", "authority.pem", "--log", f"{name}.node.log",
            *limits, "--out", f"{name}.psfit",
        )  # fmt: skip

    def read_logs(self):
        return {path.name: path.read_text() for path in self.folder.rglob("*.log")}

    def check_answers(self, accuracy):
        pooled = psfit.SparseLinearRegression(2).fit(self.X, self.y)
        for name in ("server", *self.names):
            model = psfit.load(self.folder / f"{name}.psfit")
            assert model.objective_ == pytest.approx(pooled.objective_, rel=accuracy)
            assert model.support_.tolist() == pooled.support_.tolist()
        return pooled


def test_superlink_and_three_supernodes_with_tls_give_the_pooled_answer(tmp_path):
    deployment = Deployment(tmp_path, ["north", "south", "west"], {"arguments": {"kappa": 2}, "pooled": True})
    limits = ["--patience", "150"]
    server = deployment.start_server(*limits)
    clients = [deployment.start_client(name, *limits) for name in deployment.names]
    codes = [process.wait(240) for process in (server, *clients)]
    logs = deployment.read_logs()
    assert codes == [0, 0, 0, 0], logs
    pooled = deployment.check_answers(1e-9)
    # No log holds a number of the data or of the model.
    text = "".join(logs.values())
    numbers = [*deployment.X.flatten(), *deployment.y, *pooled.coef_[pooled.support_]]
    assert not any(f"{value:.6f}"[:8] in text for value in numbers)


class Watching(PipeTransport):
    """Notes the numbers of the sums of iterations."""

    numbers: ClassVar = []

    def receive(self, timeout):
        received = super().receive(timeout)
        if received is not None and received[1].kind == "update":
            label, place = received[1].facts["label"], received[1].facts["place"]
            self.numbers.extend([place[1]] if label["operation"] == "latest" else [])
        return received


def find_first_iteration(deployment):
    """The number of the first sum of an iteration, from a simulation of the same job."""
    data = {name: LocalData(deployment.X[part], deployment.y[part]) for name, part in deployment.parts.items()}
    simulate(Job.from_facts(deployment.facts), data, connect=Watching)
    return min(Watching.numbers)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_clients_and_the_server_that_are_killed_go_on_after_a_new_start(tmp_path):
    arguments = {"kappa": 2, "certify": False, "solver": {"max_iter": 7, "effort": "low"}}
    deployment = Deployment(tmp_path, ["north", "south", "west", "east"], {"arguments": arguments})
    first = find_first_iteration(deployment)
    limits = ["--patience", "900"]

    def wait_for_sums(count):
        deadline = time.monotonic() + 900
        while len(list((tmp_path / "run" / "sums").glob("*.sum"))) < count:
            assert time.monotonic() < deadline, deployment.read_logs()
            time.sleep(0.5)

    def start(names):
        started = {name: deployment.start_client(name, *limits) for name in names if name != "server"}
        return started | {"server": deployment.start_server("--timeout", "30", *limits)}

    processes = start(deployment.names)
    try:
        # In the iterations: they go on without the client. Its SuperNode outlives it, as after a crash.
        wait_for_sums(first + 1)
        processes["east"].kill()
        wait_for_sums(first + 4)
        for name in ("south", "server"):
            processes[name].kill()
        for name in ("east", "south", "server"):
            processes[name].wait()
        before = len(list((tmp_path / "run" / "sums").glob("*.sum")))
        processes |= start(["east", "south"])
        codes = {name: process.wait(900) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
    logs = deployment.read_logs()
    assert set(codes.values()) == {0}, (codes, logs)
    deployment.check_answers(1e-6)
    # The second server went on from the sums of the first.
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert before >= first + 4
    assert result["exchanged"]["north"]["sums"] < result["sums"]
    # Each of the others gave its shares of the killed client's keys, and none of them twice.
    for name in deployment.names[:3]:
        numbers = re.findall(r"shares of east were given for message (\d+)", logs[f"{name}.log"])
        assert 1 <= len(numbers) == len(set(numbers))
