"""Kernels for the few places where torch's own operations are too slow: in Triton for GPUs, in Numba for CPUs.

Triton comes with the CUDA build of torch, and needs a C compiler. Where a kernel does not exist or cannot run, `kernel`
returns None and the callers use torch's operations; both compute the same.
"""

import os
import shutil
from functools import cache
from importlib import import_module
from typing import Any

import torch


def kernel(name: str, device: torch.device) -> Any:
    """The function of that name in the module of the same name; None if it cannot run."""
    return _load(name, device.type) if device.type in ("cpu", "cuda") else None


@cache
def _load(name: str, place: str) -> Any:
    compilers = "gcc", "clang", "cc"
    if place == "cuda" and not os.environ.get("CC") and not any(shutil.which(compiler) for compiler in compilers):
        return None
    try:
        return getattr(import_module(f"psfit.kernels.{place}.{name}"), name)
    except ImportError:
        return None
