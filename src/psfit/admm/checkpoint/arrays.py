"""Named arrays in a file; an array is read only if it has the expected shape and type."""

import math
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from psfit.admm.checkpoint.error import CheckpointError
from psfit.common.output_files import write_whole

UNREADABLE = (OSError, ValueError, EOFError, KeyError, RuntimeError, struct.error, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class Expected:
    """The shape and type that an array must have; if `finite`, it may not have infinities or NaN."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    finite: bool = True

    @classmethod
    def like(cls, tensor: Tensor, finite: bool = True) -> "Expected":
        """The shape and type of a tensor."""
        return cls(tuple(tensor.shape), tensor.dtype, finite)


def write_arrays(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write named arrays; the file is complete or absent, never partial."""
    arrays: dict[str, Any] = {name: values.cpu().contiguous().numpy() for name, values in tensors.items()}
    write_whole(path, lambda file: np.savez(file, **arrays))


def read_arrays(path: Path, expected: dict[str, Expected]) -> dict[str, Tensor]:
    """Read the expected arrays of a file; raises an error if they are not as expected."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = {}
            for name, want in expected.items():
                with archive.open(f"{name}.npy") as file:
                    found[name] = _read_array(file, want, f"{path}: {name!r}")
            return found
    except CheckpointError:
        raise
    except UNREADABLE as error:
        raise CheckpointError(f"{path} cannot be read ({error}); delete the folder to start again") from None


def _read_array(file: IO[bytes], want: Expected, label: str) -> Tensor:
    if np.lib.format.read_magic(file) != (1, 0):
        raise CheckpointError(f"{label} has an unknown format; delete the folder to start again")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    wanted = torch.empty(0, dtype=want.dtype).numpy().dtype
    if shape != want.shape or dtype != wanted or (by_columns and len(shape) > 1):
        raise CheckpointError(
            f"{label} is an array {shape} of {dtype} where {want.shape} of {wanted} is expected; "
            "choose another folder, or delete it to start again"
        )
    size = math.prod(shape) * dtype.itemsize
    content = file.read(size)
    if len(content) < size:
        raise EOFError(f"{label} ends too early")
    values = torch.from_numpy(np.frombuffer(content, dtype).reshape(shape).copy())
    if want.finite and not bool(values.isfinite().all()):
        raise CheckpointError(f"{label} has numbers that are not finite; delete the folder to start again")
    return values
