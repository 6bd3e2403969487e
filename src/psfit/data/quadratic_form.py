"""The squared loss of some samples as a quadratic form: all that a fit needs to know of their rows.

    1/2 tr(X'GX) - tr(Q'X) + sum(constant) + 1/2 sum_j r_j ||x_j||^2,   G = 2 A'WA,  Q = 2 A'Wb,  constant = sum w b^2

Forms of parts of the samples can be added. A form can be changed to other coordinates, targets and ridges without the
data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from psfit.data.curvature import EPS, Curvature
from psfit.kernels.linalg import cholesky, smallest_pivot


@dataclass(frozen=True)
class Minimum:
    """The minimiser ``x (k, c)`` of a form on some `rows` ``(k,)`` and its `value`.

    `pivot` is the least share of a column that is no combination of the others. If it is tiny, digits were lost.
    """

    rows: Tensor
    x: Tensor
    value: float
    pivot: float


@dataclass(frozen=True, eq=False)
class QuadraticForm:
    """The form above in float64, for coefficients ``X (n, c)``; with a leading axis, one form for each node.

    Parameters
    ----------
    curvature : Curvature
        The matrix ``G (..., n, n)``.
    Q : Tensor (..., n, c)
    constant : Tensor (..., c)
    ridge : Tensor (n,)
        The weights ``r`` of the squares of the variables; they have no errors.
    linear_error, constant_error : Tensor (c,)
        By how much rounding may have changed any entry of `Q`, and of `constant`, for each output. Infinite where
        nothing is known.
    hessian : Tensor (n, n) or None
        ``G`` with the ridge on its diagonal, if it was made; see `with_hessian`.
    """

    curvature: Curvature
    Q: Tensor
    constant: Tensor
    ridge: Tensor
    linear_error: Tensor
    constant_error: Tensor
    hessian: Tensor | None = None

    @classmethod
    def of(cls, G: Tensor, Q: Tensor, constant: Tensor, rounded: Tensor | None = None) -> "QuadraticForm":
        """A form without a ridge; nothing is known about its errors."""
        rounded = torch.zeros_like(Q[..., 0]) if rounded is None else rounded
        unknown = Q.new_full((Q.shape[-1],), inf)
        return cls(Curvature(G, rounded), Q, constant, Q.new_zeros(Q.shape[-2]), unknown, unknown)

    @classmethod
    def sum(cls, forms: Sequence["QuadraticForm"]) -> "QuadraticForm":
        """The form of several parts of the samples together; the parts have no ridge."""
        return cls.of(
            torch.stack([form.G for form in forms]).sum(dim=0),
            torch.stack([form.Q for form in forms]).sum(dim=0),
            torch.stack([form.constant for form in forms]).sum(dim=0),
            torch.stack([form.curvature.rounded for form in forms]).sum(dim=0),
        )

    def empty(self) -> "QuadraticForm":
        """The form of no samples, in the same shape."""
        parts = self.G, self.Q, self.constant, self.curvature.rounded
        return QuadraticForm.of(*(torch.zeros_like(part) for part in parts))

    @property
    def G(self) -> Tensor:
        """The matrix without the ridge."""
        return self.curvature.G

    @property
    def size(self) -> int:
        """The number n of variables."""
        return self.curvature.size

    def with_ridge(self, ridge: Tensor) -> "QuadraticForm":
        """The same samples with the ridge ``(n,)``."""
        return replace(self, ridge=ridge, hessian=None)

    def with_outputs(self, outputs: Sequence[int]) -> "QuadraticForm":
        """Some of the outputs, or copies of them."""
        index = list(outputs)
        return replace(
            self,
            Q=self.Q[..., index],
            constant=self.constant[..., index],
            linear_error=self.linear_error[index],
            constant_error=self.constant_error[index],
        )

    def restrict(self, rows: Tensor) -> "QuadraticForm":
        """The form in some of the variables, by sorted indices; the others are zero."""
        # The first variables need no copy.
        first = len(rows) > 0 and int(rows[-1]) == len(rows) - 1
        G = self.G[: len(rows), : len(rows)] if first else self.G[rows].index_select(1, rows)
        curvature = replace(self.curvature, G=G, rounded=self.curvature.rounded[rows])
        return replace(self, curvature=curvature, Q=self.Q[rows], ridge=self.ridge[rows], hessian=None)

    @property
    def diagonal(self) -> Tensor:
        """The diagonal of the Hessian, ridge included."""
        return self.curvature.diagonal + self.ridge if self.hessian is None else self.hessian.diagonal()

    def with_hessian(self) -> "QuadraticForm":
        """The same form with its whole Hessian, a copy as large as `G`: a search reads it thousands of times."""
        H = self.G.clone()
        H.diagonal().add_(self.ridge)
        return replace(self, hessian=H)

    def block(self, rows: Tensor) -> Tensor:
        """The Hessian ``(k, k)`` of some variables."""
        if self.hessian is not None:
            return self.hessian[rows.unsqueeze(1), rows]
        return self.G[rows.unsqueeze(1), rows] + torch.diag(self.ridge[rows])

    def columns(self, rows: Tensor) -> Tensor:
        """The Hessian ``(n, k)`` between all variables and some of them."""
        if self.hessian is not None:
            return self.hessian[:, rows]
        columns = self.G[:, rows]
        columns[rows, torch.arange(len(rows), device=rows.device)] += self.ridge[rows]
        return columns

    def factor(self, rows: Tensor) -> Tensor:
        """The Cholesky factor of `block`."""
        return cholesky(self.block(rows))

    def minimise(self, rows: Tensor) -> Minimum:
        """The least value over some of the variables, the others being zero."""
        H, q = self.block(rows), self.Q[rows]
        factor = cholesky(H)
        x = torch.cholesky_solve(q, factor)
        value = float(self.constant.sum() - 0.5 * (q * x).sum())
        return Minimum(rows, x, value, float(smallest_pivot(factor, H)) if len(rows) else 1.0)

    def subtract_level(self, level: Tensor, constant: Tensor) -> "QuadraticForm":
        """The form for targets less ``level (c,)``, where the last column holds ones.

        Their weighted squares ``constant (..., c)`` are computed from the targets: a difference would lose digits.
        """
        return replace(self, Q=self.Q - self.G[..., -1:] * level, constant=constant)

    def standardise(self, moved: Tensor, scale: Tensor, constant: float) -> "QuadraticForm":
        """From columns ``a_j`` and a last one of ones to ``(a_j - moved_j) / scale_j`` and, unless zero, a `constant`.

        The coefficients of one are a linear function of those of the other, so this is a congruence of the form.
        """
        p = len(moved)
        G, s, total = self.G[:, :p, :p], self.G[:, :p, p:], self.G[:, p:, p:]
        d = moved.unsqueeze(1)
        G = (G - s @ d.T - d @ s.mT + total * (d @ d.T)) / (scale * scale.unsqueeze(1))
        edge = (s - total * d) / scale.unsqueeze(1)
        Q = (self.Q[:, :p] - d * self.Q[:, p:]) / scale.unsqueeze(1)
        rounded = self.curvature.rounded[:, :p] / scale.square()
        if constant:
            rim = torch.cat([edge.mT, constant * total], dim=2)
            G = torch.cat([torch.cat([G, constant * edge], dim=2), constant * rim], dim=1)
            Q = torch.cat([Q, constant * self.Q[:, p:]], dim=1)
            rounded = torch.cat([rounded, torch.zeros_like(rounded[:, :1])], dim=1)
        return QuadraticForm.of(G, Q, self.constant, rounded)

    def bound_errors(self, samples: int, norm: float) -> "QuadraticForm":
        """The form with bounds on its errors; it consists of sums over `samples`, of columns with at most this norm.

        A sum of m products is off by at most m roundings of the sum of their sizes, which Cauchy and Schwarz bound;
        standardising adds a few more.
        """
        rounding = 2 * (samples + 16) * EPS
        # Rounding the columns moves the singular values of the data by at most the norm of what was rounded off.
        length = (2 * float(self.curvature.rounded.sum())) ** 0.5
        largest = float(self.G.abs().sum(dim=1).max()) ** 0.5 if length else 0.0
        return replace(
            self,
            curvature=replace(
                self.curvature,
                entry_error=rounding * norm * norm,
                spectral_error=(2 * largest + length) * length,
                rank=samples,
            ),
            linear_error=rounding * norm * self.constant.sqrt(),
            constant_error=rounding * self.constant,
        )
