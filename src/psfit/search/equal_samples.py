"""Samples that are equal on a support are one sample with the sum of their weights.

Where columns have few different values, as those of categories, counts and answers to questions, few different samples
are left on a small support, and a fit on them costs as little. Each rank merges its own samples.

A sample is written as one number, its key: each column has some of the bits, which hold the number of its value. The
value of most samples has the number zero, so that only the others are kept and counted.
"""

import numpy as np
import torch
from torch import Tensor

from psfit.data import Source
from psfit.data.sparse import SparseStrip
from psfit.search.support_samples import SupportSamples

# Samples are merged if there are at least so many, and if at most this share of them is left.
FEWEST_SAMPLES = 2048
WORTHWHILE = 0.25
# The most different values of a column; in so many of the first samples they are looked for before all are read.
MOST_LEVELS = 16
FIRST = 256
# The bits of a key.
MOST_BITS = 62
# At most so many numbers are kept, zeros not counted, with five bytes for each; and so many are read at once.
MOST_CODES = 1 << 25
MOST_READ = 1 << 26

# The different values of a column, that of most samples first; the samples that have others, and the numbers of these.
Numbered = tuple[np.ndarray, np.ndarray, np.ndarray]


class EqualSamples:
    """The samples of a rank, of one output; the columns that have been read are kept.

    The first row of the table belongs to the targets, the others to columns with few different values.
    """

    def __init__(self, source: Source, output: int) -> None:
        self.matrix, self.weight = source.matrix, source.weight[:, 0].numpy()
        # The row of each column that was read, or -1 if it has many values.
        self._rows: dict[int, int] = {}
        self._levels, self._bits = np.empty((0, MOST_LEVELS)), np.empty(0, np.int64)
        # The samples whose numbers are not zero, and these, one row after the other.
        self._starts, self._samples, self._codes = np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.uint8)
        target = source.target[:, output].numpy()
        self.suits = not np.iscomplexobj(target) and self._add([_number_values(target)]) == [0]

    def merge(self, places: Tensor) -> SupportSamples | None:
        """The different samples on supports, whose columns are ``places (B, d)``; None if they are too many."""
        if not self.suits or not self._know(torch.unique(places).tolist()):
            return None
        from psfit.kernels.cpu.equal_samples import read_keys

        rows = np.array([[0, *map(self._rows.__getitem__, support)] for support in places.tolist()])
        ends = np.pad(self._bits[rows].cumsum(axis=1), ((0, 0), (1, 0)))
        if int(ends.max()) > MOST_BITS:
            return None
        found = []
        for own, place in zip(rows, ends, strict=True):
            different = self._count(own, place)
            if different is None:
                return None
            found.append(different)
        # Where a support has fewer different samples, the first one stands again, without a weight.
        size = max(len(keys) for keys, _ in found)
        values, weight = np.zeros((len(found), size, rows.shape[1])), np.zeros((len(found), size))
        for b, (keys, sums) in enumerate(found):
            weight[b, : len(keys)] = sums
            read_keys(keys, rows[b], ends[b], self._levels, values[b])
            values[b, len(keys) :] = values[b, 0]
        target, columns = torch.from_numpy(values).split([1, rows.shape[1] - 1], dim=2)
        return SupportSamples(columns.contiguous(), target.squeeze(2).contiguous(), torch.from_numpy(weight))

    def _count(self, rows: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The different keys of the samples on some rows of the table, and the sums of their weights; None if many."""
        from psfit.kernels.cpu.equal_samples import count_samples

        most = int(WORTHWHILE * len(self.weight))
        keys, sums = np.empty(most, np.int64), np.empty(most)
        count = count_samples(rows, places, self._starts, self._samples, self._codes, self.weight, keys, sums)
        return None if count < 0 else (keys[:count].copy(), sums[:count].copy())

    def _know(self, columns: list[int]) -> bool:
        """Whether some columns have few values; those that were not read before are read."""
        new = [j for j in columns if j not in self._rows]
        if len(self._codes) > MOST_CODES or len(new) * len(self.weight) > MOST_READ:
            return False
        if new and self.matrix.few_entries:
            self._rows |= dict(zip(new, self._add(self._number_entries(new)), strict=True))
        elif new:
            self._rows |= dict.fromkeys(new, -1) | dict(zip(*self._read(new), strict=True))
        return all(self._rows[j] >= 0 for j in columns)

    def _read(self, columns: list[int]) -> tuple[list[int], list[int]]:
        """The numbers of those of some columns that seem to have few values, and their rows in the table."""
        count = min(FIRST, self.matrix.shape[0])
        first = self.matrix.rows(0, count).columns(torch.tensor(columns)).chunk(0, count, torch.float64)
        few = [j for j, column in zip(columns, first.T.numpy(), strict=True) if len(np.unique(column)) <= MOST_LEVELS]
        if not few:
            return [], []
        table = self.matrix.columns(torch.tensor(few)).chunk(0, self.matrix.shape[0], torch.float64)
        return few, self._add([_number_values(column) for column in np.ascontiguousarray(table.T.numpy())])

    def _number_entries(self, columns: list[int]) -> list[Numbered | None]:
        """The numbered values of some columns with sparse entries."""
        _, strip = next(iter(self.matrix.strips(torch.float64)))
        assert isinstance(strip, SparseStrip)
        parts = (strip.find_entries(j) for j in columns)
        return [_number_parts(rows.numpy(), entries.numpy(), rest) for rows, entries, rest in parts]

    def _add(self, found: list[Numbered | None]) -> list[int]:
        """The rows of new columns in the table; -1 for those that have many values."""
        few = [one for one in found if one is not None]
        if few:
            padded = [np.pad(levels, (0, MOST_LEVELS - len(levels))) for levels, _, _ in few]
            self._levels = np.vstack([self._levels, *padded])
            ends = self._starts[-1] + np.cumsum([len(samples) for _, samples, _ in few])
            self._starts = np.concatenate([self._starts, ends])
            self._samples = np.concatenate([self._samples, *(samples.astype(np.int32) for _, samples, _ in few)])
            self._codes = np.concatenate([self._codes, *(codes.astype(np.uint8) for _, _, codes in few)])
            bits = [(len(levels) - 1).bit_length() for levels, _, _ in few]
            self._bits = np.concatenate([self._bits, np.array(bits, np.int64)])
        numbers = iter(range(len(self._bits) - len(few), len(self._bits)))
        return [-1 if one is None else next(numbers) for one in found]


def _number_values(column: np.ndarray) -> Numbered | None:
    """The values of a column, numbered; None if they are many."""
    low, high = column.min(), column.max()
    above = column != low
    if bool((column[above] == high).all()):
        levels, codes = np.unique([low, high]), above
    else:
        levels = np.unique(column)
        codes = np.searchsorted(levels, column)
    if len(levels) > MOST_LEVELS or not np.isfinite(levels).all():
        return None
    most = int(np.bincount(codes).argmax())
    order = np.concatenate([[most], np.delete(np.arange(len(levels)), most)])
    samples = np.flatnonzero(codes != most)
    return levels[order], samples, order.argsort()[codes[samples].astype(np.int64)]


def _number_parts(samples: np.ndarray, entries: np.ndarray, rest: float) -> Numbered | None:
    """The same for a column with `entries` in some samples, and the number `rest` in all others."""
    if len(np.unique(entries[:FIRST])) >= MOST_LEVELS:
        return None
    same = bool((entries == entries[:1]).all())
    levels = np.unique(entries[:1] if same else entries)
    if len(levels) >= MOST_LEVELS or not np.isfinite(np.append(levels, rest)).all():
        return None
    codes = np.ones(len(samples), np.uint8) if same else 1 + np.searchsorted(levels, entries)
    return np.concatenate([[rest], levels]), samples, codes
