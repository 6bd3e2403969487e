"""Blocks of rows that are kept in memory while they fit, then in a temporary file."""

import tempfile
from typing import Any

import numpy as np

from psfit.data.streamed import ArrayRows, BinaryRows, RowReader


class Spool:
    """Blocks of rows: in memory while they fit, then in a temporary file that is deleted with its last user."""

    def __init__(self, width: int, dtype: np.dtype, budget: int) -> None:
        self.width, self.dtype, self.budget = width, dtype, budget
        self.blocks: list[np.ndarray] = []
        self.rows = 0
        self.file: Any = None

    def add(self, block: np.ndarray) -> None:
        self.rows += len(block)
        self.blocks.append(block)
        # Joining the blocks takes their size once more.
        if self.file is None and 2 * self.rows * self.width * self.dtype.itemsize > self.budget:
            self.file = tempfile.TemporaryFile(prefix="psfit-")  # noqa: SIM115
        if self.file is not None:
            for waiting in self.blocks:
                waiting.tofile(self.file)
            self.blocks = []

    def all_rows(self) -> RowReader:
        if self.file is None:
            return ArrayRows(np.concatenate(self.blocks) if self.blocks else np.empty((0, self.width), self.dtype))
        self.file.flush()
        return BinaryRows(self.file, 0, self.dtype, (self.rows, self.width))
