"""Ctrl-C while the program imports its modules: here a module `torch` sends the signal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import psfit

SOURCE = str(Path(psfit.__file__).parents[1])
SCRIPT = str(Path(sys.executable).parent / "psfit")


@pytest.fixture
def interrupted(tmp_path):
    """Run a program whose import of torch is interrupted."""
    (tmp_path / "torch.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\n")
    path = os.pathsep.join([str(tmp_path), SOURCE])

    def run(*command):
        environment = os.environ | {"PYTHONPATH": path}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)

    return run


@pytest.mark.parametrize("command", [[SCRIPT, "demo"], [sys.executable, "-m", "psfit", "fit", "data.csv"]])
def test_the_command_ends_with_one_line(interrupted, command):
    done = interrupted(*command)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "psfit: stopped by Ctrl-C before anything was read\n"


def test_other_programs_hear_of_it_as_usual(interrupted):
    program = "try:\n import psfit\n psfit.solve\nexcept KeyboardInterrupt:\n print('heard')"
    done = interrupted(sys.executable, "-c", program)
    assert done.stdout == "heard\n"
