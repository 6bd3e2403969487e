"""Kernels for GPUs, in Triton, for the few places where torch's own operations leave speed behind.

Triton comes with the CUDA build of torch, and needs a C compiler. Without them, or on a CPU, `kernel` finds nothing and
the callers go the plain way; both ways compute the same.
"""

import os
import shutil
from functools import cache
from importlib import import_module
from typing import Any

import torch


def kernel(name: str, device: torch.device) -> Any:
    """The function of that name in the module of the same name, or None where it cannot run."""
    return _loaded(name) if device.type == "cuda" else None


@cache
def _loaded(name: str) -> Any:
    if not os.environ.get("CC") and not any(shutil.which(compiler) for compiler in ("gcc", "clang", "cc")):
        return None
    try:
        return getattr(import_module(f"psfit.kernels.cuda.{name}"), name)
    except ImportError:
        return None
