"""Processes that were forked from one that had computed before.

The threads that torch computes with do not live on in a fork, but its records of them do: the first product that is
dealt to several threads would wait for them for ever. With one thread there is nothing to wait for.
"""

import os
import warnings

import torch


class _Process:
    """What is known of this process."""

    computes = False
    forked = False
    # Whether it has fewer threads than it would have had, and nobody has been told yet.
    slowed = False


def note_use() -> None:
    """Say that torch's threads are about to be used, and see to it that this is safe."""
    _Process.computes = True
    if _Process.forked and torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        _Process.slowed = True
    if not _Process.slowed:
        return
    _Process.slowed = False
    warnings.warn(
        "this process was forked from one that had computed before, so that it can use one thread only; start "
        "processes with multiprocessing's 'spawn' or 'forkserver' method to use more",
        RuntimeWarning,
        stacklevel=3,
    )


def is_forked() -> bool:
    """Whether this process was forked from one that had computed before."""
    return _Process.forked


def _begin_again() -> None:
    if _Process.computes:
        _Process.forked = True
        _Process.slowed = _Process.slowed or torch.get_num_threads() > 1
        # At once: not only fits make products.
        torch.set_num_threads(1)


os.register_at_fork(after_in_child=_begin_again)
