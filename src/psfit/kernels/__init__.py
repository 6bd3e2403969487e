"""Kernels for GPUs, in Triton, for the few places where torch's own operations are too slow.

Triton comes with the CUDA build of torch, and needs a C compiler. Without them, or on a CPU, `kernel` returns None and
the callers use torch's operations; both compute the same.
"""

import os
import shutil
from functools import cache
from importlib import import_module
from typing import Any

import torch


def kernel(name: str, device: torch.device) -> Any:
    """The function of that name in the module of the same name; None if it cannot run."""
    return _load(name) if device.type == "cuda" else None


@cache
def _load(name: str) -> Any:
    if not os.environ.get("CC") and not any(shutil.which(compiler) for compiler in ("gcc", "clang", "cc")):
        return None
    try:
        return getattr(import_module(f"psfit.kernels.cuda.{name}"), name)
    except ImportError:
        return None
