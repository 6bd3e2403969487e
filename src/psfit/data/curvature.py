"""The matrix of a quadratic form, with bounds on its rounding errors and on its smallest eigenvalue."""

from dataclasses import dataclass
from functools import cached_property
from math import inf

import torch
from torch import Tensor

from psfit.kernels.eigenvalues import least_eigenvalue

EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class Curvature:
    """``G = 2 A'WA (..., n, n)`` of some columns and weights; it is shared by all targets and ridges.

    Parameters
    ----------
    G : Tensor (..., n, n)
        With a leading axis, one matrix for each node.
    rounded : Tensor (..., n)
        If `G` is that of rounded columns: the weighted squares of what was rounded off each column.
    entry_error : float
        By how much rounding of the sums may have changed any entry. Infinite where nothing is known.
    spectral_error : float
        By how much, in the spectral norm, rounding of the columns may have changed the matrix in addition.
    rank : float
        The rank of the matrix without errors is at most this.
    """

    G: Tensor
    rounded: Tensor
    entry_error: float = inf
    spectral_error: float = inf
    rank: float = inf

    @property
    def size(self) -> int:
        """The number n of variables."""
        return self.G.shape[-1]

    @cached_property
    def diagonal(self) -> Tensor:
        """The diagonal entries ``(..., n)``."""
        return self.G.diagonal(dim1=-2, dim2=-1)

    @cached_property
    def row_norms(self) -> Tensor:
        """Euclidean norms of the rows ``(n,)``."""
        return torch.linalg.vector_norm(self.G, dim=-1)

    @cached_property
    def smallest_eigenvalue(self) -> float:
        """A lower bound of the smallest eigenvalue that holds despite rounding; computed once."""
        return self._subtract_errors(least_eigenvalue(self.G), 0.0) if self.size else 0.0

    def smallest_eigenvalue_without(self, d: Tensor) -> float:
        """A lower bound of the smallest eigenvalue of ``G - diag(d)`` that holds despite rounding."""
        rest = self.G.clone()
        rest.diagonal().sub_(d)
        return self._subtract_errors(least_eigenvalue(rest), float(d.sum())) if self.size else 0.0

    def _subtract_errors(self, least: float, moved: float) -> float:
        """A computed eigenvalue less all errors, where the diagonal has changed by `moved` in all."""
        n = self.size
        return least - n * self.entry_error - self.spectral_error - 8 * n * EPS * (float(self.diagonal.sum()) + moved)

    @cached_property
    def extracted(self) -> Tensor:
        """Curvature ``(n,)``, the same for every variable, that can certainly be subtracted from the diagonal."""
        least = 0.0 if self.size > self.rank else max(self.smallest_eigenvalue, 0.0)
        return torch.full_like(self.diagonal, least)
