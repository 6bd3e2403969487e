"""Start real ranks: torchrun or mpirun, with a time limit that leaves no process behind."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import torch
from warm import start as start_warm

BIN = Path(sys.executable).parent
HERE = Path(__file__).parent
# Open MPI needs these to start more ranks than cores, or as root in a container.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
# Both backends take the same steps above their communicators. What these do is tested with both in every run, and the
# whole programs with MPI where there is more time.
BACKENDS = ["torch", pytest.param("mpi", marks=pytest.mark.long)]


@cache
def programs() -> Path:
    """The folder of ``python``, ``psfit`` and ``torchrun``: those that start quickly, unless there is a GPU."""
    return BIN if torch.cuda.is_available() else start_warm(environment())


def python() -> str:
    """A Python that starts quickly."""
    return str(programs() / "python")


def command(backend: str, ranks: int, *program: str, options: tuple[str, ...] = (), real: bool = False) -> list[str]:
    """The launcher's command line for a script (with arguments), or for ``-m module``; on request in `real` Pythons."""
    each = sys.executable if real else python()
    if backend == "torch":
        launcher = [each, *TORCHRUN[1:], "--standalone", "--nproc-per-node", str(ranks)]
        return [*launcher, *options, "--no-python", each, "-u", *program]
    mpirun = shutil.which("mpirun", path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    assert mpirun is not None
    return [mpirun, "-n", str(ranks), *options, each, *program]


def active(**extra: str) -> dict[str, str]:
    """The variables where the environment is active: its programs are found by name."""
    paths = [str(programs()), str(BIN), os.environ["PATH"]]
    return environment(PATH=os.pathsep.join(paths), PYTHON_EXEC=python(), **extra)


def environment(**extra: str) -> dict[str, str]:
    """One thread a rank: the machines that run the tests have few cores."""
    paths = os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE.parent), str(HERE)])
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths} | OPEN_MPI | extra


@contextmanager
def alone() -> Iterator[None]:
    """One job at a time over all test processes: ranks that share cores with others are slow to answer."""
    with Path(tempfile.gettempdir(), f"psfit-ranks-{os.getuid()}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(arguments: list[str], timeout: float = 300, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run to the end; on failure, show all that was printed."""
    with alone():
        process = start(arguments, **extra)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"no end after {timeout} s\n{out}\n{err}") from None
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def start(arguments: list[str], **extra: str) -> subprocess.Popen[str]:
    """Start in a new process group."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        arguments, stdout=pipe, stderr=pipe, text=True, env=environment(**extra), start_new_session=True
    )
