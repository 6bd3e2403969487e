"""Flower's programs: the SuperLink of the server, the SuperNode of a client, and the app that they run."""

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener
from pathlib import Path

from psfit.common.version import __version__
from psfit.federated.messages import Message
from psfit.federated.requirements import require_flower
from psfit.federated.worker import Worker

LOG = logging.getLogger("psfit.federated")
CONNECTION = "psfit"
APP = f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "psfit-federated"
version = "{__version__.split("+")[0]}"
dependencies = []

[tool.flwr.app]
publisher = "psfit"

[tool.flwr.app.components]
serverapp = "psfit_app.server_app:app"
clientapp = "psfit_app.client_app:app"

[tool.flwr.app.config]
folder = ""
"""
# What our commands tell all programs of Flower: send nothing to their makers.
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
# Seconds between two looks of Flower for a message that needs a process; its own choice is one second.
SWIFT = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}


@dataclass(frozen=True)
class Certificates:
    """Files of TLS: the authority's certificate, and the server's certificate and key."""

    authority: Path
    certificate: Path | None = None
    key: Path | None = None


def write_app(folder: Path) -> Path:
    """Write the Flower app, which consists of references to PsFiT."""
    package = folder / "psfit_app"
    package.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(APP)
    (package / "__init__.py").write_text('"""PsFiT on Flower."""\n')
    for side in ("client", "server"):
        text = f'"""PsFiT on Flower."""\n\nfrom psfit.federated import flower_{side}\n\napp = flower_{side}.app\n'
        (package / f"{side}_app.py").write_text(text)
    return folder


@contextlib.contextmanager
def start_program(name: str, *arguments: str, home: Path, log: Path) -> Iterator[subprocess.Popen]:
    """Run a program of Flower in the background; its messages go to a file, and its number to another one beside it."""
    require_flower()
    number = log.with_suffix(".pid")
    end_leftover(name, number)
    with open(log, "ab") as file:
        process = subprocess.Popen(
            [_find_program(name), *arguments], stdout=file, stderr=file, env=_environment(home), start_new_session=True
        )
        number.write_text(str(process.pid))
        try:
            yield process
        finally:
            end_program(process)
            number.unlink(missing_ok=True)


def end_program(process: subprocess.Popen) -> None:
    """End a program and all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
            return


def end_leftover(name: str, number: Path) -> None:
    """End a program of Flower, and its group, that outlived a command of ours that was killed."""
    if not number.exists():
        return
    pid = number.read_text().strip()
    command = ["ps", "-ww", "-p", pid, "-o", "command="]
    # Another program may have the number by now.
    if pid.isdigit() and name in subprocess.run(command, capture_output=True, text=True).stdout:
        LOG.warning("%s of an earlier run was still there and has been ended", name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(os.getpgid(int(pid)), signal.SIGKILL)
    number.unlink(missing_ok=True)


def superlink_arguments(host: str, port: int, certificates: Certificates | None) -> list[str]:
    """The arguments of a SuperLink; without certificates it is open to everybody who can reach it."""
    arguments = ["--host", host, "--port", str(port), "--disable-runtime-dependency-installation"]
    if certificates is None:
        return [*arguments, "--insecure"]
    files = {"ca-certfile": certificates.authority, "certfile": certificates.certificate, "keyfile": certificates.key}
    return arguments + [text for name, path in files.items() for text in (f"--ssl-{name}", str(path))]


def supernode_arguments(superlink: str, authority: Path | None, address: Path, port: int) -> list[str]:
    """The arguments of a SuperNode whose ClientApp finds the client at a socket."""
    security = ["--insecure"] if authority is None else ["--root-certificates", str(authority)]
    setting = f'psfit-socket="{address}"'
    return ["--superlink", superlink, *security, "--node-config", setting, "--port", str(port)]


def submit_run(app: Path, run_folder: Path, address: str, certificates: Certificates | None, home: Path) -> None:
    """Ask the SuperLink to run the app on the order in `run_folder`."""
    home.mkdir(parents=True, exist_ok=True)
    security = "insecure = true" if certificates is None else f'root-certificates = "{certificates.authority}"'
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{address}"\n{security}\n'
    )
    command = [_find_program("flwr"), "run", str(app), CONNECTION, "--run-config", f'folder="{run_folder}"']
    done = subprocess.run(command, env=_environment(home), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"Flower did not start the run: {(done.stdout + done.stderr).strip()[-2000:]}")


def wait_for_port(host: str, port: int, process: subprocess.Popen, log: Path, seconds: float = 120.0) -> None:
    """Wait until a program listens."""
    deadline = time.monotonic() + seconds
    while not _listens(host, port):
        if process.poll() is not None:
            raise RuntimeError(f"Flower's SuperLink has ended; {log} has the reason")
        if time.monotonic() > deadline:
            raise RuntimeError(f"Flower's SuperLink does not listen at {host}:{port}")
        time.sleep(0.2)


def wait_for_free_port(host: str, port: int, seconds: float = 30.0) -> None:
    """Wait until nobody listens: a program that has been killed does so until its last thread is gone."""
    deadline = time.monotonic() + seconds
    while _listens(host, port):
        if time.monotonic() > deadline:
            raise ValueError(f"port={port}: another program listens at {host}:{port}; end it or choose another port")
        time.sleep(0.2)


def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
        return True
    return False


def find_free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def open_socket(worker: Worker, address: Path) -> Iterator[None]:
    """Answer messages that arrive at a socket of this machine; only its user can open it."""
    address.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    address.parent.chmod(0o700)
    address.unlink(missing_ok=True)
    with Listener(str(address), "AF_UNIX", backlog=16) as listener:
        threading.Thread(target=_accept, args=(listener, worker), daemon=True).start()
        yield


def _accept(listener: Listener, worker: Worker) -> None:
    while True:
        try:
            pipe = listener.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(pipe, worker), daemon=True).start()


def _answer(pipe: Connection, worker: Worker) -> None:
    with pipe, contextlib.suppress(EOFError, OSError):
        data = pipe.recv_bytes()
        try:
            message = Message.unpack(data)
        except ValueError as error:
            LOG.warning("a message was refused: %s", error)
            return
        pipe.send_bytes(worker.handle(message).pack())


def _find_program(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise RuntimeError(f"the program {name} of Flower is not installed beside this Python")
    return found


def _environment(home: Path) -> dict[str, str]:
    # Flower's programs start each other by name.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return SWIFT | os.environ | QUIET | {"FLWR_HOME": str(home), "PATH": path}
