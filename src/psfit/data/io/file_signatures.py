"""Files that are no text, although their names end like those of text files."""

import codecs
from pathlib import Path

from psfit.data.io.base import DataFileError

# The first bytes of a file, what it is, and what to do with it.
SIGNATURES = (
    (b"\x1f\x8b", "compressed by gzip", "let its name end with .csv.gz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "let its name end with .csv.zst"),
    (b"BZh", "compressed by bzip2", "decompress it"),
    (b"\xfd7zXZ", "compressed by xz", "decompress it"),
    (b"7z\xbc\xaf", "a 7z archive", "decompress it"),
    (b"PK\x03\x04", "a zip archive", "let its name end with .csv.zip"),
    (b"\xd0\xcf\x11\xe0", "an Excel workbook", "save the sheet as .csv"),
    (b"PAR1", "a Parquet file", "let its name end with .parquet"),
    (b"ARROW1", "an Arrow file", "let its name end with .arrow"),
    (b"\x89HDF", "an HDF5 file", "let its name end with .h5"),
    (b"SQLite format 3", "a SQLite database", "write the table as .csv"),
    (b"%PDF", "a PDF", "save the table as .csv"),
)
# The largest share of zero bytes in a text.
MOST_ZEROS = 0.1
# What the zip archives of workbooks begin with.
WORKBOOKS = (b"[Content_Types].xml", b"xl/", b"opendocument.spreadsheet")


def require_text(path: Path, head: bytes, encoding: str | None) -> None:
    """Refuse a file whose first bytes are not those of text."""
    for signature, what, remedy in SIGNATURES:
        if head.startswith(signature):
            if signature == b"PK\x03\x04" and any(mark in head for mark in WORKBOOKS):
                what, remedy = "a workbook of Excel or LibreOffice", "save the sheet as .csv"
            raise DataFileError(f"{path}: it is no text, but {what}; {remedy}")
    marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if head.count(0) > MOST_ZEROS * len(head) and encoding is None and not marked:
        raise DataFileError(
            f"{path}: it holds many zero bytes, so it is no text; if it is UTF-16, say so (--csv encoding=utf-16-le)"
        )
