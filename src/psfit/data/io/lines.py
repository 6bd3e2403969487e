"""Lines of text in a range of bytes: adjacent ranges share no line and leave no line out."""

import io
from pathlib import Path
from typing import Any, BinaryIO


def line_range(file: BinaryIO, start: int, stop: int) -> tuple[int, int]:
    """The bytes of the lines that begin in a range: the first byte, and the one after the last."""
    return _next_line(file, start), _next_line(file, stop)


def _next_line(file: BinaryIO, at: int) -> int:
    """The byte where the next line begins, at or after a byte."""
    file.seek(max(at - 1, 0))
    if at > 0:
        file.readline()
    return file.tell()


def count_plain_lines(path: Path, start: int, empty_is_row: bool) -> int:
    """How many rows, from a byte on, are one line each: with no empty line between and no line break in a cell."""
    with path.open("rb") as file:
        file.seek(start)
        count = 0
        for line in file:
            plain = line.rstrip(b"\r\n")
            if plain.count(b'"') % 2 or b"\r" in plain or not (plain or empty_is_row):
                break
            count += 1
        return count


class Lines(io.RawIOBase):
    """The lines that begin in a range of bytes, as a file."""

    def __init__(self, path: Path, start: int, stop: int) -> None:
        super().__init__()
        self.file = path.open("rb")
        begin, end = line_range(self.file, start, stop)
        self.file.seek(begin)
        self.left = end - begin

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.file.readinto(memoryview(buffer)[: self.left])
        self.left -= count
        return count

    def close(self) -> None:
        self.file.close()
        super().close()
