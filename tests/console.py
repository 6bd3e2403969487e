"""The console script, in a separate process."""

import os
import shutil
import subprocess
from pathlib import Path

from launch import BIN, active, environment, programs


def psfit(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``psfit`` as it would be typed where the environment is active."""
    return typed(["psfit", *map(str, arguments)], cwd)


def psfit_beside_its_python(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The same where the shell would find the environment's own ``psfit``, which commands that it names rely on."""
    variables = environment(PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    command = [str(programs() / "psfit"), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=300, check=False)


def typed(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with the environment's programs on the path."""
    variables = active()
    program = shutil.which(command[0], path=variables["PATH"])
    assert program is not None
    return subprocess.run(
        [program, *command[1:]], cwd=cwd, env=variables, capture_output=True, text=True, timeout=300, check=False
    )


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    """The error of a command that failed; it must be one line."""
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("psfit: error: ")
    return line
