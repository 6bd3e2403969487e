"""Processes that start quickly: forked from one that has imported everything.

Importing torch and scikit-learn takes seconds, and the tests start hundreds of processes. Here are ``python``,
``psfit`` and ``torchrun`` that behave like those of the environment, exit codes and signals included, also under a
launcher. What is about processes themselves (faults, terminals, installed wheels) uses the real ones.
"""

import atexit
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
NAMES = ("python", "psfit", "torchrun")


def start(environment: dict[str, str]) -> Path:
    """Start the process that forks, in some environment; the folder of the programs, which is there until we end."""
    folder = Path(tempfile.mkdtemp(prefix="psfit-warm-"))
    for name in NAMES:
        program = folder / name
        program.write_text(f"#!{sys.executable} -SEs\n" + (HERE / "client.py").read_text())
        program.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, str(HERE / "server.py"), str(folder)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    atexit.register(_end, server, folder)
    return folder


def _end(server: subprocess.Popen[str], folder: Path) -> None:
    """The server ends when its standard input does, also where this process is killed and this is not called."""
    server.communicate()
    shutil.rmtree(folder)
