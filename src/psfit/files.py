"""Writing files that are either whole or not there."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Let `fill` write the file beside its place, and move it there once it is on disk."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
