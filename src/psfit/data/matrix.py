"""The design matrix, independent of its storage.

Code outside this package uses a `DesignMatrix` and does not know how it is stored. A kind of matrix supplies its
products and its rows as strips; Gram matrices and column statistics are computed from the strips.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property

import torch
from torch import Tensor

from psfit.data.fingerprint import Fingerprint
from psfit.data.integer_gram import available, integer_moments
from psfit.data.mixed_precision import MixedPrecisionStrip
from psfit.data.strip import DenseStrip, Strip
from psfit.kernels.linalg import few_columns, few_sums

# The bytes of a strip: as many as fit a cache, or keep a GPU busy without filling its memory.
STRIP_BYTES = 16 << 20
MOST_STRIP_BYTES = 2 << 30
MEMORY_SHARE = 1 / 32
# Up to this many standardised entries are kept on a CPU: 64 MiB.
MOST_KEPT = 1 << 23


class DesignMatrix(ABC):
    """Samples by features, ``(m, n)``."""

    shape: tuple[int, int]
    dtype: torch.dtype
    device: torch.device

    # Whether this rank has the last column.
    ends_here = True
    # Whether every pass reads the data again, so that the number of passes decides the time of a fit.
    streamed = False
    # Whether strips subtract means from each entry; a sparse matrix corrects its products instead.
    centres_entries = True
    # Whether products with the stored entries cost less than those of a dense matrix.
    few_entries = False

    @property
    def own(self) -> tuple[slice, "DesignMatrix"]:
        """The columns of this rank: their range, and their matrix."""
        return slice(0, self.shape[1]), self

    @property
    def has_integer_products(self) -> bool:
        """Whether Gram matrices can be computed on the integer units of a GPU."""
        return self.centres_entries and available(self.shape[1], self.dtype, self.device)

    @property
    def column_room(self) -> int:
        """How many columns fit in memory at the same time."""
        return self.shape[1]

    @property
    def rows_read(self) -> int:
        """How many rows have been read so far, over all passes."""
        return 0

    @abstractmethod
    def mv(self, X: Tensor) -> Tensor:
        """``A X`` for ``X (n, c)``."""

    @abstractmethod
    def rmv(self, R: Tensor) -> Tensor:
        """``A' R`` for ``R (m, c)``."""

    @abstractmethod
    def columns(self, index: slice | Tensor) -> "DesignMatrix":
        """The matrix of some columns, given as a slice or as sorted indices."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> "DesignMatrix":
        """The matrix of the rows ``start`` to ``stop - 1``."""

    @abstractmethod
    def chunk(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        """Rows ``start`` to ``stop - 1`` as a dense tensor of the given precision."""

    def refine(self, shift: Tensor) -> tuple["DesignMatrix", Tensor]:
        """The matrix for exact products with columns far from zero: in float64, with ``shift (n,)`` subtracted.

        Also returns the part of the shift that was not subtracted, because the result would not fit in memory.
        """
        return self, shift

    def strips(self, dtype: torch.dtype | None = None) -> Iterator[tuple[slice, Strip]]:
        """All rows in strips of bounded size: pairs of a row range and a strip in the given precision."""
        dtype = dtype or self.dtype
        m, n = self.shape
        height = max(256, _strip_bytes(self.device) // (max(n, 1) * dtype.itemsize))
        for start in range(0, m, height):
            stop = min(start + height, m)
            yield slice(start, stop), DenseStrip(self.chunk(start, stop, dtype))

    def strips_with_columns(self, index: Tensor) -> Iterator[tuple[slice, Strip, Strip]]:
        """Strips of this rank's columns, each with a strip of the columns ``index`` of the whole matrix."""
        for at, strip in self.strips():
            yield at, strip, strip.columns(index)

    def gram(self, weights: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """``A' diag(weights) A`` for ``weights (m, 1)`` of any sign, in the data's precision or another one."""
        n = self.shape[1]
        total = torch.zeros(n, n, dtype=dtype or self.dtype, device=self.device)
        for at, strip in self.strips(dtype):
            total += strip.gram(weights[at])
        return total

    def column_moments(self, weights: Tensor, about: Tensor) -> tuple[Tensor, Tensor]:
        """Weighted sums and sums of squares ``(n,)`` of the columns after subtracting ``about (n,)``, in float64."""
        zero = torch.zeros(self.shape[1], dtype=torch.float64, device=self.device)
        sums, squares = zero, zero
        for at, strip in self.strips(torch.float64):
            sums = sums + strip.sums(weights[at], about).squeeze(1)
            squares = squares + strip.squares(weights[at], about).squeeze(1)
        return sums, squares

    def await_fingerprint(self) -> Callable[[], str]:
        """A function that returns `fingerprint`; passes that are made before its call may already count for it."""
        return self.fingerprint

    def fingerprint(self) -> str:
        """A number for the entries on this rank; other entries have another number."""
        number = Fingerprint()
        for at, strip in self.strips():
            number.add(at.start, strip.dense())
        return str(number)


class Dense(DesignMatrix):
    """A tensor on any device, used in place."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.shape = (values.shape[0], values.shape[1])
        self.dtype = values.dtype
        self.device = values.device

    def mv(self, X: Tensor) -> Tensor:
        return few_columns(self.values[None], X[None])[0]

    def rmv(self, R: Tensor) -> Tensor:
        return few_sums(self.values, R)

    def columns(self, index: slice | Tensor) -> "Dense":
        return Dense(self.values[:, index])

    def rows(self, start: int, stop: int) -> "Dense":
        return Dense(self.values[start:stop])

    def chunk(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        return self.values[start:stop].to(dtype)

    def refine(self, shift: Tensor) -> tuple["Dense", Tensor]:
        return Dense(self.values - shift), torch.zeros_like(shift)


class Affine(DesignMatrix):
    """Columns ``(a_j - shift_j) / scale_j`` of another matrix and, unless `constant` is zero, a last column of it.

    Centring, scaling and the intercept do not change the data: the caller's memory is used, and a sparse matrix stays
    sparse. Only a small dense matrix on a CPU keeps a standardised copy, so that a product is one operation. With
    `integers`, Gram matrices in the data's precision may come from integer products, and rough ones from products in
    half precision.
    """

    def __init__(
        self, base: DesignMatrix, shift: Tensor, scale: Tensor, constant: float, integers: bool = False
    ) -> None:
        self.base, self.shift, self.scale, self.constant = base, shift, scale, float(constant)
        self.integers = integers
        self.shape = (base.shape[0], base.shape[1] + (constant != 0))
        self.dtype = base.dtype
        self.device = base.device
        self.streamed = base.streamed
        self.centres_entries, self.few_entries = base.centres_entries, base.few_entries
        self._shift = shift.to(base.dtype).unsqueeze(1)
        self._scale = scale.to(base.dtype).unsqueeze(1)

    @cached_property
    def kept(self) -> Dense | None:
        """The standardised matrix, if it is small. Only float64 has all the digits that a proof needs."""
        base = self.base
        if not isinstance(base, Dense) or base.device.type != "cpu" or base.dtype != torch.float64:
            return None
        if self.shape[0] * self.shape[1] > MOST_KEPT:
            return None
        return Dense(DenseStrip(base.values).standardise(self.shift, self.scale, self.constant).values)

    @property
    def own(self) -> tuple[slice, DesignMatrix]:
        at, part = self.base.own
        if part is self.base:
            return slice(0, self.shape[1]), self
        constant = self.constant if self.base.ends_here else 0.0
        return slice(at.start, at.stop + (constant != 0)), self._like(part, at, constant)

    @property
    def column_room(self) -> int:
        return self.base.column_room

    @property
    def rows_read(self) -> int:
        return self.base.rows_read

    def mv(self, X: Tensor) -> Tensor:
        if self.kept is not None:
            return self.kept.mv(X)
        n = self.base.shape[1]
        Y = X[:n] / self._scale
        offset = self.constant * X[n:].sum(dim=0) - (self._shift * Y).sum(dim=0)
        return self.base.mv(Y) + offset

    def rmv(self, R: Tensor) -> Tensor:
        if self.kept is not None:
            return self.kept.rmv(R)
        total = R.sum(dim=0, keepdim=True)
        G = (self.base.rmv(R) - self._shift * total) / self._scale
        return torch.cat([G, self.constant * total]) if self.constant else G

    def columns(self, index: slice | Tensor) -> DesignMatrix:
        if self.kept is not None:
            return self.kept.columns(index)
        n = self.base.shape[1]
        if isinstance(index, slice):
            start, stop, step = index.indices(self.shape[1])
            inner: slice | Tensor = slice(min(start, n), min(stop, n), step)
            kept = n in range(start, stop, step)
        else:
            inner = index[index < n]
            kept = bool((index == n).any())
        return self._like(self.base.columns(inner), inner, self.constant * kept)

    def rows(self, start: int, stop: int) -> DesignMatrix:
        if self.kept is not None:
            return self.kept.rows(start, stop)
        return self._like(self.base.rows(start, stop), slice(None), self.constant)

    def _like(self, base: DesignMatrix, index: slice | Tensor, constant: float) -> "Affine":
        """Another matrix with the shifts and scales of some of these columns."""
        return Affine(base, self.shift[index], self.scale[index], constant, self.integers)

    def gram(self, weights: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        integers = self.integers and dtype in (None, self.dtype) and self.base.has_integer_products
        # Integer products need the roots of the weights.
        if not integers or bool((weights < 0).any()):
            return super().gram(weights, dtype)
        p, heavy = self.base.shape[1], weights.double()
        G, sums = self.scale.new_zeros(p, p), self.scale.new_zeros(p, 1)
        for at, strip in self.base.strips():
            products, some, _ = integer_moments(strip.dense(), self.shift, heavy[at], heavy[at])
            G, sums = G.add_(products), sums.add_(some)
        G = G.div_(self.scale).div_(self.scale.unsqueeze(1))
        if self.constant:
            edge = self.constant * sums / self.scale.unsqueeze(1)
            corner = self.constant**2 * heavy.sum().reshape(1, 1)
            G = torch.cat([torch.cat([G, edge], dim=1), torch.cat([edge.T, corner], dim=1)])
        return G.to(self.dtype)

    def chunk(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        if self.kept is not None:
            return self.kept.chunk(start, stop, dtype)
        strip = DenseStrip(self.base.chunk(start, stop, dtype))
        return strip.standardise(self.shift, self.scale, self.constant).values

    def strips(self, dtype: torch.dtype | None = None) -> Iterator[tuple[slice, Strip]]:
        if self.kept is not None:
            yield from self.kept.strips(dtype)
            return
        if isinstance(self.base, Dense) and MixedPrecisionStrip.applies_to(self.base.values, dtype or self.dtype):
            for at, strip in self.base.strips():
                yield at, MixedPrecisionStrip(strip.dense(), self.shift, self.scale, self.constant)
            return
        for at, strip in self.base.strips(dtype):
            yield at, strip.standardise(self.shift, self.scale, self.constant)

    def strips_with_columns(self, index: Tensor) -> Iterator[tuple[slice, Strip, Strip]]:
        if self.own[1] is self:
            yield from super().strips_with_columns(index)
            return
        beside = self.columns(index)
        for at, strip in self.own[1].strips():
            yield at, strip, DenseStrip(beside.chunk(at.start, at.stop, self.dtype))


def _strip_bytes(device: torch.device) -> int:
    if device.type == "cpu":
        return STRIP_BYTES
    memory = torch.cuda.get_device_properties(device).total_memory
    return min(MOST_STRIP_BYTES, int(MEMORY_SHARE * memory))
