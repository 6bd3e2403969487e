"""Sparse design matrices: compressed rows on any device; the whole matrix is never made dense."""

import warnings
from collections.abc import Iterator

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from psfit.comm import Transfers
from psfit.data.csr import Csr
from psfit.data.fingerprint import fingerprint
from psfit.data.matrix import DesignMatrix
from psfit.data.sparse_checks import check_matrix, is_canonical
from psfit.data.strip import DenseStrip, Strip

# With a larger share of entries, products of a dense matrix cost less.
MOST_ENTRIES = 0.25


class SparseStrip(Strip):
    """Sparse rows, with means that are subtracted from the products instead of the entries."""

    def __init__(self, csr: Csr, shift: Tensor, scale: Tensor, constant: float) -> None:
        self.csr, self.shift, self.scale, self.constant = csr, shift, scale, constant
        self.shape = (csr.shape[0], csr.shape[1] + (constant != 0))

    @classmethod
    def plain(cls, csr: Csr) -> "SparseStrip":
        """Without shift, scale and constant column."""
        zero = torch.zeros(csr.shape[1], dtype=csr.values.dtype, device=csr.values.device)
        return cls(csr, zero, zero + 1, 0.0)

    def mv(self, X: Tensor) -> Tensor:
        Y = X[: len(self.scale)] / self.scale.unsqueeze(1)
        return self.csr.matrix @ Y + (self.constant * X[len(self.scale) :].sum(dim=0) - self.shift @ Y)

    def rmv(self, R: Tensor) -> Tensor:
        return self._correct(self.csr.transpose.matrix @ R, R.sum(dim=0))

    def _correct(self, raw: Tensor, totals: Tensor) -> Tensor:
        """``A' R`` from the products with the raw entries and the sums over rows."""
        G = (raw - self.shift.unsqueeze(1) * totals) / self.scale.unsqueeze(1)
        return torch.cat([G, self.constant * totals.unsqueeze(0)]) if self.constant else G

    def cross(self, others: list[Strip], weights: Tensor) -> Tensor:
        return torch.cat([self._cross(other, weights[:, k : k + 1]) for k, other in enumerate(others)], dim=1)

    def _cross(self, other: Strip, weight: Tensor) -> Tensor:
        if not isinstance(other, SparseStrip):
            return self.rmv(weight * other.dense())
        weighted = other.csr.with_values(weight[other.csr.entry_rows, 0] * other.csr.values)
        raw = self.csr.transpose.times(weighted)
        # First the products are corrected for the means of the other strip, then for those of this one.
        bare = self.csr.transpose.matrix @ weight
        half = (raw - bare * other.shift) / other.scale
        if other.constant:
            half = torch.cat([half, other.constant * bare], dim=1)
        return self._correct(half, other.rmv(weight)[:, 0])

    def gram(self, weights: Tensor) -> Tensor:
        if self.csr.values.device.type != "cpu":
            return super().gram(weights)
        G, bare = self.csr.add_up_gram(weights[:, 0]), (self.csr.transpose.matrix @ weights)[:, 0]
        total = weights.sum()
        centred = bare - total * self.shift
        G.addr_(bare, self.shift, alpha=-1).addr_(self.shift, centred, alpha=-1)
        G.div_(self.scale).div_(self.scale.unsqueeze(1))
        if not self.constant:
            return G
        edge = (self.constant * centred / self.scale).unsqueeze(1)
        corner = (self.constant**2 * total).reshape(1, 1)
        return torch.cat([torch.cat([G, edge], dim=1), torch.cat([edge.T, corner], dim=1)])

    def sums(self, R: Tensor, about: Tensor) -> Tensor:
        return self.rmv(R) - about.unsqueeze(1) * R.sum(dim=0)

    def squares(self, R: Tensor, about: Tensor | None = None) -> Tensor:
        n = len(self.scale)
        about = self.shift.new_zeros(self.shape[1]) if about is None else about.to(self.shift)
        # A column that is not used has an infinite scale, which makes it zero for every centre.
        centre = self.shift + torch.where(self.scale.isinf(), 0.0, about[:n] * self.scale)
        back = self.csr.transpose
        rows = back.entry_rows
        # The squares of the stored entries, and of all zeros together.
        stored = back.with_values((back.values - centre[rows]).square()).matrix @ R
        zeros = R.sum(dim=0) - back.with_values(torch.ones_like(back.values)).matrix @ R
        squares = (stored + centre.square().unsqueeze(1) * zeros) / self.scale.square().unsqueeze(1)
        if not self.constant:
            return squares
        return torch.cat([squares, ((self.constant - about[n:]) ** 2).unsqueeze(1) * R.sum(dim=0)])

    def magnitudes(self, X: Tensor) -> Tensor:
        n = len(self.scale)
        Y = X[:n].abs() / self.scale.unsqueeze(1)
        constant = abs(self.constant) * X[n:].abs().sum(dim=0)
        return self.csr.with_values(self.csr.values.abs()).matrix @ Y + (self.shift.abs() @ Y + constant)

    def columns(self, index: Tensor) -> "SparseStrip":
        inner = index[index < len(self.scale)]
        constant = self.constant * (len(inner) < len(index))
        return SparseStrip(self.csr.columns(inner), self.shift[inner], self.scale[inner], constant)

    def find_entries(self, column: int) -> tuple[Tensor, Tensor, float]:
        """The rows in which a column has entries, these entries, and the number in all other rows."""
        if column == len(self.scale):
            return torch.empty(0, dtype=torch.int32), self.scale.new_empty(0), self.constant
        back, shift, scale = self.csr.transpose, self.shift[column], self.scale[column]
        at = slice(int(back.starts[column]), int(back.starts[column + 1]))
        return back.places[at], (back.values[at] - shift) / scale, float((0.0 - shift) / scale)

    def rows(self, index: Tensor) -> "SparseStrip":
        return SparseStrip(self.csr.take_rows(index), self.shift, self.scale, self.constant)

    def standardise(self, shift: Tensor, scale: Tensor, constant: float) -> "SparseStrip":
        if self.constant:
            raise TypeError("a sparse strip with a constant column cannot be standardised again")
        shift, scale = shift.to(self.shift), scale.to(self.scale)
        return SparseStrip(self.csr, self.shift + shift * self.scale, self.scale * scale, constant)

    def dense(self) -> Tensor:
        values = (self.csr.matrix.to_dense() - self.shift) / self.scale
        return DenseStrip(values).standardise(torch.zeros(()), torch.ones(()), self.constant).values


def _canonical(matrix: "scipy.sparse.csr_matrix | Tensor") -> list[Tensor]:
    """Starts, columns and entries; entries that are stored twice are summed, or their squares would be wrong."""
    if isinstance(matrix, Tensor):
        arrays = [matrix.crow_indices(), matrix.col_indices(), matrix.values()]
        if is_canonical(*arrays[:2]):
            return arrays
        rows = Csr(matrix).entry_rows
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            places = torch.stack([rows, arrays[1].to(rows.dtype)])
            summed = torch.sparse_coo_tensor(places, arrays[2], tuple(matrix.shape)).coalesce().to_sparse_csr()
        return [summed.crow_indices(), summed.col_indices(), summed.values()]
    arrays = [torch.from_numpy(np.asarray(a)) for a in (matrix.indptr, matrix.indices, matrix.data)]
    if is_canonical(*arrays[:2]):
        return arrays
    # A new matrix: the flags that SciPy keeps on the caller's matrix may be wrong.
    own = scipy.sparse.csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape, copy=True)
    own.sum_duplicates()
    return [torch.from_numpy(a) for a in (own.indptr, own.indices, own.data)]


class Sparse(DesignMatrix):
    """Compressed sparse rows."""

    centres_entries = False

    def __init__(self, csr: Csr) -> None:
        self.csr, self.shape = csr, csr.shape
        self.dtype, self.device = csr.values.dtype, csr.values.device
        self.few_entries = len(csr.values) <= MOST_ENTRIES * self.shape[0] * self.shape[1]

    @classmethod
    def of(
        cls,
        matrix: "scipy.sparse.csr_matrix | Tensor",
        device: torch.device,
        dtype: torch.dtype | None,
        transfers: Transfers | None = None,
    ) -> "Sparse":
        """From SciPy's or torch's format; in the caller's memory if device and precision allow it."""
        arrays = _canonical(check_matrix(matrix))
        send = (transfers or Transfers()).send
        starts, places, values = (send(array, device, array.dtype) for array in arrays)
        # The libraries are fastest with short indices.
        short = max(len(values), *matrix.shape) < 2**31
        index = torch.int32 if short else torch.int64
        values = values.to(dtype or values.dtype)
        return cls(Csr.of(starts.to(index), places.to(index), values, (matrix.shape[0], matrix.shape[1])))

    def mv(self, X: Tensor) -> Tensor:
        return self.csr.matrix @ X

    def rmv(self, R: Tensor) -> Tensor:
        return self.csr.transpose.matrix @ R

    def columns(self, index: slice | Tensor) -> "Sparse":
        if isinstance(index, slice):
            if index.indices(self.shape[1]) == (0, self.shape[1], 1):
                return self
            index = torch.arange(self.shape[1], device=self.device)[index]
        return Sparse(self.csr.columns(index))

    def rows(self, start: int, stop: int) -> "Sparse":
        return self if (start, stop) == (0, self.shape[0]) else Sparse(self.csr.rows(start, stop))

    def chunk(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        return self.rows(start, stop).csr.matrix.to_dense().to(dtype)

    def refine(self, shift: Tensor) -> tuple["Sparse", Tensor]:
        return Sparse(self.csr.to(torch.float64)), shift

    def strips(self, dtype: torch.dtype | None = None) -> Iterator[tuple[slice, Strip]]:
        yield slice(0, self.shape[0]), SparseStrip.plain(self.csr.to(dtype or self.dtype))

    def fingerprint(self) -> str:
        return " ".join(fingerprint(array) for array in (self.csr.starts, self.csr.places, self.csr.values))
