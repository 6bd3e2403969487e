"""Strips of float32 rows on a GPU with products in float64, without a float64 copy of the rows."""

from functools import cached_property

import torch
from torch import Tensor

from psfit.data.strip import DenseStrip, Strip
from psfit.kernels import kernel

# A product with more columns is computed from a float64 copy of the strip, which is then faster.
MOST_COLUMNS = 16


class MixedPrecisionStrip(Strip):
    """Columns ``(a_j - shift_j) / scale_j`` of ``values (h, p)``, and a last column `constant` unless it is zero."""

    def __init__(self, values: Tensor, shift: Tensor, scale: Tensor, constant: float) -> None:
        self.values, self.shift, self.scale, self.constant = values, shift, scale, constant
        self.shape = (values.shape[0], values.shape[1] + (constant != 0))

    @classmethod
    def applies_to(cls, values: Tensor, dtype: torch.dtype) -> bool:
        """Whether products of these values in `dtype` can be computed in this way."""
        narrow = values.dtype == torch.float32 and dtype == torch.float64
        return narrow and kernel("forward", values.device) is not None

    def mv(self, X: Tensor) -> Tensor:
        if X.shape[1] <= MOST_COLUMNS:
            return self._forward(X, sizes=False)[0]
        scaled, rest = self._split(X)
        return self._centred @ scaled + rest

    def mv_with_sizes(self, X: Tensor) -> tuple[Tensor, Tensor]:
        if X.shape[1] <= MOST_COLUMNS:
            return self._forward(X, sizes=True)
        scaled, rest = self._split(X)
        return self._centred @ scaled + rest, self._centred.abs() @ scaled.abs() + rest.abs()

    def _forward(self, X: Tensor, sizes: bool) -> tuple[Tensor, Tensor]:
        scaled, rest = self._split(X)
        found = kernel("forward", self.values.device)(self.values[None], scaled[None], self.shift, sizes)[:, 0]
        return found[0] + rest, found[-1] + rest.abs()

    def _split(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """The factors of the centred columns, and what the constant column adds to every row."""
        p = self.values.shape[1]
        return X[:p] / self.scale.unsqueeze(1), self.constant * X[p:].sum(dim=0, keepdim=True)

    @cached_property
    def _centred(self) -> Tensor:
        """``a_j - shift_j`` in float64."""
        return self.values - self.shift

    def rmv(self, R: Tensor) -> Tensor:
        if R.shape[1] <= MOST_COLUMNS:
            sums = kernel("backward", self.values.device)(self.values, R, self.shift)
        else:
            sums = self._centred.T @ R
        sums = sums / self.scale.unsqueeze(1)
        return torch.cat([sums, self.constant * R.sum(dim=0, keepdim=True)]) if self.constant else sums

    def cross(self, others: list[Strip], weights: Tensor) -> Tensor:
        return self._copy.cross(others, weights)

    def gram(self, weights: Tensor) -> Tensor:
        return self._copy.gram(weights)

    def sums(self, R: Tensor, about: Tensor) -> Tensor:
        return self._copy.sums(R, about)

    def squares(self, R: Tensor, about: Tensor | None = None) -> Tensor:
        return self._copy.squares(R, about)

    def magnitudes(self, X: Tensor) -> Tensor:
        return self._forward(X, sizes=True)[1]

    def columns(self, index: Tensor) -> DenseStrip:
        return self._copy.columns(index)

    def rows(self, index: Tensor) -> "MixedPrecisionStrip":
        return MixedPrecisionStrip(self.values[index], self.shift, self.scale, self.constant)

    def standardise(self, shift: Tensor, scale: Tensor, constant: float) -> DenseStrip:
        return self._copy.standardise(shift, scale, constant)

    def dense(self) -> Tensor:
        return self._copy.values

    @cached_property
    def _copy(self) -> DenseStrip:
        """All columns in float64."""
        return DenseStrip(self.values.double()).standardise(self.shift, self.scale, self.constant)
