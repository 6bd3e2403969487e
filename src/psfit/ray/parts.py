"""The part of a dataset that a worker reads."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ray.data.block import BlockAccessor


@dataclass(frozen=True)
class Part:
    """The rows of a dataset in memory from the first one up to the last one, without the latter."""

    dataset: Any
    first: int = 0
    last: int | None = None

    def read(self) -> Iterator[Any]:
        """The rows as pandas tables, one for each block; others are not copied."""
        start = 0
        # Without a format, batches are the blocks as they are in Ray's memory.
        for block in self.dataset.iter_batches(batch_size=None, batch_format=None):
            rows = BlockAccessor.for_block(block)
            first = max(self.first - start, 0)
            last = rows.num_rows() if self.last is None else min(self.last - start, rows.num_rows())
            start += rows.num_rows()
            if first < last:
                whole = (first, last) == (0, rows.num_rows())
                cut = block if whole else rows.slice(first, last, copy=False)
                yield BlockAccessor.for_block(cut).to_batch_format("pandas")
