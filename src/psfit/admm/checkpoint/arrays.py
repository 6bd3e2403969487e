"""Arrays by name in a file, read only if they are what is expected: a file does not decide how much is read of it."""

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
    """What an array must be; `finite` if it may hold no infinity and nothing that is not a number."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    finite: bool = True

    @classmethod
    def like(cls, tensor: Tensor, finite: bool = True) -> "Expected":
        """An array of the same kind as this one."""
        return cls(tuple(tensor.shape), tensor.dtype, finite)


def write_arrays(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a file that is either whole or not there."""
    arrays: dict[str, Any] = {name: values.cpu().contiguous().numpy() for name, values in tensors.items()}
    write_whole(path, lambda file: np.savez(file, **arrays))


def read_arrays(path: Path, expected: dict[str, Expected]) -> dict[str, Tensor]:
    """The arrays that are expected of a file, or an error that says what is wrong with it."""
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
        raise CheckpointError(f"{path} cannot be read ({error}); delete the folder to start afresh") from None


def _read_array(file: IO[bytes], want: Expected, label: str) -> Tensor:
    if np.lib.format.read_magic(file) != (1, 0):
        raise CheckpointError(f"{label} is of an unknown kind; delete the folder to start afresh")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    wanted = torch.empty(0, dtype=want.dtype).numpy().dtype
    if shape != want.shape or dtype != wanted or (by_columns and len(shape) > 1):
        raise CheckpointError(
            f"{label} is an array {shape} of {dtype} where {want.shape} of {wanted} is expected; "
            "choose another folder, or delete it to start afresh"
        )
    size = math.prod(shape) * dtype.itemsize
    content = file.read(size)
    if len(content) < size:
        raise EOFError(f"{label} ends too early")
    values = torch.from_numpy(np.frombuffer(content, dtype).reshape(shape).copy())
    if want.finite and not bool(values.isfinite().all()):
        raise CheckpointError(f"{label} holds numbers that are not finite; delete the folder to start afresh")
    return values
