"""Regularised least squares, factored once: ``(diag(w) + sigma A_i' D_i A_i)^-1`` for every node.

`D` holds the sample weights. When a node has as many rows as columns, or its quadratic form is known already, the
Gram matrix is factored; with fewer rows the matrix inversion lemma moves the factor to the samples:

    (W + sigma A'DA)^-1 = W^-1 - W^-1 B' (I / sigma + B W^-1 B')^-1 B W^-1,   B = sqrt(D) A.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from psfit.data import DesignMatrix, NodeSplit
from psfit.kernels.blocks import invert
from psfit.kernels.linalg import cholesky, few_columns

BATCH_BELOW = 512


class RidgeFactor(ABC):
    """A factored operator on ``(N, n, c)``."""

    @abstractmethod
    def solve(self, rhs: Tensor) -> Tensor:
        """Apply the inverse to every node's right-hand side."""

    @abstractmethod
    def descend(self, x: Tensor, v: Tensor, slopes: Callable[[Tensor], Tensor], of_differences: bool) -> Tensor:
        """The minimiser of ``s'(A y - A x) + sigma / 2 ||A y - A x||^2 + 1/2 ||y - v||_w^2`` over y, for every node.

        Parameters
        ----------
        x, v : Tensor (N, n, c)
        slopes : callable
            The slopes ``s (m, c)`` of predictors ``A x (m, c)``; the metric of the samples is that of their weights.
        of_differences : bool
            Whether the slopes of a sample sum to zero. Then the quadratic term is that of the predictors less their
            mean over the outputs.
        """


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
        self.split, self.weight = split, weight
        H = (sigma / 2) * split.G
        H.diagonal(dim1=1, dim2=2).add_(weight.T)
        # Small matrices as one batch; for large ones the routines for a single matrix are the faster ones.
        parts = [H] if H.shape[1] < BATCH_BELOW else list(H.split(1))
        self.inverse = torch.cat([invert(cholesky(part)) for part in parts])

    def solve(self, rhs: Tensor) -> Tensor:
        if rhs.is_cuda or rhs.shape[2] == 1:
            return few_columns(self.inverse, rhs)
        # The inverse is symmetric, and the libraries of CPUs are fastest in this order.
        return (rhs.mT @ self.inverse).mT

    def descend(self, x: Tensor, v: Tensor, slopes: Callable[[Tensor], Tensor], of_differences: bool) -> Tensor:
        pull = self.split.rmv(self.split.source.working_weight * slopes(self.split.mv(x)))
        if not of_differences:
            return x - self.solve(torch.addcmul(pull, self.weight, x - v))
        # The mean over the outputs has no slope, so it goes to that of v.
        mean = v.mean(dim=2, keepdim=True)
        x = x - x.mean(dim=2, keepdim=True)
        return mean + x - self.solve(torch.addcmul(pull, self.weight, x - (v - mean)))


class WoodburyFactor(RidgeFactor):
    """Inverses on the sample side, one per node since their sizes differ; two passes over the data per solve."""

    def __init__(self, split: NodeSplit, weight: Tensor, sigma: float) -> None:
        self.split, self.weight, self.sigma = split, weight, sigma
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
        return invert(cholesky(K))

    def solve(self, rhs: Tensor) -> Tensor:
        y = rhs / self.weight
        return y - self._pull(self.root * self.split.mv(y))

    def descend(self, x: Tensor, v: Tensor, slopes: Callable[[Tensor], Tensor], of_differences: bool) -> Tensor:
        # With r = B (x - v) - s / sigma, the answer is v + W^-1 B' (I / sigma + B W^-1 B')^-1 r: one pass for the
        # predictors of x and v, and one back.
        eta, at_v = self.split.mv(torch.cat([x, v], dim=2)).split(x.shape[2], dim=1)
        r = self.root * (eta - at_v - slopes(eta) / self.sigma)
        if of_differences:
            r = r - r.mean(dim=1, keepdim=True)
        return v + self._pull(r)

    def _pull(self, r: Tensor) -> Tensor:
        """``W^-1 B' (I / sigma + B W^-1 B')^-1 r`` of every node."""
        bounds = self.split.bounds
        parts = [K @ r[bounds[i] : bounds[i + 1]] for i, K in enumerate(self.inverses)]
        pulled = parts[0] if len(parts) == 1 else torch.cat(parts)
        return self.split.rmv(self.root * pulled) / self.weight
