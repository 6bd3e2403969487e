"""The names of compressed files, and of the files in archives."""

import zipfile
from pathlib import Path, PurePath

from psfit.data.io.base import DataFileError

COMPRESSIONS = (".gz", ".zst", ".zip")


def inner_name(path: Path) -> str:
    """The name of a file without the ending of its compression; for an archive, the name of the file in it."""
    if path.suffix.lower() == ".zip" and path.is_file():
        return only_member(path)
    return path.stem if path.suffix.lower() in COMPRESSIONS else path.name


def only_member(path: Path) -> str:
    """The name of the only file in an archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [one.filename for one in archive.infolist() if not one.is_dir() and not _is_hidden(one.filename)]
    except zipfile.BadZipFile as error:
        raise DataFileError(f"{path}: cannot be read as a zip archive ({error}); it may be cut short") from None
    if len(members) != 1:
        raise DataFileError(f"{path}: the archive holds {len(members)} files; it must hold exactly one table")
    return members[0]


def _is_hidden(name: str) -> bool:
    """Whether this is what macOS adds to archives."""
    return name.startswith("__MACOSX/") or PurePath(name).name.startswith(".")
