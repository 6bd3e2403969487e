"""Strips: some rows of a design matrix in memory, in one precision, with all products that a fit needs.

A matrix of any storage gives its rows as strips, one after the other. Code that sums over samples uses strips and does
not know their kind.
"""

from abc import ABC, abstractmethod
from itertools import pairwise

import torch
from torch import Tensor

# From this many columns on, a Gram matrix is computed in blocks, and those above the diagonal are transposes.
BLOCKS_FROM = 2048
BLOCKS = 4


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
        if n < BLOCKS_FROM:
            return self.cross([self], weights)
        # Only the blocks on and below the diagonal: five eighths of the work.
        weighted, bounds = weights * self.values, [n * k // BLOCKS for k in range(BLOCKS + 1)]
        blocks = [slice(a, b) for a, b in pairwise(bounds)]
        total = torch.empty(n, n, dtype=weighted.dtype, device=weighted.device)
        for i, low in enumerate(blocks):
            for right in blocks[: i + 1]:
                torch.mm(self.values[:, low].T, weighted[:, right], out=total[low, right])
                total[right, low] = total[low, right].T
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
        values = (self.values - shift.to(self.values)).div_(scale.to(self.values))
        if constant:
            values = torch.cat([values, values.new_full((len(values), 1), constant)], dim=1)
        return DenseStrip(values)

    def dense(self) -> Tensor:
        return self.values
