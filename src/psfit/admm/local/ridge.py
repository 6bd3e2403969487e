"""Regularised least squares, factored once: ``(diag(w) + sigma A_i' D_i A_i)^-1`` for every node.

`D` holds the sample weights. When a node has as many rows as columns, or its quadratic form is known already, the
Gram matrix is factored; with fewer rows the matrix inversion lemma moves the factor to the samples:

    (W + sigma A'DA)^-1 = W^-1 - W^-1 B' (I / sigma + B W^-1 B')^-1 B W^-1,   B = sqrt(D) A.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from psfit.data import DesignMatrix, NodeSplit
from psfit.kernels.linalg import cholesky, few_columns

BATCH_BELOW = 512


class RidgeFactor(ABC):
    """A factored operator on ``(N, n, c)``."""

    @abstractmethod
    def solve(self, rhs: Tensor) -> Tensor:
        """Apply the inverse to every node's right-hand side."""


def ridge_factor(split: NodeSplit, weight: Tensor, sigma: float) -> RidgeFactor:
    """The cheaper form by shape; `weight` is ``(n, 1)``."""
    if split.tall or split.source.forms.known is not None:
        return GramFactor(split, weight, sigma)
    return WoodburyFactor(split, weight, sigma)


class GramFactor(RidgeFactor):
    """Explicit inverses of all nodes' matrices, applied by one batched product.

    A product with the inverse reads as many bytes as two triangular solves and, unlike them, runs at memory speed on a
    GPU. The weight keeps the matrices well conditioned, so nothing is lost.
    """

    def __init__(self, split: NodeSplit, weight: Tensor, sigma: float) -> None:
        H = (sigma / 2) * split.G
        H.diagonal(dim1=1, dim2=2).add_(weight.T)
        # Small matrices as one batch; for large ones the routines for a single matrix are the faster ones.
        parts = [H] if H.shape[1] < BATCH_BELOW else list(H.split(1))
        self.inverse = torch.cat([torch.cholesky_inverse(cholesky(part)) for part in parts])

    def solve(self, rhs: Tensor) -> Tensor:
        return few_columns(self.inverse, rhs)


class WoodburyFactor(RidgeFactor):
    """Inverses on the sample side, one per node since their sizes differ; two passes over the data per solve."""

    def __init__(self, split: NodeSplit, weight: Tensor, sigma: float) -> None:
        self.split = split
        self.weight = weight
        self.root = split.source.working_weight.sqrt()
        self.inverses = split.per_node(lambda A, rows: self._inverse(A, rows, sigma))

    def _inverse(self, A: DesignMatrix, rows: slice, sigma: float) -> Tensor:
        root = self.root[rows]
        K = torch.eye(A.shape[0], dtype=A.dtype, device=A.device) / sigma
        # Column by block of columns, so that no dense copy of the whole node is ever made.
        width = max(1, (64 << 20) // (A.shape[0] * A.dtype.itemsize))
        for start in range(0, A.shape[1], width):
            part = slice(start, min(start + width, A.shape[1]))
            B = root * A.columns(part).chunk(0, A.shape[0], A.dtype)
            K.addmm_(B, B.T / self.weight[part])
        return torch.cholesky_inverse(cholesky(K))

    def solve(self, rhs: Tensor) -> Tensor:
        y = rhs / self.weight
        r = self.root * self.split.mv(y)
        bounds = self.split.bounds
        parts = [K @ r[bounds[i] : bounds[i + 1]] for i, K in enumerate(self.inverses)]
        return y - self.split.rmv(self.root * torch.cat(parts)) / self.weight
