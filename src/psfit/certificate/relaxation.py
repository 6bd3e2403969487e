"""Lower bounds from the perspective relaxation: the base class, and the squared loss by its quadratic form.

A relaxation takes a batch of tree nodes, each with some items decided. For each it returns a bound that holds for every
support the node allows, rounding included. Any dual point gives a valid bound. Iterations only improve it, so they may
stop at any time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.certificate.form_bound import FormBound
from psfit.certificate.quadratic import LimitedForm
from psfit.certificate.split_steps import find_kernel, make_split_steps
from psfit.data.quadratic_form import Minimum
from psfit.kernels.blocks import invert
from psfit.kernels.cuda_graph import Replay, Tensors
from psfit.kernels.linalg import cholesky
from psfit.problem import Domain

# Penalty of the splitting as a share of the mean curvature. This value took the fewest iterations, both on correlated
# and on independent data.
RHO_SHARE = 0.1
# The bound is computed every few iterations. A row is done after it gained less than this share of its gap twice.
CHECK_EVERY = 5
STALLED = 0.01
PATIENCE = 2
# With fewer iterations than this, recording them would take longer than it saves.
WORTH_RECORDING = 50
# How many tree nodes are explored together, and the iterations of each.
WIDTH = {"cpu": 64, "cuda": 1024}
CHILD_ITERATIONS = 10

# The least objective on a support ``(size,)``, and the slopes ``(m, c)`` of the samples' losses there.
Fit = Callable[[Tensor], tuple[float, Tensor]]


@dataclass(frozen=True)
class Bounds:
    """A batch of bounds ``lower (B,)`` and what they come from.

    `scores` belong to the dual point of `lower` and are used for screening. `shares` are the relaxed supports and are
    used for branching, and so are the `costs` of putting items outside, if they are known: about how much the bound
    would rise. From `state` a child resumes the iteration. ``value (B,)``, if known, is the relaxation's own objective,
    which no bound exceeds; ``dense (B,)``, if known, is that of the problem without a limit at the same point.
    """

    lower: Tensor
    scores: Tensor
    shares: Tensor
    state: tuple[Tensor, ...]
    costs: Tensor | None = None
    value: Tensor | None = None
    dense: Tensor | None = None

    def without_nan(self) -> "Bounds":
        """The same, where bounds that are no numbers prove nothing."""
        return replace(self, lower=self.lower.nan_to_num(nan=-torch.inf))

    def take_better(self, other: "Bounds") -> "Bounds":
        """The rows of another batch with higher bounds, and these in the other rows; the states are always these."""
        better = other.lower > self.lower
        return replace(
            self,
            lower=torch.where(better, other.lower, self.lower),
            scores=torch.where(better.unsqueeze(1), other.scores, self.scores),
        )

    def select(self, rows: Tensor) -> "Bounds":
        """Some of the rows."""
        state = tuple(part[rows] for part in self.state)
        costs = None if self.costs is None else self.costs[rows]
        return Bounds(self.lower[rows], self.scores[rows], self.shares[rows], state, costs)


class Relaxation(ABC):
    """One problem's relaxation; `root` is its domain before anything is decided, `kappa` its limit."""

    root: Domain
    kappa: int
    device: torch.device
    # How many tree nodes are explored together, and how many iterations a child takes.
    width: int
    child_iterations: int

    @abstractmethod
    def start(self, Z: Tensor) -> tuple[Tensor, ...]:
        """The state of a batch of one at coefficients `Z`."""

    @abstractmethod
    def restart(self, points: Tensor) -> tuple[Tensor, ...]:
        """The state of a batch whose first parts were ``points (B, k)``, each as one row of numbers."""

    @abstractmethod
    def bound(self, domain: Domain, state: tuple[Tensor, ...], enough: Tensor | float, iterations: int) -> Bounds:
        """Bounds for a batch of tree nodes, after at most this many iterations; a bound of `enough` is good enough."""

    def bound_children(self, domain: Domain, state: tuple[Tensor, ...], enough: float) -> Bounds:
        """Bounds for the children of tree nodes with the given state: each part of the domain has one of every node."""
        copies = len(domain.left) // len(state[0])
        repeated = tuple(torch.cat([part] * copies) for part in state)
        return self.bound(domain, repeated, enough, self.child_iterations)

    @abstractmethod
    def optima(self, supports: Tensor, state: tuple[Tensor, ...] | None, enough: float) -> tuple[Tensor, Tensor]:
        """The least objectives on the items ``supports (B, size)``, and by how much each may be too high, ``(B,)``.

        The state of a tree node near each support may be known. Objectives that are proved to be at least `enough` need
        not be exact.
        """


def fill_places(domain: Domain, sizes: Tensor) -> Tensor:
    """The shares ``(B, size)`` of the limit with the least ridge, for items of the sizes ``a (B, size)``.

    The largest items have whole places; the others have shares in proportion to their sizes.
    """
    weights = torch.ones_like(sizes) if domain.weights is None else domain.weights.to(sizes).expand_as(sizes)
    roots, free = weights.sqrt(), torch.where(domain.free, sizes, 0.0)
    keys, order = (free / roots).sort(dim=1, descending=True)
    ranked, weights = free.gather(1, order), weights.gather(1, order)
    rest = (ranked * weights.sqrt()).flip(1).cumsum(dim=1).flip(1)
    left = domain.left.clamp(min=0) - (weights.cumsum(dim=1) - weights)
    large = ((left > 0) & (keys * left > rest)).cummin(dim=1).values
    full = large.sum(dim=1, keepdim=True).clamp(max=ranked.shape[1] - 1)
    tiny = torch.finfo(sizes.dtype).tiny
    factor = left.gather(1, full).clamp(min=0) / rest.gather(1, full).clamp(min=tiny)
    shared = torch.where(domain.free & (sizes > 0), (factor * sizes / roots).clamp(max=1), 0.0)
    return torch.where(domain.inside, 1.0, shared)


def least_ridge(domain: Domain, sizes: Tensor) -> Tensor:
    """``1/2 min sum_j a_j^2 / s_j`` over shares of the limit, ``(B,)``, for items of the sizes ``a (B, size)``."""
    return sum_ridges(sizes, fill_places(domain, sizes))


def sum_ridges(sizes: Tensor, shares: Tensor) -> Tensor:
    """``1/2 sum_j a_j^2 / s_j``, ``(B,)``, for items of the sizes ``a (B, size)`` with known shares of the limit."""
    parts = torch.where(shares > 0, sizes.square() / shares.clamp(min=torch.finfo(sizes.dtype).tiny), 0.0)
    return 0.5 * parts.sum(dim=1)


def choose_rho(bound: FormBound) -> float:
    """The penalty of the splitting."""
    return RHO_SHARE * float(bound.form.curvature.diagonal.mean()) + float(bound.ridge.min())


class QuadraticRelaxation(Relaxation):
    """The squared loss by the alternating direction method: one factor of ``G - diag(d) + rho`` serves all nodes.

    The loss is a function of ``x``, the perspective one of ``z``, and ``x = z`` at the solution. The gradient of the
    loss at ``x`` is ``rho (z - u - x)``, so every iteration has a dual point at no cost.
    """

    def __init__(self, limited: LimitedForm, extracted: Tensor) -> None:
        form = limited.form
        self.form, self.size, self.kappa, self.device = form, form.size, limited.kappa, form.G.device
        self.width, self.child_iterations = WIDTH[self.device.type], CHILD_ITERATIONS
        self.form_bound, self.items = FormBound(limited, extracted), limited.items
        self.limited = limited
        self.root = limited.domain
        self.rho = choose_rho(self.form_bound)
        shifted = form.G.clone()
        shifted.diagonal().add_(self.rho - extracted)
        self.inverse = invert(cholesky(shifted))

    def start(self, Z: Tensor) -> tuple[Tensor, ...]:
        return self.restart(Z.T.reshape(1, -1))

    def restart(self, points: Tensor) -> tuple[Tensor, ...]:
        z = points.view(len(points), -1, self.size)
        # The multiplier that belongs to z: u = -gradient / rho.
        return z, -self.form_bound.gradient(z) / self.rho

    def bound(self, domain: Domain, state: tuple[Tensor, ...], enough: Tensor | float, iterations: int) -> Bounds:
        x, shares, state = self.ascend(domain, state, enough, iterations)
        lower, scores, _ = self.form_bound.prove(x, self.form_bound.gradient(x), domain)
        return Bounds(lower, scores, shares, state)

    def ascend(
        self, domain: Domain, state: tuple[Tensor, ...], enough: Tensor | float, iterations: int
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """The points ``(B, c, n)`` with the best bounds, shares, and where the iteration ended."""
        Q, constant = self.form_bound.Q, self.form_bound.constant
        found = dict(zip(("z", "u"), state, strict=True))
        best = torch.full_like(found["z"][:, 0, 0], -torch.inf)
        point, idle = found["z"], torch.zeros_like(best)
        advance = self._make_steps(domain, iterations)
        for _ in range(0, iterations, CHECK_EVERY):
            found = advance({name: found[name] for name in ("z", "u")})
            x, g = found["x"], found["g"]
            value = constant - 0.5 * (x * (Q + g)).sum(dim=(1, 2)) - domain.conjugate(self.form_bound.scores(g))
            better = value > best
            gained = best.isinf() | (value - best > STALLED * (enough - best))
            idle = torch.where(gained, 0, idle + 1)
            best = torch.where(better, value, best)
            point = torch.where(better[:, None, None], x, point)
            if bool(((idle >= PATIENCE) | (best >= enough)).all()):
                break
        return point, found["shares"], (found["z"], found["u"])

    def _make_steps(self, domain: Domain, iterations: int) -> Callable[[Tensors], Tensors]:
        """A function that makes CHECK_EVERY iterations from z and u; it also returns the last x and its gradient."""
        Q, rho, items = self.form_bound.Q, self.rho, self.items
        fused = find_kernel(self.form_bound, domain)
        if fused is not None:
            return make_split_steps(fused, self.form_bound, domain, self.inverse, rho, CHECK_EVERY)
        ridge = items.pack_ridge(self.form_bound.ridge)

        def step(tensors: Tensors) -> Tensors:
            z, u = tensors["z"], tensors["u"]
            x = self._product(Q + rho * (z - u), self.inverse)
            w = x + u
            allowed = self.form_bound.clip_signs(w)
            length = torch.linalg.vector_norm(allowed, dim=1)
            length = items.sum_rows(length.square()).sqrt() if items.in_groups else length
            factor, shares = domain.shrink(length, ridge, rho)
            moved = self.form_bound.clip(items.spread_rows(factor).unsqueeze(1) * allowed)
            return {"z": moved, "u": w - moved, "x": x, "g": rho * (z - u - x), "shares": shares}

        def repeat(tensors: Tensors) -> Tensors:
            for _ in range(CHECK_EVERY):
                tensors = step(tensors)
            return tensors

        recorded = self.device.type == "cuda" and iterations >= WORTH_RECORDING
        return Replay(step, times=CHECK_EVERY) if recorded else repeat

    @staticmethod
    def _product(X: Tensor, symmetric: Tensor) -> Tensor:
        """``S x`` for all ``x (B, c, n)`` as one product of two matrices."""
        return (X.reshape(-1, X.shape[2]) @ symmetric).view_as(X)

    def optima(self, supports: Tensor, state: tuple[Tensor, ...] | None, enough: float) -> tuple[Tensor, Tensor]:
        if self.root.box is not None:
            return self._optima_in_box(supports)
        minima = [self.limited.minimise(support) for support in supports]
        numbers = torch.tensor(minima, dtype=torch.float64, device=self.device)
        return numbers[:, 0], numbers[:, 1]

    def _optima_in_box(self, supports: Tensor) -> tuple[Tensor, Tensor]:
        """Minima with bounds on coefficients; their errors are what their own slopes cannot prove."""
        minima: list[Minimum] = [self.root.minimise(self.form, support) for support in supports]
        x = self.form.Q.new_zeros(len(minima), self.form.Q.shape[1], self.size)
        for row, minimum in zip(x, minima, strict=True):
            row[:, minimum.rows] = minimum.x.T
        values = torch.tensor([minimum.value for minimum in minima], dtype=torch.float64, device=self.device)
        lower = self.form_bound.prove(x, self.form_bound.gradient(x), self.root.decide(supports, ~supports))[0]
        return values, (values - lower).clamp(min=0).nan_to_num(nan=torch.inf)
