"""Where a model was fitted: versions, machine, device and ranks, as words."""

import os
import platform

import numpy as np
import torch

from psfit.version import __version__


def surroundings(device: torch.device, ranks: int) -> dict[str, str]:
    """What one would need to know to fit the same model again; nothing that names a person, a host or a folder."""
    processors = len(os.sched_getaffinity(0))
    where = f"cuda, {torch.cuda.get_device_name(device)}" if device.type == "cuda" else device.type
    return {
        "psfit": __version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "NumPy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {processors} processor{'s' * (processors > 1)}",
        "device": where,
        "ranks": str(ranks),
    }
