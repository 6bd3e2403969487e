"""Text files as plain UTF-8 bytes: compressed files and other encodings are copied to a temporary file first."""

import codecs
import gzip
import shutil
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from psfit.data.io.archives import COMPRESSIONS, only_member
from psfit.data.io.base import DataFileError
from psfit.data.io.file_signatures import require_text

# Bytes that decide on the encoding, and bytes that are copied at once.
HEAD, CHUNK = 1 << 20, 1 << 20
BOM = codecs.BOM_UTF8


@dataclass(frozen=True)
class PlainText:
    """The bytes of a text file in UTF-8: the file itself, or a temporary copy that is deleted with this object.

    `start` is the first byte after a byte order mark; `notes` say what was guessed.
    """

    path: Path
    start: int = 0
    notes: tuple[str, ...] = ()
    keeper: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, path: Path, encoding: str | None) -> "PlainText":
        """Decompress the file and change its encoding where that is necessary; `encoding` None detects it."""
        with _open_stream(path) as stream:
            head = stream.read(HEAD)
        require_text(path, head, encoding)
        notes: tuple[str, ...] = ()
        if encoding is None:
            encoding, guessed = _find_encoding(head)
            notes = (f"not in UTF-8, so read as {encoding}",) if guessed else ()
        else:
            encoding = _require_encoding(path, encoding)
        if encoding == "utf-8" and path.suffix.lower() not in COMPRESSIONS:
            return cls(path, len(BOM) if head.startswith(BOM) else 0, notes)
        copy = tempfile.NamedTemporaryFile(prefix="psfit-", suffix=".csv", delete=False)  # noqa: SIM115
        keeper = _Keeper(Path(copy.name))
        with copy, _open_stream(path) as stream:
            _copy(path, stream, copy, encoding)
        start = len(BOM) if encoding == "utf-8" and head.startswith(BOM) else 0
        return cls(Path(copy.name), start, notes, keeper)


class _Keeper:
    """Deletes a temporary file when nothing refers to this object any more."""

    def __init__(self, path: Path) -> None:
        weakref.finalize(self, path.unlink, missing_ok=True)


def _find_encoding(head: bytes) -> tuple[str, bool]:
    """The encoding of the first bytes of a file, and whether it is a guess."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", False
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(head)
    except UnicodeDecodeError:
        return "cp1252", True
    return "utf-8", False


def _require_encoding(path: Path, name: str) -> str:
    try:
        found = codecs.lookup(name).name
    except LookupError:
        raise DataFileError(f"{path}: encoding={name!r} is not known; use a name such as utf-8 or latin-1") from None
    return "utf-8" if found == "utf-8-sig" else found


@contextmanager
def _open_stream(path: Path) -> Any:
    """The bytes of a file, decompressed."""
    ending = path.suffix.lower()
    try:
        if ending == ".gz":
            with gzip.open(path) as stream:
                yield stream
        elif ending == ".zst":
            with pa.input_stream(str(path), compression="zstd") as stream:
                yield stream
        elif ending == ".zip":
            with zipfile.ZipFile(path) as archive, archive.open(only_member(path)) as stream:
                yield stream
        else:
            with path.open("rb") as stream:
                yield stream
    except (EOFError, OSError, zlib.error, zipfile.BadZipFile, pa.ArrowException, RuntimeError) as error:
        if ending not in COMPRESSIONS or isinstance(error, (FileNotFoundError, PermissionError)):
            raise
        raise DataFileError(f"{path}: cannot be decompressed ({error}); it may be cut short") from None


def _copy(path: Path, stream: IO[bytes], copy: IO[bytes], encoding: str) -> None:
    if encoding == "utf-8":
        shutil.copyfileobj(stream, copy, CHUNK)
        return
    # Windows-1252 leaves a few bytes undefined; these have their meaning in Latin-1.
    decoder = codecs.getincrementaldecoder(encoding)(errors="strict")
    decode: Callable[..., str] = decoder.decode
    try:
        while chunk := stream.read(CHUNK):
            copy.write(decode(chunk).encode())
        copy.write(decode(b"", True).encode())
    except UnicodeDecodeError as error:
        raise DataFileError(
            f"{path}: its bytes are not {encoding} ({error.reason}); name the encoding (--csv encoding=latin-1)"
        ) from None
