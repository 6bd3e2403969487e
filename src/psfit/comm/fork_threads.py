"""Forked processes compute with one thread, because torch's threads do not exist after a fork.

Torch still believes in a fork that it has the threads of the process before. The first product that it divides between
threads would wait forever. With one thread it does not wait.
"""

import os
import warnings

import torch


class _Process:
    """The state of this process."""

    computes = False
    forked = False
    # Whether threads were taken away, and the user has not been warned yet.
    slowed = False


def note_threads() -> None:
    """Note that torch's threads will be used; in a fork, set their number to one and warn."""
    _Process.computes = True
    if _Process.forked and torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        _Process.slowed = True
    if not _Process.slowed:
        return
    _Process.slowed = False
    warnings.warn(
        "this process was forked from one that had computed before, so it can use only one thread; start "
        "processes with multiprocessing's 'spawn' or 'forkserver' method to use more",
        RuntimeWarning,
        stacklevel=3,
    )


def is_forked() -> bool:
    """Whether this process was forked from one that had computed before."""
    return _Process.forked


def _limit_threads() -> None:
    if _Process.computes:
        _Process.forked = True
        _Process.slowed = _Process.slowed or torch.get_num_threads() > 1
        # Now, and not at the next fit: other code computes products, too.
        torch.set_num_threads(1)


os.register_at_fork(after_in_child=_limit_threads)
