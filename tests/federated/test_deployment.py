"""A real deployment on this machine: Flower's SuperLink and SuperNodes, processes of their own, with TLS.

The commands of PsFiT that start them are forked (see `tests/warm`), because four imports of torch are saved so.
"""

import datetime
import ipaddress
import json
import re
import signal
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
# Seconds for anything to happen.
PATIENCE = 900


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
        self.folder, self.names, self.port, self.processes = folder, names, find_free_port(), {}
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

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        """End what is left after a failure. An interrupt, in place of a kill, lets it end Flower's programs."""
        for process in self.processes.values():
            process.send_signal(signal.SIGINT)
        for process in self.processes.values():
            process.wait(60)

    def start(self, name, *arguments):
        with open(self.folder / f"{name}.log", "a") as file:
            command = [str(programs() / "psfit"), "federated", *map(str, arguments), "--out", f"{name}.psfit"]
            self.processes[name] = subprocess.Popen(command, stdout=file, stderr=file, cwd=self.folder, env=active())

    def start_server(self, *limits):
        tls = ["--authority", "authority.pem", "--certificate", "certificate.pem", "--key", "key.pem"]
        about = ["--clients", ",".join(self.names), "--folder", "run", "--port", self.port]
        self.start("server", "server", "job.json", *about, *tls, *limits)

    def start_client(self, name, *limits):
        who = ["--identity", f"{name}.identity", "--roster", "roster.json", "--log", f"{name}.node.log"]
        server = ["--superlink", f"127.0.0.1:{self.port}", "--authority", "authority.pem"]
        self.start(name, "client", f"{name}.csv", *who, *server, *limits)

    def kill(self, *names):
        """Kill processes, but not Flower's programs that they have started."""
        for name in names:
            self.processes[name].kill()
        for name in names:
            self.processes.pop(name).wait()

    def count_sums(self):
        return len(list((self.folder / "run" / "sums").glob("*.sum")))

    def wait(self, ready):
        """Wait until something is so; ends at once if a process has failed, and shows all logs."""
        deadline = time.monotonic() + PATIENCE
        while not ready():
            codes = {name: process.poll() for name, process in self.processes.items()}
            assert set(codes.values()) <= {0, None}, (codes, self.read_logs())
            assert time.monotonic() < deadline, (codes, self.read_logs())
            time.sleep(0.2)

    def wait_for_end(self):
        """Wait until all processes have ended well; what the server tells about the run."""
        self.wait(lambda: all(process.poll() == 0 for process in self.processes.values()))
        return json.loads((self.folder / "run" / "result.json").read_text())

    def read_logs(self):
        return {path.name: path.read_text() for path in self.folder.rglob("*.log")}

    def check_answers(self, accuracy):
        pooled = psfit.SparseLinearRegression(2).fit(self.X, self.y)
        for name in ("server", *self.names):
            model = psfit.load(self.folder / f"{name}.psfit")
            assert model.objective_ == pytest.approx(pooled.objective_, rel=accuracy)
            assert model.support_.tolist() == pooled.support_.tolist()
        return pooled


@pytest.mark.long
def test_superlink_and_three_supernodes_with_tls_give_the_pooled_answer(tmp_path):
    names = ["north", "south", "west"]
    with Deployment(tmp_path, names, {"arguments": {"kappa": 2}, "pooled": True}) as deployment:
        deployment.start_server()
        for name in names:
            deployment.start_client(name)
        result = deployment.wait_for_end()
    pooled = deployment.check_answers(1e-9)
    # The bytes of the model in the docs: products of six columns, y and ones, and two boxes for each of two messages.
    size, model = 32 * (8 * 9 // 2) + 2 * 2 * 93, (tmp_path / "run" / "model.psfit").stat().st_size
    assert result["sums"] == 1
    for name, own in result["exchanged"].items():
        assert own["sent_bytes"] == size
        assert own["received_bytes"] == size + (model if name == "north" else 0)
    # No log holds a number of the data or of the model.
    text = "".join(deployment.read_logs().values())
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
    with deployment:
        deployment.start_server("--timeout", "30")
        for name in deployment.names:
            deployment.start_client(name)
        # In the iterations: they go on without the client. Its SuperNode outlives it, as after a crash.
        deployment.wait(lambda: deployment.count_sums() > first)
        deployment.kill("east")
        deployment.wait(lambda: deployment.count_sums() > first + 3)
        deployment.kill("south", "server")
        before = deployment.count_sums()
        for name in ("east", "south"):
            deployment.start_client(name)
        deployment.start_server("--timeout", "30")
        result = deployment.wait_for_end()
    deployment.check_answers(1e-6)
    # The second server went on from the sums of the first: it asked for the others only.
    assert before > first + 3
    assert result["exchanged"]["north"]["sums"] <= result["sums"] - before + 5
    # Each of the others gave its shares of the killed client's keys, and none of them twice.
    logs = deployment.read_logs()
    for name in deployment.names[:3]:
        numbers = re.findall(r"shares of east were given for message (\d+)", logs[f"{name}.log"])
        assert 1 <= len(numbers) == len(set(numbers))
