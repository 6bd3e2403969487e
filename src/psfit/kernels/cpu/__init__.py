"""Kernels for CPUs: plain loops that Numba compiles on first use and keeps on disk."""

from collections.abc import Callable
from importlib import import_module

# Modules of this package; `compile_kernels` of each calls every compiled function once, with tiny arrays.
KERNELS = ["block_scores", "block_swaps", "perspective", "sparsify", "summarise", "swaps", "weighted_gram"]


def compile_all(report: Callable[[str], None]) -> None:
    """Compile all kernels, or load them from the disk; `report` is called with a short text before each module."""
    for name in KERNELS:
        report(f"compiling {name}")
        import_module(f"{__name__}.{name}").compile_kernels()


def cache_folders() -> list[str]:
    """The folders in which Numba keeps the kernels: below NUMBA_CACHE_DIR, beside the files, or of the user.

    There is none if no folder can be written.
    """
    from numba.core.dispatcher import Dispatcher

    modules = [import_module(f"{__name__}.{name}") for name in KERNELS]
    functions = [value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)]
    found = {function.stats.cache_path for function in functions}
    return sorted(folder for folder in found if folder is not None)
