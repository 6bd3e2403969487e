"""Lines of text in a range of bytes: ranges that follow each other share no line and leave none out."""

import io
from pathlib import Path
from typing import Any


class Lines(io.RawIOBase):
    """The lines that begin in a range of bytes of a file, as a file of their own."""

    def __init__(self, path: Path, start: int, stop: int) -> None:
        super().__init__()
        self.file = path.open("rb")
        end = self._next_line(stop)
        self.left = end - self._next_line(start)

    def _next_line(self, at: int) -> int:
        """Go to the first line that begins at a byte or after it."""
        self.file.seek(max(at - 1, 0))
        if at > 0:
            self.file.readline()
        return self.file.tell()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.file.readinto(memoryview(buffer)[: self.left])
        self.left -= count
        return count

    def close(self) -> None:
        self.file.close()
        super().close()
