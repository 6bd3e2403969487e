"""The relaxation of a joint loss, such as softmax, by second-order steps: all outputs are variables of one model.

At a point the losses are replaced by their model of second order. An alternating direction method minimises it together
with the perspective, with one factor of the second derivatives. Where the objective is higher at that minimum, the step
is halved. The slopes of the samples prove a bound wherever the steps stand. Tree nodes are bounded one by one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.certificate.data_relaxation import DataRelaxation
from psfit.certificate.dual import prove_slopes
from psfit.certificate.node_points import MOST_NUMBERS, Samples
from psfit.certificate.relaxation import RHO_SHARE, Bounds, Fit, fill_places, least_ridge
from psfit.problem import Domain
from psfit.problem.instance import Instance

# With more variables, or with more operations for the second derivatives, passes over the data serve.
MOST_VARIABLES = 1024
MOST_WORK = {"cpu": 2e10, "cuda": 5e12}
# The most steps of a root and of a tree node, and the relative gap at which a relaxation is solved.
STEPS, CHILD_STEPS = 40, 6
SOLVED = 3e-5
# Steps that take together less than this share of what is missing are the last after so many in a row.
STALLED, PATIENCE = 0.01, 2
# Iterations of the alternating direction method, and by how much they overshoot. It ends where an iteration changes the
# coefficients by less than this share, which is looked at now and then.
ITERATIONS = 100
OVERSHOOT = 1.6
UNCHANGED, CHECK_EVERY = 1e-7, 10
# The intercepts have no penalty, but a share of the mean second derivative: they may move together at no cost.
LEAST_SHARE = 1e-9
HALVINGS = 8
ROUNDING = 1e-13
# The share of equal probabilities in the second derivatives after a step that was too long, and the next factor.
FIRST_MIX, MIX_FACTOR = 1e-3, 10.0


def serves_jointly(inst: Instance) -> bool:
    """Whether this way can be taken: a smooth joint loss whose coefficients are few, and samples in memory."""
    loss, matrix, c = inst.problem.loss, inst.source.matrix, inst.source.outputs
    if not (loss.joint and loss.smooth) or inst.items.in_groups or inst.box is not None:
        return False
    n, kind = matrix.shape[1], matrix.device.type
    here = inst.grid.blocks.size == 1 and not matrix.streamed and inst.sizes.most_rows * n <= MOST_NUMBERS[kind]
    return here and n * c <= MOST_VARIABLES and inst.samples * n * n * c * c <= MOST_WORK[kind]


@dataclass(frozen=True)
class JointPoint:
    """Coefficients ``Z (n, c)``, predictors ``eta (m, c)``, gradient ``g (n, c)`` and objective of the relaxation."""

    Z: Tensor
    eta: Tensor
    g: Tensor
    value: float


class JointRelaxation(DataRelaxation):
    """The relaxation of an instance of one problem with a joint loss."""

    def __init__(self, inst: Instance, fit: Fit | None = None) -> None:
        super().__init__(inst, fit)
        self.samples, self.child_iterations = Samples(inst), CHILD_STEPS

    def start(self, Z: Tensor) -> tuple[Tensor, ...]:
        return (Z.double().unsqueeze(0),)

    def restart(self, points: Tensor) -> tuple[Tensor, ...]:
        return (points.view(len(points), -1, self.inst.source.outputs),)

    def _batch(self, domain: Domain, state: tuple[Tensor, ...], enough: Tensor | float, iterations: int) -> Bounds:
        grid, loss, target = self.inst.grid, self.inst.problem.loss, self.inst.source.target
        point = self._place(domain, self._admit(domain, state[0][0]))
        best, scores, mix = -torch.inf, torch.zeros_like(domain.inside, dtype=torch.float64), 0.0
        missing, idle = torch.inf, 0
        for k in range(iterations + 1):
            found = prove_slopes(self.inst, loss.gradient(point.eta, target), domain, self.samples.dense)
            if float(found.lower) > best:
                best, scores = float(found.lower), found.scores
            idle = idle + 1 if point.value - best > (1 - STALLED) * missing else 0
            missing = point.value - best
            done = missing <= SOLVED * abs(point.value) or best >= float(enough) or idle > PATIENCE
            if grid.follow_first_rank(done) or k == iterations or (k and self.inst.watch.must_stop()):
                break
            ahead = grid.agree(self._minimise_model(domain, point, self._bend(point.eta, mix)))[0]
            moved, short = self._step(domain, point, ahead)
            mix = min(max(MIX_FACTOR * mix, FIRST_MIX), 1.0) if short else mix / MIX_FACTOR
            if moved is point and mix == 1.0:
                break
            point = moved
        shares = fill_places(domain, self._sizes(point.Z))
        lower = torch.tensor([best], dtype=torch.float64, device=self.device)
        lower, scores, shares = grid.agree(lower, scores, shares)
        value = torch.full_like(lower, point.value)
        return Bounds(lower, scores, shares, (point.Z.unsqueeze(0),), value=value)

    def _sizes(self, Z: Tensor) -> Tensor:
        """The sizes ``(1, size)`` of the items in the perspective."""
        return self.ridge.sqrt() * self.inst.items.pack(Z).abs()

    def _admit(self, domain: Domain, Z: Tensor) -> Tensor:
        """The coefficients without those of items outside."""
        closed = domain.outside | (domain.free & (domain.left <= 0))
        return self.inst.items.replace(Z, torch.where(closed, 0.0, self.inst.items.pack(Z)))

    def _place(self, domain: Domain, Z: Tensor) -> JointPoint:
        loss, source = self.inst.problem.loss, self.inst.source
        eta = self.samples.predict(Z.T).T
        slopes = source.weight * loss.gradient(eta, source.target)
        value = (source.weight * loss.value(eta, source.target)).sum()
        sums = torch.cat([self.samples.sum_slopes(slopes.T).flatten(), value.reshape(1)])
        sums = self.inst.grid.nodes.total(sums)
        objective = float(sums[-1] + least_ridge(domain, self._sizes(Z)))
        return JointPoint(Z, eta, sums[:-1].view(-1, len(Z)).T, objective)

    def _bend(self, eta: Tensor, mix: float) -> Tensor:
        """The second derivatives ``(n c, n c)`` of the losses, larger by a share `mix` of equal probabilities."""
        n, c = self.samples.n, eta.shape[1]
        share = self.inst.problem.loss.coupling(eta, self.inst.source.target)
        share = (1 - mix) * share + mix / c
        H = share.new_empty(n, c, n, c)
        for k in range(c):
            for q in range(k + 1):
                cross = share[:, k] * (float(k == q) - share[:, q])
                H[:, k, :, q] = self.samples.gram(self.inst.source.weight[:, 0] * cross, 1)
                H[:, q, :, k] = H[:, k, :, q]
        return self.inst.grid.nodes.total(H.view(n * c, n * c))

    def _minimise_model(self, domain: Domain, point: JointPoint, H: Tensor) -> Tensor:
        """About the minimum ``(n, c)`` of the model at a point."""
        items, Z = self.inst.items, point.Z
        p = items.features
        level = float(H.diagonal().mean())
        rho = RHO_SHARE * level + float(self.ridge.min())
        penalty = torch.full_like(Z, rho)
        penalty[p:] = LEAST_SHARE * level
        shifted = H + torch.diag(penalty.flatten())
        factor, failed = torch.linalg.cholesky_ex(shifted)
        if int(failed):
            return Z
        inverse = torch.cholesky_inverse(factor)
        pull = (H @ Z.flatten()).view_as(Z) - point.g
        z, u = Z, -point.g / rho
        u[p:] = 0.0
        for k in range(ITERATIONS):
            before = z
            # The intercepts stay near where they were, by a penalty that is next to nothing.
            anchor = torch.cat([(z - u)[:p], Z[p:]])
            x = (inverse @ (pull + penalty * anchor).flatten()).view_as(Z)
            w = OVERSHOOT * x + (1 - OVERSHOOT) * z + u
            packed = items.pack(w)
            shrunk, _ = domain.shrink(packed.abs(), self.ridge, rho)
            z = items.replace(w, shrunk * packed)
            u = w - z
            if k % CHECK_EVERY == 0 and float((z - before).abs().max()) <= UNCHANGED * float(z.abs().max()):
                break
        return torch.cat([z[:p], x[p:]])

    def _step(self, domain: Domain, point: JointPoint, ahead: Tensor) -> tuple[JointPoint, bool]:
        """A point on the way to the one ahead where the objective is lower, and whether the step was shortened."""
        most, length = point.value + ROUNDING * abs(point.value), 1.0
        for k in range(HALVINGS + 1):
            moved = self._place(domain, point.Z + length * (ahead - point.Z))
            if self.inst.grid.follow_first_rank(moved.value <= most):
                return moved, k > 0
            length /= 2
        return point, True
