"""The program `psfit` while it is loaded, which takes a second or two: Ctrl-C ends it at once, without a traceback.

Imported before everything else. In any other program it does nothing: there Ctrl-C belongs to that program.
"""

import os
import signal
import sys
import threading
from itertools import pairwise
from pathlib import Path
from types import FrameType

INTERRUPTED = 130


def is_command() -> bool:
    """Whether this process is ``psfit`` or ``python -m psfit``."""
    return Path(sys.argv[0]).stem == "psfit" or ("-m", "psfit") in pairwise(sys.orig_argv)


def _leave(number: int, frame: FrameType | None) -> None:
    # Nothing has been done yet that would have to be undone; an exception could get lost in what is being imported.
    os._exit(INTERRUPTED)


def loaded() -> None:
    """From here on Ctrl-C is an exception again, which commands know how to answer."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if (
    is_command()
    and threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, _leave)
