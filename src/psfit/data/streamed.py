"""A design matrix whose rows stay on disk or in host memory and are read in blocks, again in every pass.

While one block is used, a thread reads the next ones. Blocks for a GPU go through a small ring of pinned buffers, so
that reading, copying and computing overlap.
"""

import os
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psfit.comm import Transfers
from psfit.data.fingerprint import Fingerprint
from psfit.data.matrix import Dense, DesignMatrix
from psfit.data.strip import DenseStrip, Strip

BLOCK_BYTES = 32 << 20
# Numbers that an iteration keeps for every sample, besides the columns that it uses.
WORKING_NUMBERS = 60
# Blocks that are read in advance; a ring has one more buffer, for the block that is being copied.
AHEAD = 2


class RowReader(ABC):
    """Rows of numbers that can be read in ranges, any number of times."""

    shape: tuple[int, int]
    dtype: np.dtype
    rows_read = 0
    # How many threads may read at the same time.
    readers = 1

    @abstractmethod
    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop - 1``, all columns."""


class ArrayRows(RowReader):
    """An array in memory, or a memory map."""

    # One thread copies memory more slowly than a GPU can receive it.
    readers = max(1, min(8, (os.cpu_count() or 1) // 2))

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.dtype = values, values.dtype
        self.shape = (values.shape[0], values.shape[1])

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.values[start:stop]


class BinaryRows(RowReader):
    """Numbers in a file, row by row, read in ranges; unlike a memory map, the file does not count as memory."""

    def __init__(self, file: Any, offset: int, dtype: np.dtype, shape: tuple[int, int]) -> None:
        self.file, self.offset, self.dtype, self.shape = file, offset, dtype, shape
        weakref.finalize(self, file.close)

    def read(self, start: int, stop: int) -> np.ndarray:
        width = self.shape[1] * self.dtype.itemsize
        values = np.empty((stop - start, self.shape[1]), self.dtype)
        left, at = memoryview(values.reshape(-1).view(np.uint8)), self.offset + start * width  # type: ignore[arg-type]
        while left:
            count = os.preadv(self.file.fileno(), [left], at)
            if count == 0:
                raise ValueError(f"{getattr(self.file, 'name', 'the file')} ends before its last row; it was cut short")
            left, at = left[count:], at + count
        return values


class Streamed(DesignMatrix):
    """Rows ``first`` to ``first + count - 1`` of `rows`, all columns or those of `index`, read in every pass.

    `budget` is the number of bytes that chosen columns may take in memory.
    """

    streamed = True

    def __init__(
        self,
        rows: RowReader,
        device: torch.device,
        dtype: torch.dtype,
        budget: int,
        first: int = 0,
        count: int | None = None,
        index: Tensor | None = None,
        transfers: Transfers | None = None,
    ) -> None:
        self.source, self.device, self.dtype, self.budget = rows, device, dtype, budget
        self.first, self.index, self.transfers = first, index, transfers or Transfers()
        # The fingerprint of the rows read so far, if it was asked for.
        self.number: Fingerprint | None = None
        height = rows.shape[0] - first if count is None else count
        self.shape = (height, rows.shape[1] if index is None else len(index))

    @property
    def column_room(self) -> int:
        return max(0, self.budget // max(1, self.shape[0] * self.dtype.itemsize) - WORKING_NUMBERS)

    @property
    def rows_read(self) -> int:
        return self.source.rows_read

    def mv(self, X: Tensor) -> Tensor:
        parts = [block @ X for _, block in self.blocks()]
        return torch.cat(parts) if parts else X.new_zeros(0, X.shape[1])

    def rmv(self, R: Tensor) -> Tensor:
        total = R.new_zeros(self.shape[1], R.shape[1])
        for at, block in self.blocks():
            total += block.T @ R[at]
        return total

    def columns(self, index: slice | Tensor) -> DesignMatrix:
        n = self.shape[1]
        if isinstance(index, slice):
            if index.indices(n) == (0, n, 1):
                return self
            index = torch.arange(n)[index]
        index = index.cpu()
        if self.shape[0] * len(index) * self.dtype.itemsize <= self.budget:
            return Dense(self._gather_columns(index))
        whole = index if self.index is None else self.index[index]
        return self._part(self.first, self.shape[0], whole)

    def rows(self, start: int, stop: int) -> "Streamed":
        part = self._part(self.first + start, stop - start, self.index)
        part.number = self.number
        return part

    def refine(self, shift: Tensor) -> tuple["Streamed", Tensor]:
        return self._part(self.first, self.shape[0], self.index, torch.float64), shift

    def _part(self, first: int, count: int, index: Tensor | None, dtype: torch.dtype | None = None) -> "Streamed":
        dtype = dtype or self.dtype
        return Streamed(self.source, self.device, dtype, self.budget, first, count, index, self.transfers)

    def chunk(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        self.source.rows_read += stop - start
        return self.transfers.send(self._read_block(start, stop), self.device, dtype)

    def strips(self, dtype: torch.dtype | None = None) -> Iterator[tuple[slice, Strip]]:
        for at, block in self.blocks():
            yield at, DenseStrip(block.to(dtype or self.dtype))

    def load(self) -> Dense:
        """Read the whole matrix into the device's memory."""
        whole = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for at, block in self.blocks():
            whole[at] = block
        return Dense(whole)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """All rows in order as dense blocks on the device."""
        m, n = self.shape
        width = max(n, self.source.shape[1])
        height = max(1, BLOCK_BYTES // max(1, width * self.dtype.itemsize))
        ranges = [slice(start, min(start + height, m)) for start in range(0, m, height)]
        for at, block in self._to_gpu(ranges) if self.device.type == "cuda" else self._to_host(ranges):
            self.source.rows_read += len(block)
            if self.number is not None:
                self.number.add(self.first + at.start, block)
            yield at, block

    def await_fingerprint(self) -> Callable[[], str]:
        self.number = Fingerprint(self.first)
        return self.fingerprint

    def fingerprint(self) -> str:
        number = self.number = self.number or Fingerprint(self.first)
        for _ in self.rows(number.next - self.first, self.shape[0]).blocks():
            pass
        return str(number)

    def _gather_columns(self, index: Tensor) -> Tensor:
        chosen = torch.empty(self.shape[0], len(index), dtype=self.dtype, device=self.device)
        index = index.to(self.device)
        # For an empty support nothing is read.
        for at, block in self.blocks() if len(index) else ():
            chosen[at] = block[:, index]
        return chosen

    def fetch(self, start: int, stop: int) -> np.ndarray:
        """The rows of a range as they are stored, all columns."""
        return self.source.read(self.first + start, self.first + stop)

    def _read_block(self, start: int, stop: int) -> Tensor:
        values = self.fetch(start, stop)
        # A copy: a memory map is read-only, and this thread must be the one that reads the pages from disk.
        block = torch.from_numpy(values.astype(_NUMPY[self.dtype], order="C"))
        return block if self.index is None else block[:, self.index]

    def _to_host(self, ranges: list[slice]) -> Iterator[tuple[slice, Tensor]]:
        with ThreadPoolExecutor(1) as reader:
            waiting: deque[Future[Tensor]] = deque()
            for k, at in enumerate(ranges):
                for ahead in ranges[k + len(waiting) : k + AHEAD]:
                    waiting.append(reader.submit(self._read_block, ahead.start, ahead.stop))
                yield at, waiting.popleft().result()

    def _to_gpu(self, ranges: list[slice]) -> Iterator[tuple[slice, Tensor]]:
        depth = AHEAD * self.source.readers
        ring = _Ring(self, max((at.stop - at.start for at in ranges), default=0), depth + 1)
        with ThreadPoolExecutor(self.source.readers) as reader:
            waiting: deque[Future[tuple[Tensor, torch.cuda.Event]]] = deque()
            for k, at in enumerate(ranges):
                for ahead in range(k + len(waiting), min(k + depth, len(ranges))):
                    waiting.append(reader.submit(ring.send, ahead, ranges[ahead]))
                block, arrived = waiting.popleft().result()
                torch.cuda.current_stream(self.device).wait_event(arrived)
                block.record_stream(torch.cuda.current_stream(self.device))
                yield at, block


class _Ring:
    """Pinned buffers through which blocks are copied to a GPU, on a separate stream."""

    def __init__(self, matrix: Streamed, height: int, count: int) -> None:
        self.matrix = matrix
        shape = (height, matrix.shape[1])
        self.buffers = [torch.empty(shape, dtype=matrix.dtype, pin_memory=True) for _ in range(count)]
        self.copied: list[torch.cuda.Event | None] = [None] * len(self.buffers)
        self.stream = torch.cuda.Stream(matrix.device)

    def send(self, number: int, at: slice) -> tuple[Tensor, torch.cuda.Event]:
        """Read a block and start its copy; the event marks the end of the copy."""
        place = number % len(self.buffers)
        before = self.copied[place]
        if before is not None:
            before.synchronize()
        buffer = self.buffers[place][: at.stop - at.start]
        matrix = self.matrix
        values = matrix.fetch(at.start, at.stop)
        values = values if matrix.index is None else values[:, matrix.index.numpy()]
        np.copyto(buffer.numpy(), values, casting="same_kind")
        with torch.cuda.stream(self.stream):
            started, arrived = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            started.record(self.stream)
            block = buffer.to(matrix.device, non_blocking=True)
            arrived.record(self.stream)
        matrix.transfers.add_started(buffer.nbytes, started, arrived)
        self.copied[place] = arrived
        return block, arrived


_NUMPY: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}
