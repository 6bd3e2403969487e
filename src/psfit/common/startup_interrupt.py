"""Ctrl-C while the program `psfit` imports its modules, which takes a second or two: it prints one line and exits.

This module is imported before all others. In other programs it does nothing: they handle Ctrl-C themselves.
"""

import os
import signal
import sys
import threading
from itertools import pairwise
from pathlib import Path
from types import FrameType

INTERRUPTED = 130
MESSAGE = b"psfit: stopped by Ctrl-C before anything was read\n"


def is_command() -> bool:
    """Whether this process is ``psfit`` or ``python -m psfit``."""
    return Path(sys.argv[0]).stem == "psfit" or ("-m", "psfit") in pairwise(sys.orig_argv)


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    # Nothing has to be cleaned up yet; a module that is being imported could catch an exception.
    os.write(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2, MESSAGE)
    os._exit(INTERRUPTED)


def restore_ctrl_c() -> None:
    """Make Ctrl-C an exception again, once everything is imported; commands handle it."""
    if signal.getsignal(signal.SIGINT) is _exit_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if (
    is_command()
    and threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, _exit_at_once)
