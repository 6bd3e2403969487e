"""How the loops of this package are compiled: by Numba on first use, kept on disk where that is possible.

Without a folder that can be written, as in some containers, they are compiled again in every process.
"""

from collections.abc import Callable
from typing import Any

from numba import njit


def compile_loops(function: Callable[..., Any]) -> Any:
    """Compile a function with the exact order of its operations."""
    return _compile(function, no_cfunc_wrapper=True)


def compile_sums(function: Callable[..., Any]) -> Any:
    """Compile a function that may make its sums in any order, which lets loops use vector instructions.

    NaN and infinity keep their meaning.
    """
    return _compile(function, fastmath={"reassoc", "contract", "nsz"}, no_cfunc_wrapper=True)


def compile_inner_loops(function: Callable[..., Any]) -> Any:
    """As `compile_loops`, for a function that only compiled ones call: an entry for Python takes long to compile."""
    return _compile(function, no_cfunc_wrapper=True, no_cpython_wrapper=True)


def compile_inner_sums(function: Callable[..., Any]) -> Any:
    """As `compile_sums`, for a function that only compiled ones call."""
    return _compile(function, fastmath={"reassoc", "contract", "nsz"}, no_cfunc_wrapper=True, no_cpython_wrapper=True)


def insert_loops(function: Callable[..., Any]) -> Any:
    """Mark a function that is inserted where compiled ones call it, and compiled together with them.

    Numba optimises a function again in every one that calls it. Inserted at a single place it costs time only once.
    """
    return njit(inline="always")(function)


def _compile(function: Callable[..., Any], **options: Any) -> Any:
    try:
        return njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    except RuntimeError:
        # Numba looks for a folder when a function is defined.
        return njit(nogil=True, error_model="numpy", **options)(function)
