"""Compressed sparse rows on any device: the three arrays of the format, and what can be made of them."""

import warnings
from functools import cached_property

import scipy.sparse
import torch
from torch import Tensor


class Csr:
    """Compressed sparse rows and, when it is needed, their transpose."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix
        self.shape = (matrix.shape[0], matrix.shape[1])

    @classmethod
    def of(cls, starts: Tensor, places: Tensor, values: Tensor, shape: tuple[int, int]) -> "Csr":
        """From the three arrays of the format: the starts of rows, the columns of the entries, the entries."""
        with warnings.catch_warnings():
            # torch warns that the format is a beta; the text differs between versions.
            warnings.simplefilter("ignore", UserWarning)
            return cls(torch.sparse_csr_tensor(starts, places, values, size=shape, check_invariants=False))

    @property
    def starts(self) -> Tensor:
        return self.matrix.crow_indices()

    @property
    def places(self) -> Tensor:
        """The column of every entry."""
        return self.matrix.col_indices()

    @property
    def values(self) -> Tensor:
        return self.matrix.values()

    @cached_property
    def transpose(self) -> "Csr":
        """The transpose in the same format."""
        starts, places, values = self.starts, self.places, self.values
        shape = (self.shape[1], self.shape[0])
        if values.device.type == "cpu":
            rows = self._scipy_matrix.tocsc()
            arrays = [torch.from_numpy(array) for array in (rows.indptr, rows.indices, rows.data)]
            other = Csr.of(arrays[0].to(starts.dtype), arrays[1].to(places.dtype), arrays[2], shape)
        else:
            # A stable sort keeps the entries of a row in order.
            order = torch.argsort(places, stable=True)
            starts_of = torch.searchsorted(
                places[order], torch.arange(shape[0] + 1, device=places.device, dtype=places.dtype)
            )
            other = Csr.of(starts_of.to(starts.dtype), self.entry_rows[order].to(places.dtype), values[order], shape)
        _pair(self, other)
        return other

    @property
    def _scipy_matrix(self) -> scipy.sparse.csr_matrix:
        """The matrix as SciPy's, in the same memory."""
        arrays = self.values.numpy(), self.places.numpy(), self.starts.numpy()
        return scipy.sparse.csr_matrix(arrays, shape=self.shape)

    def times(self, other: "Csr") -> Tensor:
        """The dense product with another matrix; on the host by SciPy, since torch never frees such products there."""
        if self.values.device.type == "cpu":
            return torch.from_numpy((self._scipy_matrix @ other._scipy_matrix).toarray())
        return (self.matrix @ other.matrix).to_dense()

    def add_up_gram(self, weights: Tensor) -> Tensor:
        """``A' diag(weights) A`` for ``weights (h,)``, on the host; sums are made in float64."""
        from psfit.kernels.cpu.sparse_gram import add_up_gram

        starts, places, values = self.starts.numpy(), self.places.numpy(), self.values.numpy()
        total = add_up_gram(starts, places, values, weights.double().contiguous().numpy(), self.shape[1])
        return torch.from_numpy(total).to(self.values.dtype)

    @property
    def entry_rows(self) -> Tensor:
        """The row of every entry."""
        rows = torch.arange(self.shape[0], device=self.starts.device)
        return rows.repeat_interleave(self.starts.diff(), output_size=len(self.values))

    def with_values(self, values: Tensor) -> "Csr":
        """Other entries in the same places."""
        return Csr.of(self.starts, self.places, values, self.shape)

    def to(self, dtype: torch.dtype) -> "Csr":
        """The matrix in another precision."""
        if dtype == self.values.dtype:
            return self
        other, back = self.with_values(self.values.to(dtype)), self.transpose
        return _pair(other, back.with_values(back.values.to(dtype)))

    def rows(self, start: int, stop: int) -> "Csr":
        """A range of rows, in the same memory."""
        first, last = int(self.starts[start]), int(self.starts[stop])
        starts = self.starts[start : stop + 1] - first
        return Csr.of(starts, self.places[first:last], self.values[first:last], (stop - start, self.shape[1]))

    def take_rows(self, index: Tensor) -> "Csr":
        """Some rows, by index."""
        counts = self.starts.diff()[index]
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0).to(counts.dtype)])
        shift = (self.starts[index] - starts[:-1]).repeat_interleave(counts)
        at = shift + torch.arange(len(shift), device=shift.device)
        return Csr.of(starts, self.places[at], self.values[at], (len(index), self.shape[1]))

    def columns(self, index: Tensor) -> "Csr":
        """Some columns, by index."""
        return self.transpose.take_rows(index).transpose


def _pair(csr: Csr, transpose: Csr) -> Csr:
    """Set two matrices as each other's transposes."""
    csr.__dict__["transpose"], transpose.__dict__["transpose"] = transpose, csr
    return csr
