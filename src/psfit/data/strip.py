"""Strips: some rows of a design matrix in memory, in one precision, with all products that a fit needs.

A matrix of any storage gives its rows as strips, one after the other. Code that sums over samples uses strips and does
not know their kind.
"""

from abc import ABC, abstractmethod
from itertools import pairwise

import torch
from torch import Tensor

# From this many columns on, by the kind of device, a Gram matrix is computed in blocks of columns. What is above its
# diagonal is transposed, so this takes five eighths of the work.
BLOCKS_FROM = {"cpu": 256, "cuda": 2048}
BLOCKS = 4
# With at most this many columns, compiled loops are faster than a library: on one thread, or if the work is small.
FEW_COLUMNS = 64
SMALL_WORK = 1 << 25


class Strip(ABC):
    """Rows ``A (h, n)`` in memory."""

    shape: tuple[int, int]

    @abstractmethod
    def mv(self, X: Tensor) -> Tensor:
        """``A X`` for ``X (n, c)``."""

    @abstractmethod
    def rmv(self, R: Tensor) -> Tensor:
        """``A' R`` for ``R (h, c)``."""

    @abstractmethod
    def cross(self, others: list["Strip"], weights: Tensor) -> Tensor:
        """``A' diag(w_k) B_k`` for the k-th of `others` and column of ``weights (h, k)``, side by side."""

    def gram(self, weights: Tensor) -> Tensor:
        """``A' diag(weights) A`` for ``weights (h, 1)``."""
        return self.cross([self], weights)

    @abstractmethod
    def sums(self, R: Tensor, about: Tensor) -> Tensor:
        """``A' R (n, c)`` after subtracting ``about (n,)`` from the rows."""

    @abstractmethod
    def squares(self, R: Tensor, about: Tensor | None = None) -> Tensor:
        """``D' R (n, c)`` where D holds the squares of the entries after subtracting ``about (n,)`` from the rows."""

    @abstractmethod
    def magnitudes(self, X: Tensor) -> Tensor:
        """At least ``|A| |X|``: rounding errors of `mv` are proportional to it."""

    def mv_with_sizes(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """`mv` and `magnitudes`."""
        return self.mv(X), self.magnitudes(X)

    @abstractmethod
    def columns(self, index: Tensor) -> "Strip":
        """Some columns, by sorted indices."""

    @abstractmethod
    def rows(self, index: Tensor) -> "Strip":
        """Some rows, by index."""

    @abstractmethod
    def standardise(self, shift: Tensor, scale: Tensor, constant: float) -> "Strip":
        """Columns ``(a_j - shift_j) / scale_j`` and, unless `constant` is zero, a last column of it."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The rows as a dense tensor."""


class DenseStrip(Strip):
    """A dense tensor."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.shape = (values.shape[0], values.shape[1])

    def mv(self, X: Tensor) -> Tensor:
        return self.values @ X

    def rmv(self, R: Tensor) -> Tensor:
        return (R.T @ self.values).T

    def cross(self, others: list[Strip], weights: Tensor) -> Tensor:
        weighted = [weights[:, k : k + 1] * other.dense() for k, other in enumerate(others)]
        return self.values.T @ (weighted[0] if len(weighted) == 1 else torch.cat(weighted, dim=1))

    def gram(self, weights: Tensor) -> Tensor:
        n = self.shape[1]
        if self._suits_loops:
            return self._gram_by_loops(weights)
        if n < BLOCKS_FROM[self.values.device.type]:
            return self.cross([self], weights)
        weighted = weights * self.values
        total = torch.empty(n, n, dtype=weighted.dtype, device=weighted.device)
        for a, b in pairwise(n * k // BLOCKS for k in range(BLOCKS + 1)):
            torch.mm(self.values[:, a:b].T, weighted[:, :b], out=total[a:b, :b])
            total[:a, a:b] = total[a:b, :a].T
        return total

    @property
    def _suits_loops(self) -> bool:
        values, (h, n) = self.values, self.shape
        if values.device.type != "cpu" or values.dtype != torch.float64 or not 0 < n <= FEW_COLUMNS:
            return False
        return values.is_contiguous() and (h * n * n <= SMALL_WORK or torch.get_num_threads() == 1)

    def _gram_by_loops(self, weights: Tensor) -> Tensor:
        from psfit.kernels.cpu.weighted_gram import add_weighted_gram

        total = self.values.new_zeros(self.shape[1], self.shape[1])
        add_weighted_gram(self.values.numpy(), weights[:, 0].contiguous().numpy(), total.numpy())
        return total

    def sums(self, R: Tensor, about: Tensor) -> Tensor:
        return (self.values - about).T @ R

    def squares(self, R: Tensor, about: Tensor | None = None) -> Tensor:
        values = self.values if about is None else self.values - about
        return values.square().T @ R

    def magnitudes(self, X: Tensor) -> Tensor:
        # By Cauchy and Schwarz: a pass over the rows without a copy of them.
        return self.values.norm(dim=1, keepdim=True) * X.norm(dim=0, keepdim=True)

    def columns(self, index: Tensor) -> "DenseStrip":
        return DenseStrip(self.values[:, index])

    def rows(self, index: Tensor) -> "DenseStrip":
        return DenseStrip(self.values[index])

    def standardise(self, shift: Tensor, scale: Tensor, constant: float) -> "DenseStrip":
        h, n = self.shape
        values = self.values.new_empty(h, n + (constant != 0))
        values[:, n:] = constant
        torch.sub(self.values, shift.to(self.values), out=values[:, :n]).div_(scale.to(self.values))
        return DenseStrip(values)

    def dense(self) -> Tensor:
        return self.values
