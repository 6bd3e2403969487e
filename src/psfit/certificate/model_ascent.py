"""Raises the bound of a smooth loss by second-order models: each costs two passes over the data.

At a point the loss is replaced by its second-order model. The relaxation of the model is solved without the data, and
its solution is the next point. One matrix of second derivatives, that of the answer, serves all models as long as their
solutions are good points; only gradients are made again. Every gradient proves a bound, so points need not be exact.
"""

from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from psfit.certificate.dual import DualPoint, prove_slopes
from psfit.certificate.relaxation import CHECK_EVERY, PATIENCE, RHO_SHARE, STALLED
from psfit.data import Affine
from psfit.kernels.linalg import cholesky
from psfit.problem import Domain
from psfit.problem.instance import Instance

# The most models, and how many in a row may close less than a share WORTHWHILE of the gap: for large data, and for data
# of so few numbers that passes cost nothing.
MODELS, MANY_MODELS, SMALL = 8, 20, 1 << 18
IDLE_MODELS, MANY_IDLE_MODELS = 1, 3
WORTHWHILE = 0.01
# The iterations for each model.
ITERATIONS = 100
# After a shorter step, or one that gains little, the second derivatives are made again.
SHORT = 0.5
# Second derivatives come from some of the rows where all of them would take more operations than this, but from at
# least so many rows for each column. Every column has at least this share of the typical curvature.
MOST_WORK = 4e9
ROWS_PER_COLUMN = 10
LEAST_SHARE = 0.1
# With more columns, models take too long.
MOST_COLUMNS = 1024
# Steps towards the solution of a model of which the best is taken.
STEPS = (1.0, 0.5, 0.25, 0.125, 0.03)
# Newton steps for the intercept, which use predictors only.
INTERCEPT_STEPS = 3


@dataclass(frozen=True)
class Ascent:
    """The best bound ``lower (1,)``, the scores behind it, its slopes ``(m, 1)``, and where the ascent ended.

    The coefficients ``Z (n, 1)`` at the end are zero for the items that the relaxation does not use.
    """

    lower: Tensor
    scores: Tensor
    slopes: Tensor
    Z: Tensor


def serves(inst: Instance) -> bool:
    """Whether this way can be taken: a smooth loss of one output, with all columns at hand on a CPU."""
    loss, matrix = inst.problem.loss, inst.source.matrix
    alone = inst.source.outputs == 1 and inst.grid.blocks.size == 1
    return loss.smooth and not loss.joint and alone and not matrix.streamed and matrix.device.type == "cpu"


def serves_all_columns(inst: Instance) -> bool:
    """Whether this way is better than candidates: with more rows than columns, a relaxation uses most columns."""
    return serves(inst) and inst.costs.tall and inst.source.matrix.shape[1] <= MOST_COLUMNS


def raise_by_models(inst: Instance, Z: Tensor, enough: float, domain: Domain) -> Ascent:
    """Bound one problem from its answer ``Z (n, 1)``; a bound of `enough` is good enough."""
    point = _Point.at(inst, Z.double())
    best = found = prove_slopes(inst, point.slopes(inst), domain)
    slopes, idle, step = point.slopes(inst), 0, 0.0
    model = _Model(inst, point)
    small = inst.samples * inst.source.matrix.shape[1] <= SMALL
    models, most_idle = (MANY_MODELS, MANY_IDLE_MODELS) if small else (MODELS, IDLE_MODELS)
    for _ in range(models):
        done = idle >= most_idle or float(best.lower) >= enough or inst.watch.must_stop()
        if inst.grid.follow_first_rank(done):
            break
        if inst.grid.follow_first_rank((step < SHORT or idle > 0) and not model.exact):
            model.make(point)
        point, step = model.improve(point, found, enough)
        found = prove_slopes(inst, point.slopes(inst), domain)
        gain = float(found.lower) - float(best.lower)
        idle = 0 if gain > WORTHWHILE * (enough - float(best.lower)) else idle + 1
        if not isfinite(float(found.lower)):
            # Numbers overflow: no later point can be trusted.
            idle = most_idle
        if gain > 0:
            best, slopes = found, point.slopes(inst)
    return Ascent(best.lower, best.scores, slopes, torch.cat([model.z.T, point.Z[model.p :]]))


@dataclass(frozen=True)
class _Point:
    """Coefficients ``Z (n, 1)`` and the predictors ``eta (m, 1)`` of this rank's samples."""

    Z: Tensor
    eta: Tensor

    @classmethod
    def at(cls, inst: Instance, Z: Tensor) -> "_Point":
        matrix = inst.source.matrix
        return cls(Z, matrix.mv(Z.to(matrix.dtype)).double())

    def slopes(self, inst: Instance) -> Tensor:
        return inst.problem.loss.gradient(self.eta, inst.source.target)


class _Model:
    """The second-order model at a point, without its gradient; the intercept takes its best value."""

    def __init__(self, inst: Instance, point: _Point) -> None:
        self.inst, self.p = inst, inst.items.features
        self.ridge = inst.ridge[: self.p, 0].contiguous()
        # Iterates of the relaxation, and the multipliers times rho.
        self.z = point.Z[: self.p].T.clone()
        self.y: Tensor | None = None
        self.exact = False

    def make(self, point: _Point) -> None:
        """Make the second derivatives at a point."""
        inst, source, p = self.inst, self.inst.source, self.p
        weight = source.weight * inst.problem.loss.curvature(point.eta, source.target)
        H = self._second_derivatives(weight)
        # The best intercept moves by `lean'd` if the features move by d.
        corner = H[p:, p:].sum().clamp(min=torch.finfo(H.dtype).tiny)
        self.lean = -H[p:, :p] / corner
        self.H = H[:p, :p] + H[:p, p:] @ self.lean
        self.rho = RHO_SHARE * float(self.H.diagonal().mean()) + float(self.ridge.min())
        shifted = self.H.clone()
        shifted.diagonal().add_(self.rho)
        self.inverse = torch.cholesky_inverse(cholesky(shifted))
        self.exact = inst.problem.loss.quadratic

    def _second_derivatives(self, weight: Tensor) -> Tensor:
        """``A' diag(weight) A``, or an estimate from some of the rows."""
        inst, matrix = self.inst, self.inst.source.matrix
        n = matrix.shape[1]
        step = int(min(2.0 * inst.samples * n * n / MOST_WORK, inst.samples / (ROWS_PER_COLUMN * n)))
        if step <= 1 or not isinstance(matrix, Affine) or matrix.kept is not None:
            return inst.grid.nodes.total(matrix.gram(weight, torch.float64))
        H = weight.new_zeros(n, n)
        for at, strip in matrix.base.strips(torch.float64):
            rows = torch.arange(0, at.stop - at.start, step)
            some = strip.rows(rows).standardise(matrix.shift, matrix.scale, matrix.constant)
            H += some.gram(step * weight[at][rows])
        total = inst.grid.nodes.total(torch.cat([H, weight.sum().expand(1, n)]))
        H, least = total[:n], LEAST_SHARE * total[n, 0]
        H.diagonal().clamp_(min=float(least))
        return H

    def improve(self, point: _Point, known: DualPoint, enough: float) -> tuple[_Point, float]:
        """A better point for the relaxation, where the gradient is known at `point`, and the length of the step."""
        x = point.Z[: self.p].T
        ahead = self._solve(x, known.g.T, point, enough)
        move = (ahead - x).T
        move = torch.cat([move, self.lean @ move])
        matrix = self.inst.source.matrix
        along = matrix.mv(move.to(matrix.dtype)).double()
        step = self._choose_step(point, along, x[0], ahead[0])
        eta, shift = self._set_intercept(point.eta + step * along)
        Z = point.Z + step * move
        Z[self.p :] += shift
        return _Point(Z, eta), step

    def _solve(self, x: Tensor, g: Tensor, point: _Point, enough: float) -> Tensor:
        """Nearly the solution ``(1, p)`` of the model's relaxation, by the compiled alternating direction method."""
        from psfit.kernels.cpu.perspective import ascend

        Hx = x @ self.H
        Q = (Hx - g).contiguous()
        constant = float(self._losses(point.eta) + 0.5 * (x * Hx).sum() - (x * g).sum())
        u = (-g if self.y is None else self.y) / self.rho
        z, u, found = self.z, u.contiguous(), torch.empty_like(Q)
        ascend(
            self.inverse.numpy(),
            Q.numpy(),
            self.ridge.numpy(),
            self.inst.problem.kappa[0],
            self.rho,
            constant,
            z.numpy(),
            u.numpy(),
            enough,
            ITERATIONS,
            CHECK_EVERY,
            STALLED,
            PATIENCE,
            found.numpy(),
        )
        self.y = self.rho * u
        return found

    def _losses(self, eta: Tensor) -> Tensor:
        """The sums of the losses ``(k,)`` of all nodes at predictors ``(m, k)``."""
        source = self.inst.source
        return self.inst.grid.nodes.total((source.weight * self.inst.problem.loss.value(eta, source.target)).sum(dim=0))

    def _choose_step(self, point: _Point, along: Tensor, x: Tensor, ahead: Tensor) -> float:
        """The step with the least loss and perspective, which is at most its interpolation."""
        steps = point.eta.new_tensor(STEPS)
        values = torch.cat([self._losses(point.eta + step * along) for step in steps])
        values += (1 - steps) * self._perspective(x) + steps * self._perspective(ahead)
        return STEPS[int(values.argmin())]

    def _perspective(self, x: Tensor) -> Tensor:
        """The least ridge of ``x (p,)`` over shares of the limit: items with share one, then shares by size."""
        kappa = self.inst.problem.kappa[0]
        sizes = (x.abs() * self.ridge.sqrt()).sort(descending=True).values
        if kappa >= len(sizes):
            return 0.5 * sizes.square().sum()
        whole = torch.arange(kappa, device=x.device)
        rest = sizes.flip(0).cumsum(0).flip(0)[:kappa]
        full = int((sizes[:kappa] * (kappa - whole) > rest).int().cumprod(0).sum())
        shared = rest[full] ** 2 / (kappa - full) if full < kappa else torch.zeros_like(rest[0])
        return 0.5 * (sizes[:full].square().sum() + shared)

    def _set_intercept(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        """Predictors with the best intercept, and how much it has changed ``(1,)``."""
        source, loss, shift = self.inst.source, self.inst.problem.loss, eta.new_zeros(1)
        for _ in range(INTERCEPT_STEPS if self.inst.items.free else 0):
            slope, curvature = loss.gradient(eta, source.target), loss.curvature(eta, source.target)
            sums = self.inst.grid.nodes.total((source.weight * torch.cat([slope, curvature], dim=1)).sum(dim=0))
            by = -sums[0] / sums[1] if bool(sums[1] > 0) else torch.zeros_like(sums[0])
            eta, shift = eta + by, shift + by
        return eta, shift
