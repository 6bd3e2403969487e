"""The bound that a point proves for the squared loss by its quadratic form, without the data.

``extracted`` curvature ``d`` moves from the loss to the ridge. With ``F`` the loss that is left and ``g`` its gradient
at ``x``, every support has an objective of at least ``F(x) - <g, x> - conjugate(scores)``, where the scores are
``|g_j|^2 / (2 (r_j + d_j))``. All roundings are subtracted, also those in the form itself.
"""

from dataclasses import dataclass
from functools import cached_property
from math import isfinite

import torch
from torch import Tensor

from psfit.certificate.quadratic import LimitedForm
from psfit.data.curvature import EPS
from psfit.kernels.linalg import solve_spd
from psfit.problem import Domain
from psfit.problem.box import bounds_of, score


@dataclass(frozen=True)
class Point:
    """A point ``x (c, n)`` with the bound `lower` that it proves, the scores ``(1, size)`` of the items behind it, and
    how much of the bound is `lost` to rounding.
    """

    x: Tensor
    lower: float
    scores: Tensor
    lost: float

    def is_spoiled(self, share: float, objective: float) -> bool:
        """Whether rounding takes more than a share of the gap that is left."""
        return not isfinite(self.lower) or self.lost > share * (objective - self.lower)


class FormBound:
    """Bounds from a form with curvature ``extracted (n,)``, which must leave its loss convex.

    It must be the same for all rows of an item where the ``ridge (n,)`` is used for more than scores. The coefficients
    may have bounds of their own.
    """

    def __init__(self, limited: LimitedForm, extracted: Tensor) -> None:
        low, high = bounds_of(limited.domain.box)
        self.low, self.high = None if low is None else low.T, None if high is None else high.T
        form = limited.form
        self.form, self.extracted, self.size, self.items = form, extracted, form.size, limited.items
        self.Q, self.ridge = form.Q.T.contiguous(), form.ridge + extracted
        self.constant = float(form.constant.sum())
        self.row_norms = form.curvature.row_norms + extracted.abs()

    @cached_property
    def limits(self) -> tuple[Tensor, Tensor]:
        """The bounds of the coefficients ``(c, n)``, infinite where there are none."""
        if self.low is None or self.high is None:
            none = torch.full_like(self.Q, torch.inf)
            return -none, none
        return self.low, self.high

    def gradient(self, x: Tensor) -> Tensor:
        """The gradient of the loss that is left, at points ``x (B, c, n)``: one product of two matrices."""
        product = (x.reshape(-1, self.size) @ self.form.G).view_as(x)
        return product - self.extracted * x - self.Q

    def scores(self, g: Tensor, error: Tensor | float = 0.0) -> Tensor:
        """Scores of the items ``(B, size)`` from gradients ``(B, c, n)``, the largest within their errors."""
        return self.items.sum_rows(score(g, error, self.ridge, self.low, self.high).sum(dim=1))

    def clip_signs(self, x: Tensor) -> Tensor:
        """Points ``(B, c, n)`` with zeros where a sign is not allowed."""
        if self.low is None or self.high is None:
            return x
        return torch.where(((self.low >= 0) & (x < 0)) | ((self.high <= 0) & (x > 0)), 0.0, x)

    def clip(self, x: Tensor) -> Tensor:
        """Points ``(B, c, n)`` between their bounds."""
        return x if self.low is None or self.high is None else torch.minimum(torch.maximum(x, self.low), self.high)

    def prove(self, x: Tensor, g: Tensor, domain: Domain) -> tuple[Tensor, Tensor, Tensor]:
        """Bounds ``(B,)`` at points ``x (B, c, n)`` with gradients `g`, less all possible rounding errors.

        Also returns the scores raised by theirs, and the sum of all these errors ``(B,)``.
        """
        form, Q, curvature = self.form, self.Q, self.form.curvature
        linear_error, flat = form.linear_error.unsqueeze(1), (1, 2)
        sizes, length, total = x.abs(), x.norm(dim=2, keepdim=True), x.abs().sum(dim=2, keepdim=True)
        g_error = (self.size + 4) * EPS * (self.row_norms * length + Q.abs())
        g_error = g_error + (curvature.entry_error * total + curvature.spectral_error * length + linear_error)
        scores = self.scores(g, g_error)
        ridge_conjugate = domain.conjugate(scores)
        error = 0.5 * (sizes * g_error).sum(dim=flat) + form.constant_error.sum()
        quadratic = curvature.entry_error * total.square() + curvature.spectral_error * length.square()
        error = error + (0.5 * quadratic + linear_error * total).sum(dim=flat)
        terms = abs(self.constant) + (sizes * (Q.abs() + g.abs())).sum(dim=flat)
        error = error + (self.size + 8) * EPS * (terms + ridge_conjugate)
        lower = self.constant - 0.5 * (x * (Q + g)).sum(dim=flat) - ridge_conjugate - error
        return lower, scores, error + ridge_conjugate - domain.conjugate(self.scores(g))

    def at_dense_optimum(self, domain: Domain) -> Point:
        """The bound at the optimum without a limit, which it is at least but for rounding.

        Where columns are nearly dependent, ascent takes too many steps to reach as much.
        """
        H = self.form.G + torch.diag(self.form.ridge)
        return self.at(solve_spd(H, self.form.Q).T.contiguous(), domain)

    def at(self, x: Tensor, domain: Domain, g: Tensor | None = None) -> Point:
        """The bound of one problem at ``x (c, n)``, where the gradient ``g (c, n)`` may be known."""
        points = x.unsqueeze(0)
        found = self.gradient(points) if g is None else g.unsqueeze(0)
        lower, scores, lost = self.prove(points, found, domain)
        return Point(x, float(lower), scores, float(lost))
