"""Kernels for CPUs: plain loops that Numba compiles on first use and keeps on disk."""

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

# Modules of this package; `compile_kernels` of each calls every compiled function once, with tiny arrays.
KERNELS = [
    "block_descent",
    "block_scores",
    "block_swaps",
    "bounded_swaps",
    "equal_samples",
    "joint_steps",
    "node_models",
    "perspective",
    "share_rows",
    "shrink_groups",
    "sparse_gram",
    "sparsify",
    "split_rows",
    "summarise",
    "support_sums",
    "swaps",
    "weighted_gram",
]


# Modules that this process has compiled or loaded.
_PREPARED: set[str] = set()


def prepare(names: Iterable[str], announce: Callable[[], None]) -> None:
    """Compile some modules, or load them from the disk; `announce` is called before if that takes seconds."""
    missing = [name for name in names if name not in _PREPARED]
    if any(not _is_kept(name) for name in missing):
        announce()
    for name in missing:
        import_module(f"{__name__}.{name}").compile_kernels()
        _PREPARED.add(name)


def _is_kept(name: str) -> bool:
    """Whether the compiled functions that a module uses are on the disk; some modules only use those of others."""
    used = {(one.py_func.__module__.rpartition(".")[2], one.stats.cache_path) for one in _functions([name])}
    # Functions that are inserted into others have no file, and where no folder can be written, none has one.
    kept = {(home, folder) for home, folder in used if folder is not None}
    return bool(kept) and all(next(Path(folder).glob(f"{home}.*.nbi"), None) for home, folder in kept)


def compile_all(report: Callable[[str], None]) -> None:
    """Compile all kernels, or load them from the disk; `report` is called with a short text before each module."""
    for name in KERNELS:
        report(f"compiling {name}")
        import_module(f"{__name__}.{name}").compile_kernels()


def cache_folders() -> list[str]:
    """The folders in which Numba keeps the kernels: below NUMBA_CACHE_DIR, beside the files, or of the user.

    There is none if no folder can be written.
    """
    return _folders(KERNELS)


def _folders(names: Iterable[str]) -> list[str]:
    found = {function.stats.cache_path for function in _functions(names)}
    return sorted(folder for folder in found if folder is not None)


def _functions(names: Iterable[str]) -> list[Any]:
    """The functions of some modules that Numba compiles."""
    from numba.core.dispatcher import Dispatcher

    modules = [import_module(f"{__name__}.{name}") for name in names]
    return [value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)]
