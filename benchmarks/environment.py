"""What a benchmark ran on: machine, versions, commit. Written beside every result."""

import os
import subprocess

from psfit.common.environment import environment as machine_and_versions


def environment() -> dict[str, str]:
    """Name and value of everything that a figure depends on."""
    return machine_and_versions() | {"commit": _commit()}


def _commit() -> str:
    if "GIT_COMMIT" in os.environ:
        return os.environ["GIT_COMMIT"]
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
