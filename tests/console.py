"""The console script, in a process of its own."""

import shutil
import subprocess
from pathlib import Path

from launch import active


def psfit(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``psfit`` as it would be typed where the environment is active."""
    return typed(["psfit", *map(str, arguments)], cwd)


def typed(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with the environment's programs on the path."""
    variables = active()
    program = shutil.which(command[0], path=variables["PATH"])
    assert program is not None
    return subprocess.run(
        [program, *command[1:]], cwd=cwd, env=variables, capture_output=True, text=True, timeout=300, check=False
    )


def only_line(done: subprocess.CompletedProcess[str]) -> str:
    """What a command that could not work has said, all in one line."""
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("psfit: error: ")
    return line
