"""A number for the entries of a matrix: matrices with other entries have, almost certainly, another number.

A row is read as words of 64 bits, and its number is the sum of the words times fixed keys. These numbers are mixed with
the places of the rows and summed, all modulo 2^64. So rows can be added block by block, on any device, and the result
does not depend on the blocks. It finds data that were changed by mistake, but gives no protection against forgery.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

SEED = 20240229
LOWER_HALF = (1 << 32) - 1
# Words that are added at a time: as many as fit a cache, or keep a GPU busy.
PIECE = {"cpu": 1 << 18, "cuda": 1 << 24}
# Flat arrays are cut into rows of this many bytes.
ROW_BYTES = 4096


class Fingerprint:
    """The number for rows that are added in order, from row `first` on."""

    def __init__(self, first: int = 0) -> None:
        self.next = first
        self.total = 0
        self._keys = torch.empty(0, dtype=torch.int64)

    def add(self, start: int, block: Tensor) -> None:
        """Add the rows of a block that begins at row `start`; rows that were added before are left out."""
        known = self.next - start
        if not 0 <= known < len(block):
            return
        height = max(1, PIECE[block.device.type] // max(1, block.shape[1]))
        for at in range(known, len(block), height):
            self._add(block[at : at + height])

    def _add(self, rows: Tensor) -> None:
        words = _words(rows)
        # If the lower halves of all words were zero, the upper halves of the keys would have no effect.
        words = words ^ ((words >> 32) & LOWER_HALF)
        keys = self._keys_for(words)
        sums = words @ keys if words.device.type == "cpu" else (words * keys).sum(dim=1)
        places = torch.arange(self.next, self.next + len(rows), device=rows.device)
        self.total = (self.total + int(_mix(sums ^ _mix(places)).sum())) % (1 << 64)
        self.next += len(rows)

    def _keys_for(self, words: Tensor) -> Tensor:
        if len(self._keys) != words.shape[1]:
            source = torch.Generator().manual_seed(SEED)
            keys = torch.randint(-(1 << 63), (1 << 63) - 1, (words.shape[1],), generator=source)
            self._keys = keys.to(words.device)
        return self._keys

    def __str__(self) -> str:
        return f"{self.total:016x}"


def fingerprint(values: Tensor) -> str:
    """The number and the shape of an array."""
    flat = values.contiguous().flatten().view(torch.uint8)
    number = Fingerprint()
    number.add(0, pad(flat, (0, -len(flat) % ROW_BYTES)).view(-1, ROW_BYTES))
    return f"{number}-{'x'.join(map(str, values.shape))}"


def _words(rows: Tensor) -> Tensor:
    """Rows of numbers as rows of 64-bit words."""
    missing = -rows.shape[1] % (8 // rows.element_size())
    return (pad(rows, (0, missing)) if missing else rows.contiguous()).view(torch.int64)


def _mix(words: Tensor) -> Tensor:
    """Words that look random; equal arguments give equal words."""
    words = (words + 1) * 0x1E3779B97F4A7C15
    words = (words ^ (words >> 30)) * 0x3F58476D1CE4E5B9
    words = (words ^ (words >> 27)) * 0x14D049BB133111EB
    return words ^ (words >> 31)
