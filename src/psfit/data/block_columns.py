"""A node's matrix whose columns are divided between the ranks of its blocks.

The predictors of all columns are sums over these ranks. Where columns of several ranks are needed together (those of a
support, some rows for a Gram matrix), the ranks of the node gather them; other nodes get nothing of it.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from psfit.comm import Axis
from psfit.data.matrix import Dense, DesignMatrix


class BlockColumns(DesignMatrix):
    """A matrix of `width` columns: this rank has the columns `at` as `part`, other ranks of the feature axis the rest.

    Every rank of the axis must make the same calls.
    """

    def __init__(self, part: DesignMatrix, at: slice, width: int, axis: Axis) -> None:
        self.part, self.at, self.axis = part, at, axis
        self.shape = (part.shape[0], width)
        self.dtype = part.dtype
        self.device = part.device
        self.ends_here = axis.comm.rank == axis.comm.size - 1
        self.streamed = part.streamed
        self.centres_entries = part.centres_entries

    @property
    def own(self) -> tuple[slice, DesignMatrix]:
        return self.at, self.part

    @property
    def column_room(self) -> int:
        return self.part.column_room

    @property
    def rows_read(self) -> int:
        return self.part.rows_read

    def await_fingerprint(self) -> Callable[[], str]:
        return self.part.await_fingerprint()

    def fingerprint(self) -> str:
        return self.part.fingerprint()

    def mv(self, X: Tensor) -> Tensor:
        return self.axis.total(self.part.mv(X[self.at]))

    def rmv(self, R: Tensor) -> Tensor:
        return self._gather(self.part.rmv(R))

    def columns(self, index: slice | Tensor) -> DesignMatrix:
        if isinstance(index, Tensor):
            return self._gather_columns(index)
        start, stop, _ = index.indices(self.shape[1])
        if (start, stop) == (0, self.shape[1]):
            return self
        if self.at.start <= start and stop <= self.at.stop:
            return self.part.columns(slice(start - self.at.start, stop - self.at.start))
        return self._gather_columns(torch.arange(start, stop, device=self.device))

    def rows(self, start: int, stop: int) -> "BlockColumns":
        return BlockColumns(self.part.rows(start, stop), self.at, self.shape[1], self.axis)

    def chunk(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        return self._gather(self.part.chunk(start, stop, dtype).T).T

    def refine(self, shift: Tensor) -> tuple["BlockColumns", Tensor]:
        part, left = self.part.refine(shift[self.at])
        return BlockColumns(part, self.at, self.shape[1], self.axis), self._gather(left)

    def column_moments(self, weights: Tensor, about: Tensor) -> tuple[Tensor, Tensor]:
        local = torch.stack(self.part.column_moments(weights, about[self.at]), dim=1)
        sums, squares = self._gather(local).unbind(dim=1)
        return sums, squares

    def _gather(self, local: Tensor) -> Tensor:
        """An array over all columns ``(width, ...)``, gathered from the ranks."""
        whole = local.new_zeros(self.shape[1], *local.shape[1:])
        whole[self.at] = local
        return self.axis.total(whole)

    def _gather_columns(self, index: Tensor) -> DesignMatrix:
        """Some columns as a matrix, the same on every rank of the node."""
        here = (index >= self.at.start) & (index < self.at.stop)
        mine = self.part.columns(index[here] - self.at.start)
        values = torch.zeros(self.shape[0], len(index), dtype=self.dtype, device=self.device)
        values[:, here] = mine.chunk(0, self.shape[0], self.dtype)
        return Dense(self.axis.total(values))
