"""What a benchmark ran on: machine, versions, commit. Written beside every result."""

import os
import platform
import subprocess
from pathlib import Path

import numpy
import scipy
import sklearn
import torch

import psfit


def environment() -> dict[str, str]:
    """Name and value of everything that a figure depends on."""
    return {
        "machine": _processor(),
        "cores": str(os.cpu_count()),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "python": platform.python_version(),
        "psfit": psfit.__version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "commit": _commit(),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str:
    if "GIT_COMMIT" in os.environ:
        return os.environ["GIT_COMMIT"]
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
