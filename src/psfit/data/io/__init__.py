"""Data files of several formats, read in parts."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from psfit.data.io.archives import COMPRESSIONS, inner_name
from psfit.data.io.base import DataFile, DataFileError, JoinedRows, Part, ReadRequest
from psfit.data.io.learn_schema import FILES_DIFFER, Pieces, learn_schema

# The module and the class of each format. A module is imported with the first file of its format: pyarrow takes time.
FORMATS = {
    ".npy": ("arrays", "NpyFile"),
    ".npz": ("arrays", "NpzFile"),
    ".csv": ("text", "TextFile"),
    ".tsv": ("text", "TextFile"),
    ".parquet": ("tables", "ParquetFile"),
    ".feather": ("tables", "ArrowFile"),
    ".arrow": ("tables", "ArrowFile"),
    ".svm": ("svmlight", "SvmlightFile"),
    ".libsvm": ("svmlight", "SvmlightFile"),
    ".svmlight": ("svmlight", "SvmlightFile"),
    ".h5": ("hdf5", "Hdf5File"),
    ".hdf5": ("hdf5", "Hdf5File"),
}
# Files that are often tried.
SPREADSHEETS = (".xlsx", ".xls", ".ods")


def open_file(path: Path, wanted: ReadRequest) -> DataFile:
    """Open a file; its ending decides the format."""
    module, name = FORMATS[ending_of(path)]
    kind: Any = getattr(import_module(f"{__name__}.{module}"), name)
    try:
        opened: DataFile = kind(path, wanted)
    except DataFileError as error:
        # A line of text may be damaged. All problems of the file can be listed if it can be opened without such lines.
        if wanted.lenient or FORMATS[ending_of(path)] != FORMATS[".csv"]:
            raise
        raise import_module(f"{__name__}.problems").explain_text(path, wanted, error) from None
    return opened


def ending_of(path: Path) -> str:
    """The ending that decides the format of a file; only text may be compressed."""
    ending = Path(inner_name(path)).suffix.lower() if path.suffix.lower() in COMPRESSIONS else path.suffix.lower()
    if path.suffix.lower() in COMPRESSIONS and FORMATS.get(ending) != FORMATS[".csv"]:
        raise DataFileError(f"{path}: only .csv and .tsv files may be compressed; decompress it first")
    return ending


def find_files(paths: Sequence[str | Path]) -> list[Path]:
    """All files of some paths; they must have one format, because some formats count rows and others bytes."""
    found = [file for path in paths for file in files_of_path(Path(path))]
    if not found:
        raise DataFileError("path=() names no file; give at least one")
    kinds = {FORMATS[ending_of(file)] for file in found}
    if len(kinds) > 1:
        endings = ", ".join(sorted({file.suffix for file in found}))
        raise DataFileError(f"{', '.join(map(str, paths))}: several formats ({endings}); keep one of them")
    return found


def files_of_path(path: Path) -> list[Path]:
    """The file itself, or all data files of a folder, sorted by name."""
    if path.is_dir():
        known = {*FORMATS, *COMPRESSIONS}
        found = sorted(file for file in path.iterdir() if file.suffix.lower() in known and file.is_file())
        if not found:
            raise DataFileError(f"{path}: the folder has no data file ({', '.join(FORMATS)})")
        return found
    if not path.is_file():
        raise DataFileError(f"there is no file {path}")
    if ending_of(path) not in FORMATS:
        hint = "save the sheet as .csv" if path.suffix.lower() in SPREADSHEETS else f"use one of {', '.join(FORMATS)}"
        raise DataFileError(f"{path}: unknown ending {path.suffix!r}; {hint}")
    return [path]


__all__ = [
    "FILES_DIFFER",
    "FORMATS",
    "DataFile",
    "DataFileError",
    "JoinedRows",
    "Part",
    "Pieces",
    "ReadRequest",
    "ending_of",
    "find_files",
    "learn_schema",
    "open_file",
]
