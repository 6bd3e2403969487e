"""One job across two hosts: network namespaces joined by a cable, or two loopback addresses where that is refused."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from jobs import SAMPLES, data, fit
from launch import HERE, TORCHRUN, alone, start

from psfit import GridSpec


@dataclass(frozen=True)
class Host:
    """How to run a command there, its address and its network interface."""

    prefix: list[str]
    address: str
    interface: str


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextmanager
def two_hosts() -> Iterator[list[Host]]:
    """Two namespaces with a veth pair between them; they see nothing else of each other."""
    names = [f"psfit-{os.getpid()}-{k}" for k in range(2)]
    cables = [f"ps{os.getpid() % 100000}v{k}" for k in range(2)]
    made: list[str] = []
    try:
        for name in names:
            _ip("netns", "add", name)
            made.append(name)
        _ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
        hosts = []
        for k, (name, cable) in enumerate(zip(names, cables, strict=True)):
            _ip("link", "set", cable, "netns", name)
            _ip("-n", name, "addr", "add", f"10.77.0.{k + 1}/24", "dev", cable)
            _ip("-n", name, "link", "set", cable, "up")
            _ip("-n", name, "link", "set", "lo", "up")
            hosts.append(Host(["ip", "netns", "exec", name], f"10.77.0.{k + 1}", cable))
    except (OSError, subprocess.CalledProcessError):
        hosts = [Host([], "127.0.0.1", "lo"), Host([], "127.0.0.2", "lo")]
    try:
        yield hosts
    finally:
        for name in made:
            _ip("netns", "del", name)


@pytest.mark.long
def test_two_hosts_run_one_job(tmp_path):
    output = tmp_path / "answer.json"
    with alone(), two_hosts() as hosts:
        jobs = []
        for k, host in enumerate(hosts):
            launcher = [*TORCHRUN, "--nnodes", "2", "--node-rank", str(k), "--nproc-per-node", "2"]
            place = ["--master-addr", hosts[0].address, "--master-port", "29517", "--local-addr", host.address]
            program = [str(HERE / "faulty.py"), "torch", "-", str(output), "none", "0", "0"]
            jobs.append(start([*host.prefix, *launcher, *place, *program], GLOO_SOCKET_IFNAME=host.interface))
        said = [job.communicate(timeout=120)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    X, known = data()
    control = fit(known["logistic"], X, slice(0, SAMPLES), GridSpec(backend="serial", device="cpu"), tol=1e-7)
    found = json.loads(output.read_text())
    assert found["samples"] == SAMPLES
    assert found["objective"] == pytest.approx(control["objective"], rel=1e-6)
