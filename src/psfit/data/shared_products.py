"""Gram matrices of some columns of a matrix, for one choice of columns after the other.

A search on candidates asks for them again with other candidates, of which most were candidates before. Then only the
products with new columns are made.
"""

from itertools import pairwise

import torch
from torch import Tensor

from psfit.data.matrix import DesignMatrix

# At most so many numbers are kept; they serve if at most this share of the columns is new.
MOST_KEPT = 1 << 25
MOST_NEW = 0.5


class SharedProducts:
    """The products of the last choices of columns of one matrix with its weights."""

    def __init__(self) -> None:
        self._last: dict[tuple[tuple[int, ...], torch.dtype], tuple[Tensor, Tensor]] = {}

    def multiply(self, chosen: DesignMatrix, columns: Tensor, weight: Tensor, bounds: tuple[int, ...]) -> Tensor:
        """``A_i' diag(w_i) A_i (N, k, k)`` for nodes with these bounds of rows, in the precision of ``weight (m, 1)``.

        The matrix `chosen` has the columns with the numbers ``columns (k,)``, which are sorted.
        """
        key = (bounds, weight.dtype)
        place, new = self._compare(columns, key)
        if int(new.sum()) > MOST_NEW * len(columns):
            parts = [chosen.rows(a, b).gram(weight[a:b], weight.dtype) for a, b in pairwise(bounds)]
            products = torch.stack(parts)
        else:
            at, known = new.nonzero().flatten(), (~new).nonzero().flatten()
            products = weight.new_empty(len(bounds) - 1, len(columns), len(columns))
            if len(at):
                parts = [_multiply_some(chosen.rows(a, b), weight[a:b], at) for a, b in pairwise(bounds)]
                beside = torch.stack(parts)
                products[:, :, at], products[:, at, :] = beside, beside.mT
            old = place[known]
            products[:, known.unsqueeze(1), known] = self._last[key][1][:, old.unsqueeze(1), old]
        if products.numel() <= MOST_KEPT:
            self._last[key] = columns, products
        return products

    def _compare(self, columns: Tensor, key: tuple[tuple[int, ...], torch.dtype]) -> tuple[Tensor, Tensor]:
        """Where each of the columns was in the last choice, and which of them are new."""
        if key not in self._last:
            return columns, torch.ones_like(columns, dtype=torch.bool)
        before = self._last[key][0]
        place = torch.searchsorted(before, columns).clamp(max=len(before) - 1)
        return place, before[place] != columns


def _multiply_some(matrix: DesignMatrix, weight: Tensor, index: Tensor) -> Tensor:
    """``A' diag(w) A_J (k, j)`` for the columns J of `index`."""
    total = weight.new_zeros(matrix.shape[1], len(index))
    for at, strip in matrix.strips(weight.dtype):
        total += strip.cross([strip.columns(index)], weight[at])
    return total
