"""Lower bounds from the perspective relaxation: the base class, and the squared loss by its quadratic form.

A relaxation takes a batch of tree nodes, each with some items decided. For each it returns a bound that holds for every
support the node allows, rounding included. Any dual point gives a valid bound. Iterations only improve it, so they may
stop at any time.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.certificate.quadratic import LimitedForm
from psfit.data.curvature import EPS
from psfit.data.form_elimination import rounding_of
from psfit.kernels.linalg import cholesky
from psfit.problem import Domain

# Penalty of the splitting as a share of the mean curvature. This value took the fewest iterations, both on correlated
# and on independent data.
RHO_SHARE = 0.1
# The bound is computed every few iterations. A row is done after it gained less than this share of its gap twice.
CHECK_EVERY = 5
STALLED = 0.01
PATIENCE = 2


@dataclass(frozen=True)
class Bounds:
    """A batch of bounds ``lower (B,)`` and what they come from.

    `scores` belong to the dual point of `lower` and are used for screening. `shares` are the relaxed supports and are
    used for branching. From `state` a child resumes the iteration.
    """

    lower: Tensor
    scores: Tensor
    shares: Tensor
    state: tuple[Tensor, ...]


class Relaxation(ABC):
    """One problem's relaxation; `root` is its domain before anything is decided, `kappa` its limit."""

    root: Domain
    kappa: int
    device: torch.device

    @abstractmethod
    def start(self, Z: Tensor) -> tuple[Tensor, ...]:
        """The state of a batch of one at coefficients `Z`."""

    @abstractmethod
    def bound(self, domain: Domain, state: tuple[Tensor, ...], enough: Tensor | float, iterations: int) -> Bounds:
        """Bounds for a batch of tree nodes, after at most this many iterations; a bound of `enough` is good enough."""

    @abstractmethod
    def optimum(self, support: Tensor) -> tuple[float, float]:
        """The least objective on the items ``support (size,)``, and by how much it may be too high."""


class QuadraticRelaxation(Relaxation):
    """The squared loss by the alternating direction method: one factor of ``G - diag(d) + rho`` serves all nodes.

    The loss is a function of ``x``, the perspective one of ``z``, and ``x = z`` at the solution. The gradient of the
    loss at ``x`` is ``rho (z - u - x)``, so every iteration has a dual point at no cost.
    """

    def __init__(self, limited: LimitedForm, extracted: Tensor) -> None:
        form = limited.form
        self.form, self.size, self.kappa, self.device = form, form.size, limited.kappa, form.G.device
        self.constant = float(form.constant.sum())
        self.root = limited.domain
        self.M, self.Q = form.G - torch.diag(extracted), form.Q.T.contiguous()
        self.ridge = form.ridge + extracted
        self.rho = RHO_SHARE * float(form.curvature.diagonal.mean()) + float(self.ridge.min())
        shifted = self.M + self.rho * torch.eye(self.size, dtype=self.M.dtype, device=self.device)
        self.inverse = torch.cholesky_inverse(cholesky(shifted))
        self.row_norms = self.M.norm(dim=1)

    def start(self, Z: Tensor) -> tuple[Tensor, ...]:
        z = Z.T
        # The multiplier that belongs to z: u = -gradient / rho.
        u = (self.Q - z @ self.M) / self.rho
        return z.unsqueeze(0), u.unsqueeze(0)

    def bound(self, domain: Domain, state: tuple[Tensor, ...], enough: Tensor | float, iterations: int) -> Bounds:
        x, shares, state = self.ascend(domain, state, enough, iterations)
        lower, scores = self._certain(x, domain)
        return Bounds(lower, scores, shares, state)

    def ascend(
        self, domain: Domain, state: tuple[Tensor, ...], enough: Tensor | float, iterations: int
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """The points ``(B, c, n)`` with the best bounds, shares, and where the iteration ended."""
        Q, rho, constant = self.Q, self.rho, self.constant
        z, u = state
        best = torch.full_like(z[:, 0, 0], -torch.inf)
        point, idle = z, torch.zeros_like(best)
        for k in range(1, iterations + 1):
            x = self._product(Q + rho * (z - u), self.inverse)
            if k % CHECK_EVERY == 0 or k == iterations:
                g = rho * (z - u - x)
                value = constant - 0.5 * (x * (Q + g)).sum(dim=(1, 2)) - domain.conjugate(self._scores(g))
                better = value > best
                gained = best.isinf() | (value - best > STALLED * (enough - best))
                idle = torch.where(gained, 0, idle + 1)
                best = torch.where(better, value, best)
                point = torch.where(better[:, None, None], x, point)
                if bool(((idle >= PATIENCE) | (best >= enough)).all()):
                    break
            w = x + u
            factor, shares = domain.shrink(torch.linalg.vector_norm(w, dim=1), self.ridge, rho)
            z = factor.unsqueeze(1) * w
            u = w - z
        return point, shares, (z, u)

    @staticmethod
    def _product(X: Tensor, symmetric: Tensor) -> Tensor:
        """``S x`` for all ``x (B, c, n)`` as one product of two matrices."""
        return (X.reshape(-1, X.shape[2]) @ symmetric).view_as(X)

    def _scores(self, g: Tensor) -> Tensor:
        return g.square().sum(dim=1) / (2 * self.ridge)

    def _certain(self, x: Tensor, domain: Domain) -> tuple[Tensor, Tensor]:
        """The bound at ``x`` less all possible rounding errors, and the scores raised by theirs."""
        form, Q, entry_error = self.form, self.Q, self.form.curvature.entry_error
        linear_error = form.linear_error.unsqueeze(1)
        g = self._product(x, self.M) - Q
        length, total = x.norm(dim=2, keepdim=True), x.abs().sum(dim=2, keepdim=True)
        g_error = (self.size + 2) * EPS * (self.row_norms * length + Q.abs())
        g_error = g_error + entry_error * total + linear_error
        scores = self._scores(g.abs() + g_error)
        flat = (1, 2)
        sizes = abs(self.constant) + (x.abs() * (Q.abs() + g.abs())).sum(dim=flat)
        error = 0.5 * (x.abs() * g_error).sum(dim=flat) + 0.5 * entry_error * total.square().sum(dim=flat)
        error = error + (linear_error * total).sum(dim=flat) + form.constant_error.sum()
        ridge_conjugate = domain.conjugate(scores)
        error = error + (self.size + 8) * EPS * (sizes + ridge_conjugate)
        return self.constant - 0.5 * (x * (Q + g)).sum(dim=flat) - ridge_conjugate - error, scores

    def optimum(self, support: Tensor) -> tuple[float, float]:
        minimum = self.root.minimise(self.form, support)
        return minimum.value, rounding_of(self.form, minimum)
