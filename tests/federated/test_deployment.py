"""A real deployment on this machine: Flower's SuperLink and three SuperNodes, processes of their own, with TLS."""

import datetime
import ipaddress
import json
import subprocess
import sys

import numpy as np
import pytest

import psfit
from psfit.federated.launch import find_free_port

pytest.importorskip("flwr")
NAMES = ["north", "south", "west"]


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


def start(folder, log, *arguments):
    with open(folder / log, "w") as file:
        command = [sys.executable, "-m", "psfit", "federated", *map(str, arguments)]
        return subprocess.Popen(command, stdout=file, stderr=file, cwd=folder)


def test_superlink_and_three_supernodes_with_tls_give_the_pooled_answer(tmp_path):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(150, 6))
    y = 2 * X[:, 1] - X[:, 4] + rng.normal(size=150)
    columns = [f"x{j}" for j in range(6)]
    for k, name in enumerate(NAMES):
        # Each client has its columns in another order: they are matched by name.
        order = np.roll(np.arange(7), k)
        table = np.column_stack([X, y])[k::3][:, order]
        header = ",".join(np.array([*columns, "y"])[order])
        np.savetxt(tmp_path / f"{name}.csv", table, delimiter=",", header=header, comments="")
        psfit.federated.Identity.create(name).save(tmp_path / f"{name}.identity")
    identities = [psfit.federated.Identity.load(tmp_path / f"{name}.identity") for name in NAMES]
    psfit.federated.Roster.create(one.public for one in identities).save(tmp_path / "roster.json")
    job = {"estimator": "SparseLinearRegression", "arguments": {"kappa": 2}, "columns": columns, "target": "y"}
    (tmp_path / "job.json").write_text(json.dumps(job | {"pooled": True}))
    write_certificates(tmp_path)
    port = find_free_port()
    tls = ["--authority", "authority.pem", "--certificate", "certificate.pem", "--key", "key.pem"]
    limits = ["--patience", "150"]
    server = start(
        tmp_path, "server.log", "server", "job.json", "--clients", ",".join(NAMES), "--folder", "run", "--port", port,
        *tls, *limits, "--out", "server.psfit",
    )  # fmt: skip
    clients = [
        start(
            tmp_path, f"{name}.log", "client", f"{name}.csv", "--identity", f"{name}.identity", "--roster",
            "roster.json", "--superlink", f"127.0.0.1:{port}", "--authority", "authority.pem", "--log",
            f"{name}.node.log", *limits, "--out", f"{name}.psfit",
        )
        for name in NAMES
    ]  # fmt: skip
    codes = [process.wait(240) for process in (server, *clients)]
    logs = {path.name: path.read_text() for path in tmp_path.rglob("*.log")}
    assert codes == [0, 0, 0, 0], logs
    pooled = psfit.SparseLinearRegression(2).fit(X, y)
    for name in ("server", *NAMES):
        model = psfit.load(tmp_path / f"{name}.psfit")
        assert model.objective_ == pytest.approx(pooled.objective_, rel=1e-9)
        assert model.support_.tolist() == pooled.support_.tolist()
    # No log holds a number of the data or of the model.
    text = "".join(logs.values())
    assert not any(f"{value:.6f}"[:8] in text for value in [*X.flatten(), *y, *pooled.coef_[pooled.support_]])
