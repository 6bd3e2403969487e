"""The machine and the versions of the libraries, to be written beside every measurement."""

import os
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from psfit.common.version import __version__

LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn")


def environment() -> dict[str, str]:
    """Name and value of each fact, as text."""
    return {
        "machine": _processor(),
        "cores": str(count_cores()),
        "threads": str(torch.get_num_threads()),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "python": platform.python_version(),
        "psfit": __version__,
        **_versions(),
    }


def count_cores() -> int:
    """The cores that this process may use; macOS does not tell, so there it is all cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Both take milliseconds, which is long for a small fit.
@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in LIBRARIES}


@cache
def _processor() -> str:
    """The processor's name as Linux knows it; the architecture if Linux has no name."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
