"""The bytes of a model file: a zip of one JSON file and NumPy arrays, with a digest at its end and limits of size.

The comment at the end of the zip is a digest of all bytes before it. A file that was cut, damaged or edited is refused
before any part of it is used. Any zip tool can open the file. A digest is not a signature: a person who changes a file
can also write a new digest. So nothing is unpacked before its size is known.
"""

import hashlib
import io
import json
import math
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

MARK = b"psfit sha256 "
# Zip members have a date; a fixed one gives equal models equal files.
DATE = (1980, 1, 1, 0, 0, 0)
# A file may unpack to this many times its own size, or to this many bytes.
MOST_RATIO, FREE_BYTES = 64, 16 << 20
MOST_MEMBERS = 10_000
CONTENT = "model.json"


class ModelFileError(ValueError):
    """A model file cannot be used; the message says why."""


def pack(content: dict[str, Any], arrays: dict[str, np.ndarray], plain: Callable[[Any], Any]) -> bytes:
    """The bytes of the file; `plain` turns values that JSON does not know into values that it knows."""
    members = {CONTENT: json.dumps(content, indent=1, default=plain).encode()}
    for name, values in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, values, allow_pickle=False)
        members[f"{name}.npy"] = buffer.getvalue()
    packed = _zip(members, zipfile.ZIP_DEFLATED)
    if sum(map(len, members.values())) > _most_bytes(len(packed)):
        # A file that unpacks to too many bytes would be refused when it is read.
        packed = _zip(members, zipfile.ZIP_STORED)
    return packed


def _zip(members: dict[str, bytes], method: int) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", method) as packed:
        for name, data in members.items():
            packed.writestr(zipfile.ZipInfo(name, DATE), data, method)
        # The digest covers the length of the comment, so the comment is as long as it will be.
        packed.comment = MARK + b"0" * 64
    body = whole.getvalue()[: -len(MARK) - 64]
    return body + MARK + hashlib.sha256(body).hexdigest().encode()


def unpack(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Check the digest of a model file; return its JSON and its arrays."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise ModelFileError(f"{path} is a folder, not a model file; name a file that ends with .psfit") from None
    if not zipfile.is_zipfile(io.BytesIO(data)):
        raise ModelFileError(f"{path} is not a model file, or it was cut short")
    length = len(MARK) + 64
    body, comment = data[:-length], data[-length:]
    if not comment.startswith(MARK):
        raise ModelFileError(f"{path} is a zip, but not a model file: it does not end with its digest")
    if comment != MARK + hashlib.sha256(body).hexdigest().encode():
        raise ModelFileError(f"{path} is damaged: its bytes do not match the digest at its end")
    try:
        members = _members(data)
        content = json.loads(members.pop(CONTENT))
        arrays = {name.removesuffix(".npy"): _array(name, values) for name, values in members.items()}
    except (
        ValueError,
        KeyError,
        EOFError,
        OSError,
        NotImplementedError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ModelFileError(f"{path} cannot be used as a model file: {error}") from None
    if not isinstance(content, dict):
        raise ModelFileError(f"{path} cannot be used as a model file: {CONTENT} is not an object")
    return content, arrays


def _most_bytes(size: int) -> int:
    return max(FREE_BYTES, MOST_RATIO * size)


def _members(data: bytes) -> dict[str, bytes]:
    """Unpack all members, but only if their stated sizes are allowed; zipfile reads no more than these sizes."""
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        found = packed.infolist()
        names = {one.filename for one in found}
        if len(names) < len(found) or len(found) > MOST_MEMBERS:
            raise ValueError("its list of members has duplicates or is too long")
        size = sum(one.file_size for one in found)
        if size > _most_bytes(len(data)):
            raise ValueError(f"its {len(data):,} bytes would unpack to {size:,}, which is too many")
        for one in found:
            if one.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or one.flag_bits & 1:
                raise ValueError(f"{one.filename!r} is packed with a method that model files do not use")
            if one.filename != CONTENT and not one.filename.endswith(".npy"):
                raise ValueError(f"it holds {one.filename!r}, which no model has")
        return {one.filename: packed.read(one) for one in found}


def _array(name: str, data: bytes) -> np.ndarray:
    """The numbers of a ``.npy`` member; its header must describe exactly as many bytes as there are."""
    file = io.BytesIO(data)
    readers = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)[0]
    if version not in readers:
        raise ValueError(f"{name!r} has an unknown version")
    shape, by_columns, dtype = readers[version](file)
    if dtype.kind not in "biuf" or dtype.itemsize > 8 or min(shape, default=0) < 0:
        raise ValueError(f"{name!r} holds {dtype} in the shape {shape}, not numbers")
    if math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError(f"{name!r} does not have as many numbers as it says")
    values = np.frombuffer(data, dtype, offset=file.tell())
    return values.reshape(shape, order="F" if by_columns else "C").copy()
