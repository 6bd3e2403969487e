"""Points of the relaxations of many tree nodes, with what the data say about them.

All tree nodes are rows of one batch: coefficients are ``x (B, n)`` and predictors ``eta (B, m)``. Only sums over
samples leave a rank.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property

import torch
from torch import Tensor

from psfit.certificate.group_models import measure_items
from psfit.certificate.loss_sums import drop_equal, find_kernels, weigh
from psfit.certificate.relaxation import fill_places, least_ridge
from psfit.data import Affine, Dense, DenseStrip
from psfit.problem import Domain
from psfit.problem.box import bounds_of, score
from psfit.problem.instance import Instance

# A rank keeps its samples as a dense matrix in float64 if it has at most so many numbers.
MOST_NUMBERS = {"cpu": 1 << 25, "cuda": 1 << 30}
# Second derivatives of many nodes are one product with the products of all pairs of columns, if these are at most so
# many numbers; a few nodes are faster served one by one.
MOST_PAIRS = {"cpu": 1 << 26, "cuda": 1 << 31}
FEW_NODES = 8
# Products of fewer operations are always made in double precision.
FREE_DOUBLE = 1e8


@dataclass(frozen=True)
class Points:
    """Coefficients ``x (B, n)`` with predictors ``eta (B, m)`` and the gradient ``g (B, n)`` of the losses.

    `value` ``(B,)`` is the objective of the relaxation, `bound` about the dual value at the slopes of the samples. It
    is not proved: roundings are not subtracted, and to balance the slopes for the intercept costs about `imbalance`.
    """

    x: Tensor
    eta: Tensor
    g: Tensor
    value: Tensor
    bound: Tensor
    imbalance: Tensor

    def select(self, rows: Tensor) -> "Points":
        """Some of the rows, in ascending order."""
        if len(rows) == len(self.x):
            return self
        return Points(*(getattr(self, field.name)[rows] for field in fields(self)))

    def put(self, rows: Tensor, other: "Points") -> "Points":
        """The same with some rows replaced, in ascending order."""
        if len(rows) == len(self.x):
            return other
        parts = [(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)]
        return Points(*(mine.index_copy(0, rows, new) for mine, new in parts))

    def overwrite(self, rows: Tensor, other: "Points") -> "Points":
        """The same with some rows replaced, in ascending order; the predictors are replaced in place."""
        if len(rows) == len(self.x):
            return other
        numbers = self.without_predictors().put(rows, other.without_predictors())
        return replace(numbers, eta=self.eta.index_copy_(0, rows, other.eta))

    def without_predictors(self) -> "Points":
        """The same without the predictors, which fill most of the memory."""
        return replace(self, eta=self.eta[:, :0])

    def take_better(self, other: "Points") -> "Points":
        """The rows of later points where these have higher bounds, or show that a bound is too high to be true."""
        rows = ((other.bound > self.bound) | (self.bound > other.value)).nonzero().flatten()
        return self.put(rows, other.select(rows)) if len(rows) else self


class Samples:
    """The samples of this rank, with all products in float64; the last column is the intercept's, if any.

    Products are those of a `dense` matrix, or go through strips where it would be too large, or the entries are sparse.
    """

    def __init__(self, inst: Instance) -> None:
        self.inst, self.matrix = inst, inst.source.matrix
        self.m, self.columns = self.matrix.shape
        # The coefficients of a point.
        self.n = self.columns
        weight = drop_equal(inst.source.weight)
        self.weight, self.target = None if weight is None else weight.T.contiguous(), inst.source.target.T.contiguous()
        self.loss, self.p = inst.problem.loss, inst.items.features
        self.ridge = inst.ridge[: self.p, 0].contiguous()
        self.root = self.ridge.sqrt()
        # Bounds of other kinds than signs are not known here.
        self.box = None if inst.box is None else inst.box.signs
        # The sign that a coefficient must have, if there is one; and those that must be zero.
        self.sign = torch.zeros_like(self.ridge, dtype=torch.int8)
        self.closed = torch.zeros_like(self.ridge, dtype=torch.bool)
        if self.box is not None:
            above, below = self.box.high[:, 0] > 0, self.box.low[:, 0] < 0
            self.sign, self.closed = above.to(torch.int8) - below.to(torch.int8), ~(above | below)
        self.fits_dense = inst.sizes.most_rows * self.columns <= MOST_NUMBERS[self.matrix.device.type]
        self.sparse = self.matrix.device.type == "cpu" and self.matrix.few_entries
        self.kernels = find_kernels(self.loss, self.target, self.weight)

    @cached_property
    def dense(self) -> Dense | None:
        """The matrix in float64; None if it is too large."""
        if not self.fits_dense:
            return None
        kept = self.matrix.kept if isinstance(self.matrix, Affine) else None
        return kept or Dense(self.matrix.chunk(0, self.m, torch.float64))

    @property
    def multiplied(self) -> Dense | None:
        """The dense matrix, where products with it are made."""
        return None if self.sparse else self.dense

    def weigh(self, values: Tensor) -> Tensor:
        """Numbers of the samples ``(B, m)`` times their weights."""
        return weigh(self.weight, values)

    def predict(self, x: Tensor) -> Tensor:
        """Predictors ``(B, m)`` of coefficients ``(B, n)``."""
        if self.multiplied is not None:
            return x @ self.multiplied.values.T
        return torch.cat([strip.mv(x.T) for _, strip in self.matrix.strips(torch.float64)]).T

    def sum_slopes(self, slopes: Tensor) -> Tensor:
        """Sums ``(B, n)`` of the columns times weighted slopes ``(B, m)``."""
        if self.multiplied is not None:
            return slopes @ self.multiplied.values
        total = slopes.new_zeros(self.columns, len(slopes))
        for at, strip in self.matrix.strips(torch.float64):
            total += strip.rmv(slopes[:, at].T)
        return total.T

    @cached_property
    def _single(self) -> Tensor | None:
        """The entries in single precision, where a product of all pairs of columns then takes half the time."""
        small = 2.0 * self.m * self.columns**2 <= FREE_DOUBLE or not self.inst.costs.tall
        if small or self.multiplied is None or self.matrix.device.type != "cpu":
            return None
        return self.multiplied.values.float()

    def gram(self, bend: Tensor, step: int, rough: bool = False) -> Tensor:
        """``A' diag(bend) A (n, n)`` for ``bend (m,)``, or an estimate from one row in every `step`.

        A `rough` one may come from products in single precision.
        """
        if rough and step == 1 and self._single is not None:
            unit = bend.amax().clamp(min=torch.finfo(bend.dtype).tiny)
            return unit * DenseStrip(self._single).gram((bend / unit).float().unsqueeze(1)).double()
        if self.multiplied is not None:
            return DenseStrip(self.multiplied.values[::step]).gram((step * bend[::step]).unsqueeze(1))
        total = bend.new_zeros(self.columns, self.columns)
        for at, strip in self.matrix.strips(torch.float64):
            if step == 1:
                total += strip.gram(bend[at].unsqueeze(1))
                continue
            rows = torch.arange(0, at.stop - at.start, step, device=bend.device)
            total += strip.rows(rows).gram(step * bend[at][rows].unsqueeze(1))
        return total

    @cached_property
    def _pairs(self) -> Tensor | None:
        """The products of all pairs of columns ``(m, n (n + 1) / 2)``, if they are few enough."""
        rows, n = self.inst.sizes.most_rows, self.columns
        if self.multiplied is None or rows * n * (n + 1) // 2 > MOST_PAIRS[self.matrix.device.type]:
            return None
        first, second = torch.triu_indices(n, n, device=self.matrix.device)
        return self.multiplied.values[:, first] * self.multiplied.values[:, second]

    def grams(self, bend: Tensor) -> Tensor:
        """``A' diag(bend) A (B, n, n)`` for every row of ``bend (B, m)``; for many rows as one product, if possible."""
        if len(bend) <= FEW_NODES or self._pairs is None:
            return torch.stack([self.gram(one, 1) for one in bend])
        n, half = self.columns, bend @ self._pairs
        first, second = torch.triu_indices(n, n, device=bend.device)
        H = half.new_empty(len(bend), n, n)
        H[:, first, second] = half
        H[:, second, first] = half
        return H

    def place(self, domain: Domain, x: Tensor, eta: Tensor, corner: Tensor | None) -> Points:
        """The points ``x (B, n)`` with predictors `eta`; the intercept has about the second derivative `corner`."""
        value, slopes = self._evaluate(eta)
        sums = self.sum_slopes(slopes)
        totals = self.inst.grid.nodes.total(torch.cat([value.unsqueeze(1), sums], dim=1))
        value, g, p = totals[:, 0], totals[:, 1:], self.p
        conjugate = domain.conjugate(self.scores(g[:, :p]))
        bound = value - (g[:, :p] * x[:, :p]).sum(dim=1) - conjugate
        # To balance the slopes costs about as much as the best intercept gains.
        imbalance = torch.zeros_like(bound) if corner is None else (g[:, p:].square() / corner).sum(dim=1)
        return Points(x, eta, g, value + self.perspective(domain, x), bound - imbalance, imbalance)

    def _evaluate(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted losses of the samples here ``(B,)``, and their weighted slopes ``(B, m)``."""
        if self.kernels is not None:
            value, slopes = self.kernels.evaluate(eta)
            return value, slopes
        slopes = self.weigh(self.loss.gradient(eta, self.target))
        return self.weigh(self.loss.value(eta, self.target)).sum(dim=1), slopes

    def slopes(self, eta: Tensor) -> Tensor:
        """The slopes of the samples ``(B, m)`` without weights."""
        if self.kernels is not None and self.weight is None:
            return self._evaluate(eta)[1]
        return self.loss.gradient(eta, self.target)

    def scores(self, g: Tensor) -> Tensor:
        """What items whose features have the derivatives ``g (B, p)`` contribute to the conjugate at most."""
        low, high = bounds_of(self.box)
        scores = score(g, 0.0, self.ridge, None if low is None else low.T, None if high is None else high.T)
        return self.inst.items.sum_rows(scores)

    def clip(self, x: Tensor) -> Tensor:
        """Coefficients ``(B, p)``, or ``(B, n)``, with zeros where a sign is not allowed."""
        return x if self.box is None else self.box.clip(x.T).T

    def bend(self, eta: Tensor, least: Tensor) -> Tensor:
        """The samples' weights in the second derivatives ``(B, m)``; every curvature is at least ``least (B, 1)``."""
        return self.weigh(torch.maximum(self.loss.curvature(eta, self.target), least))

    def perspective(self, domain: Domain, x: Tensor) -> Tensor:
        """The least ridge ``(B,)`` of coefficients over shares of the limit."""
        return least_ridge(domain, self.size_items(x))

    def shares(self, domain: Domain, x: Tensor) -> Tensor:
        """The best shares ``(B, size)`` of the limit for coefficients."""
        return fill_places(domain, self.size_items(x))

    def size_items(self, x: Tensor) -> Tensor:
        """The sizes ``(B, size)`` of the items of coefficients in the perspective."""
        return measure_items(self.inst.items, self.ridge, x[:, : self.p])

    def admit(self, domain: Domain, x: Tensor) -> Tensor:
        """The coefficients without those of items outside, and without signs that are not allowed."""
        closed = self.inst.items.spread_rows(domain.outside | (domain.free & (domain.left <= 0)))
        return self.clip(x) * torch.nn.functional.pad(~closed, (0, x.shape[1] - self.p), value=True)
