"""Output files that are either complete or absent, and tables that spreadsheets do not read as formulas."""

import csv
import io
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

# A spreadsheet reads a text that begins with one of these as a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_whole(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Let `fill` write a temporary file in the same folder, and rename it when it is on disk."""
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
    """Refuse an output that cannot be written, before the work for it begins."""
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
    """Create a new file in the same folder; never use a file that exists, and never follow a link."""
    partial = path.with_name(f".psfit-{secrets.token_hex(8)}.partial")
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except FileNotFoundError as error:
        # The user knows the folder, not the temporary file.
        raise FileNotFoundError(error.errno, "there is no folder", str(path.absolute().parent)) from None
    return partial, os.fdopen(handle, "wb")


def table_lines(rows: Iterable[Iterable[Any]], delimiter: str = ",") -> Iterator[str]:
    """Rows of cells as lines of CSV; a text that a spreadsheet would calculate gets an apostrophe in front."""
    line = io.StringIO(newline="")
    # The writer quotes cells that have either character of this line end; the lines themselves end with "\n".
    writer = csv.writer(line, delimiter=delimiter, lineterminator="\r\n")
    for row in rows:
        writer.writerow([_escape_formula(cell) for cell in row])
        yield line.getvalue().removesuffix("\r\n") + "\n"
        line.seek(0)
        line.truncate()


def write_lines(path: Path, rows: Iterable[Iterable[Any]], delimiter: str = ",") -> None:
    """Write rows of cells as a CSV file."""
    write_whole(path, lambda file: file.writelines(line.encode() for line in table_lines(rows, delimiter)))


def _escape_formula(cell: Any) -> Any:
    """Put an apostrophe before text that begins like a formula; text that is a number stays as it is."""
    if not isinstance(cell, str) or not cell.startswith(FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
