"""The bytes of a model file: a zip of one JSON and NumPy arrays, with a digest at its end and limits of size.

The comment at the end of the zip is a digest of all bytes before it, so that a file that was cut, damaged or edited is
refused before anything in it is believed. Any zip tool can open the file. A digest is no signature: whoever changes a
file can renew it. Nothing is unpacked, therefore, before its size is known.
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
# Zip members carry a date; a fixed one keeps equal models in equal files.
DATE = (1980, 1, 1, 0, 0, 0)
# What a file may hold when it is unpacked: so many times its own size, or a few megabytes.
MOST_RATIO, FREE_BYTES = 64, 16 << 20
MOST_MEMBERS = 10_000
CONTENT = "model.json"


class ModelFileError(ValueError):
    """A model file cannot be used; the message says why."""


def pack(content: dict[str, Any], arrays: dict[str, np.ndarray], plain: Callable[[Any], Any]) -> bytes:
    """The bytes of the file; `plain` turns what JSON does not know into what it knows."""
    members = {CONTENT: json.dumps(content, indent=1, default=plain).encode()}
    for name, values in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, values, allow_pickle=False)
        members[f"{name}.npy"] = buffer.getvalue()
    packed = _zipped(members, zipfile.ZIP_DEFLATED)
    if sum(map(len, members.values())) > _most_bytes(len(packed)):
        # What shrinks beyond all measure would be taken for an attack.
        packed = _zipped(members, zipfile.ZIP_STORED)
    return packed


def _zipped(members: dict[str, bytes], method: int) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", method) as packed:
        for name, data in members.items():
            packed.writestr(zipfile.ZipInfo(name, DATE), data, method)
        # The length of the comment is part of what is digested.
        packed.comment = MARK + b"0" * 64
    body = whole.getvalue()[: -len(MARK) - 64]
    return body + MARK + hashlib.sha256(body).hexdigest().encode()


def unpack(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON and the arrays of a model file, once its digest has been found to be right."""
    data = Path(path).read_bytes()
    if not zipfile.is_zipfile(io.BytesIO(data)):
        raise ModelFileError(f"{path} is not a model file, or it was cut short")
    length = len(MARK) + 64
    body, comment = data[:-length], data[-length:]
    if not comment.startswith(MARK):
        raise ModelFileError(f"{path} is a zip, but no model file: it does not end with its digest")
    if comment != MARK + hashlib.sha256(body).hexdigest().encode():
        raise ModelFileError(f"{path} is damaged: its bytes do not have the digest they were written with")
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
        raise ModelFileError(f"{path} cannot be used as a model file: {CONTENT} holds no object")
    return content, arrays


def _most_bytes(size: int) -> int:
    return max(FREE_BYTES, MOST_RATIO * size)


def _members(data: bytes) -> dict[str, bytes]:
    """All members, unpacked only if what they say of their sizes is in proportion; zipfile reads no byte more."""
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        found = packed.infolist()
        names = {one.filename for one in found}
        if len(names) < len(found) or len(found) > MOST_MEMBERS:
            raise ValueError("its list of members is none that was written here")
        size = sum(one.file_size for one in found)
        if size > _most_bytes(len(data)):
            raise ValueError(f"its {len(data):,} bytes would unpack to {size:,}, out of all proportion")
        for one in found:
            if one.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or one.flag_bits & 1:
                raise ValueError(f"{one.filename!r} is packed in another way than any model file")
            if one.filename != CONTENT and not one.filename.endswith(".npy"):
                raise ValueError(f"it holds {one.filename!r}, which no model has")
        return {one.filename: packed.read(one) for one in found}


def _array(name: str, data: bytes) -> np.ndarray:
    """Numbers of a ``.npy`` member; its header must ask for as many bytes as there are, neither more nor fewer."""
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
