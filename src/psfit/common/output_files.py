"""Writing files that are either whole or not there, and tables that spreadsheets do not take for formulas."""

import csv
import io
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

# What a spreadsheet takes for the beginning of a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_whole(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Let `fill` write the file beside its place, and move it there once it is on disk."""
    partial, file = _create_beside(path)
    try:
        with file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def require_writable(option: str, path: Path | None, endings: tuple[str, ...] = ()) -> None:
    """Refuse an output that could not be written in the end, before the work for it begins."""
    if path is None:
        return
    if endings and path.suffix.lower() not in endings:
        raise ValueError(f"{option}: {str(path)!r} must end with {' or '.join(endings)}")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ValueError(f"{option}: there is no folder {folder}")
    if path.is_dir():
        raise ValueError(f"{option}: {path} is a folder; name a file in it")
    try:
        partial, file = _create_beside(path)
    except OSError as error:
        raise ValueError(f"{option}: nothing can be written in {folder} ({error.strerror})") from None
    file.close()
    partial.unlink()


def _create_beside(path: Path) -> tuple[Path, BinaryIO]:
    """A new file in the same folder: never one that is there already, or that a link leads to."""
    partial = path.with_name(f".psfit-{secrets.token_hex(8)}.partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
    return partial, os.fdopen(handle, "wb")


def table_lines(rows: Iterable[Iterable[Any]], delimiter: str = ",") -> Iterator[str]:
    """Rows of cells as lines of CSV; texts that a spreadsheet would calculate get an apostrophe in front."""
    line = io.StringIO(newline="")
    # Cells with either half of this end of a line are quoted; the lines themselves end as they do elsewhere.
    writer = csv.writer(line, delimiter=delimiter, lineterminator="\r\n")
    for row in rows:
        writer.writerow([_harmless(cell) for cell in row])
        yield line.getvalue().removesuffix("\r\n") + "\n"
        line.seek(0)
        line.truncate()


def write_lines(path: Path, rows: Iterable[Iterable[Any]], delimiter: str = ",") -> None:
    """The same as a file."""
    write_whole(path, lambda file: file.writelines(line.encode() for line in table_lines(rows, delimiter)))


def _harmless(cell: Any) -> Any:
    """A cell as it is, unless it is text that begins like a formula; a text that is a number is none."""
    if not isinstance(cell, str) or not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
