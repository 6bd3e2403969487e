"""The open nodes of a search tree, as rows of tensors on the device of the search.

Rows that were taken out are used again. So a batch of thousands of nodes is added or taken by a few operations, and all
open nodes together can be written to a file.
"""

from math import inf

import torch
from torch import Tensor

# The fewest rows that are added when there is no room.
FEWEST_ROWS = 256


class OpenNodes:
    """Nodes with their bounds and depths; the other columns of a row are known only to the search."""

    def __init__(self, device: torch.device) -> None:
        # Rows that are not used have the bound infinity.
        self.lower = torch.empty(0, dtype=torch.float64, device=device)
        self.depth = torch.empty(0, dtype=torch.int32, device=device)
        self.columns: tuple[Tensor, ...] = ()
        self.count = 0

    def __len__(self) -> int:
        return self.count

    @property
    def lowest(self) -> float:
        """The smallest bound; infinity if no node is open."""
        return float(self.lower.min()) if self.count else inf

    def add(self, lower: Tensor, depth: Tensor, rows: tuple[Tensor, ...]) -> None:
        """Add nodes with finite bounds ``(B,)`` and depths ``(B,)``."""
        count = len(lower)
        if self.count + count > len(self.lower):
            self._grow(max(FEWEST_ROWS, count, len(self.lower)), rows)
        places = self.lower.isposinf().nonzero().flatten()[:count]
        self.lower[places], self.depth[places] = lower, depth.to(torch.int32)
        for column, row in zip(self.columns, rows, strict=True):
            column[places] = row
        self.count += count

    def _grow(self, added: int, like: tuple[Tensor, ...]) -> None:
        self.lower = torch.cat([self.lower, self.lower.new_full((added,), inf)])
        self.depth = torch.cat([self.depth, self.depth.new_zeros(added)])
        columns = self.columns or tuple(row[:0] for row in like)
        self.columns = tuple(torch.cat([column, column.new_empty(added, *column.shape[1:])]) for column in columns)

    def close(self, enough: float) -> float:
        """Take out all nodes with bounds of at least `enough`; return the smallest of these bounds."""
        high = (self.lower >= enough) & self.lower.isfinite()
        closed = int(high.sum())
        if not closed:
            return inf
        least = float(self.lower[high].min())
        self.lower[high] = inf
        self.count -= closed
        return least

    def take(self, most: int, deepest: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Take out at most so many nodes, those with the smallest bounds or the `deepest` ones: bounds and rows."""
        key = torch.where(self.lower.isposinf(), -1.0, self.depth.double()) if deepest else -self.lower
        places = key.topk(min(most, self.count)).indices
        found = self.lower[places], tuple(column[places] for column in self.columns)
        self.lower[places] = inf
        self.count -= len(places)
        return found

    def rows(self) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """The bounds, depths and other columns of all open nodes."""
        places = self.lower.isfinite().nonzero().flatten()
        return self.lower[places], self.depth[places], tuple(column[places] for column in self.columns)
