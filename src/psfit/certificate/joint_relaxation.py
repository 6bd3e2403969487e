"""The relaxation of a joint loss, such as softmax, by second-order steps: all outputs are variables of one model.

At a point the losses are replaced by their model of second order. An alternating direction method minimises it together
with the perspective, with one factor of the second derivatives. Where the objective is higher at that minimum, the step
is halved. The slopes of the samples prove a bound wherever the steps stand. Tree nodes are bounded one by one; on a CPU
`joint_nodes.py` serves many of them at once, where they have few coefficients.

On a GPU a root starts at the minimum without the limit on the count. Newton steps find it sooner than the steps above
find a useful bound.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.certificate.data_relaxation import DataRelaxation
from psfit.certificate.dual import prove_slopes
from psfit.certificate.joint_models import BlockModel, FullModel, JointModel
from psfit.certificate.node_points import MOST_NUMBERS, Samples
from psfit.certificate.relaxation import RHO_SHARE, Bounds, Fit, fill_places, least_ridge
from psfit.data import half_gram
from psfit.kernels.cuda_graph import Replay, Tensors
from psfit.problem import Domain
from psfit.problem.instance import Instance

Advance = Callable[[Tensors], Tensors]
# With more variables, or with more operations for the second derivatives, passes over the data serve.
MOST_VARIABLES = {"cpu": 1024, "cuda": 8192}
MOST_WORK = {"cpu": 2e10, "cuda": 5e12}
# The most steps of a root and of a tree node, and the relative gap at which a relaxation is solved with exact and with
# rough second derivatives.
STEPS, CHILD_STEPS = 80, 6
SOLVED, ROUGHLY_SOLVED = 3e-5, 5e-4
# Steps that take less than this share of what is missing, and hardly lower the objective, are the last after so many in
# a row.
STALLED, PATIENCE = 0.01, 2
# Iterations of the alternating direction method with exact and with rough second derivatives, and by how much they
# overshoot. It ends where an iteration changes the coefficients by less than this share, which is looked at at times.
ITERATIONS, ROUGH_ITERATIONS = 100, 30
OVERSHOOT = 1.6
UNCHANGED, CHECK_EVERY = 1e-7, 10
# The intercepts have no penalty, but a share of the mean second derivative: they may move together at no cost.
LEAST_SHARE, ROUGH_SHARE = 1e-9, 1e-3
# Steps that raise the objective are halved; longer ones than these are not tried.
LEAST_LENGTH, MOST_LENGTH = 2.0**-8, 4.0
ROUNDING = 1e-13
TINY = 1e-300
# Blocks, and all second derivatives, are kept after a step that lowered the objective by less than this share.
UNCHANGED_BLOCKS, UNCHANGED_FULL = 1e-3, 1e-5
# Newton steps without the limit on the count: how many, what share of the mean second derivative is added, and the
# share of the objective that the last one gains.
DENSE_STEPS, DENSE_SHARE, DENSE_GAIN = 25, 1e-6, 1e-4
# The share of equal probabilities in the second derivatives after a step that was too long, and the next factor.
FIRST_MIX, MIX_FACTOR = 1e-3, 10.0


def serves_jointly(inst: Instance) -> bool:
    """Whether this way can be taken: a smooth joint loss whose coefficients are few, and samples in memory."""
    loss, matrix, c = inst.problem.loss, inst.source.matrix, inst.source.outputs
    if not (loss.joint and loss.smooth) or inst.items.in_groups or inst.box is not None:
        return False
    n, kind = matrix.shape[1], matrix.device.type
    return inst.grid.blocks.size == 1 and not matrix.streamed and c * n * n <= MOST_NUMBERS[kind]


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
        n, c = inst.source.matrix.shape[1], inst.source.outputs
        work = {kind: inst.samples * n * n / most for kind, most in MOST_WORK.items()}[self.device.type]
        self.full = n * c <= MOST_VARIABLES[self.device.type] and c * c * work <= 1
        self.rough = not self.full or half_gram.available(inst.source.matrix)
        # Blocks are estimated from some of the rows where all of them would take too long.
        self.step = 1 if self.full else math.ceil(c * work)

    def start(self, Z: Tensor) -> tuple[Tensor, ...]:
        Z = Z.double()
        return ((self._drop_limit(Z) if self.full and self.rough else Z).unsqueeze(0),)

    def restart(self, points: Tensor) -> tuple[Tensor, ...]:
        return (points.view(len(points), -1, self.inst.source.outputs),)

    def _batch(self, domain: Domain, state: tuple[Tensor, ...], enough: Tensor | float, iterations: int) -> Bounds:
        grid, loss, target = self.inst.grid, self.inst.problem.loss, self.inst.source.target
        point = self._place(domain, self._admit(domain, state[0][0]))
        best, scores, mix = -torch.inf, torch.zeros_like(domain.inside, dtype=torch.float64), 0.0
        missing, before, idle = torch.inf, torch.inf, 0
        solved = ROUGHLY_SOLVED if self.full and self.rough else SOLVED
        model, advance = None, self._make_advance(domain)
        for k in range(iterations + 1):
            found = prove_slopes(self.inst, loss.gradient(point.eta, target), domain, self.samples.multiplied)
            if float(found.lower) > best:
                best, scores = float(found.lower), found.scores
            stalled = point.value - best > (1 - STALLED) * missing and before - point.value <= SOLVED * abs(point.value)
            idle = idle + 1 if stalled else 0
            missing, before = point.value - best, point.value
            done = missing <= solved * abs(point.value) or best >= float(enough) or idle > PATIENCE
            if grid.follow_first_rank(done) or k == iterations or (k and self.inst.watch.must_stop()):
                break
            if model is None:
                model = self._model(point.eta, mix)
            ahead = grid.agree(self._minimise_model(point, model, advance))[0]
            moved, short = self._step(domain, point, ahead)
            # Near the minimum, second derivatives hardly change.
            least = UNCHANGED_FULL if self.full else UNCHANGED_BLOCKS
            same = not short and point.value - moved.value <= least * abs(point.value)
            model = model if grid.follow_first_rank(same) else None
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

    def _drop_limit(self, Z: Tensor) -> Tensor:
        """About the minimum ``(n, c)`` without the limit on the count, from coefficients Z."""
        domain, ridge = self.root, self.inst.ridge.expand_as(Z)
        if bool(domain.outside.any()):
            return Z
        domain = replace(domain, left=torch.full_like(domain.left, domain.items.size))
        point = self._place(domain, Z)
        for _ in range(DENSE_STEPS):
            H = self._second_derivatives(self._shares(point.eta, 0.0))
            H.diagonal().add_(ridge.flatten() + DENSE_SHARE * H.diagonal().mean())
            factor, failed = torch.linalg.cholesky_ex(H)
            slope = point.g + ridge * point.Z
            ahead = point.Z - torch.cholesky_solve(slope.reshape(-1, 1), factor).view_as(Z)
            (ahead,) = self.inst.grid.agree(point.Z if bool(failed) else ahead)
            moved, _ = self._step(domain, point, ahead)
            last = point.value - moved.value <= DENSE_GAIN * abs(moved.value) or self.inst.watch.must_stop()
            point = moved
            if self.inst.grid.follow_first_rank(last):
                break
        return point.Z

    def _shares(self, eta: Tensor, mix: float) -> Tensor:
        """The shares ``(m, c)`` of the outputs in the curvature, `mix` of them equal ones."""
        return (1 - mix) * self.inst.problem.loss.coupling(eta, self.inst.source.target) + mix / eta.shape[1]

    def _second_derivatives(self, share: Tensor) -> Tensor:
        """All second derivatives ``(n c, n c)`` of the losses of all samples."""
        n, c, weight = self.samples.n, share.shape[1], self.inst.source.weight
        if self.rough:
            H = half_gram.half_joint_hessian(self.inst.source.matrix, weight, share)
        else:
            H = share.new_empty(n, c, n, c)
            for k in range(c):
                for q in range(k + 1):
                    cross = share[:, k] * (float(k == q) - share[:, q])
                    H[:, k, :, q] = self.samples.gram(weight[:, 0] * cross, 1)
                    H[:, q, :, k] = H[:, k, :, q]
        return self.inst.grid.nodes.total(H.view(n * c, n * c))

    def _model(self, eta: Tensor, mix: float) -> JointModel:
        """The model at predictors ``(m, c)``; its curvature has a share `mix` of equal probabilities."""
        share = self._shares(eta, mix)
        if self.full:
            H = self._second_derivatives(share)
            return FullModel(H, self._penalty(float(H.diagonal().mean())))
        bend = 2 * self.inst.source.weight * share * (1 - share)
        blocks = torch.stack([self.samples.gram(column, self.step) for column in bend.unbind(dim=1)])
        blocks = self.inst.grid.nodes.total(blocks)
        return BlockModel(blocks, self._penalty(float(blocks.diagonal(dim1=1, dim2=2).mean())))

    def _penalty(self, level: float) -> Tensor:
        """The penalties ``(n,)`` of the splitting for a mean curvature. The intercepts have next to none."""
        penalty = torch.full_like(self.inst.ridge[:, 0], RHO_SHARE * level + float(self.ridge.min()))
        penalty[self.inst.items.features :] = (ROUGH_SHARE if self.rough else LEAST_SHARE) * level
        return penalty

    def _minimise_model(self, point: JointPoint, model: JointModel, advance: Advance) -> Tensor:
        """About the minimum ``(n, c)`` of the model at a point."""
        if model.failed:
            return point.Z
        Z, p, rho = point.Z, self.inst.items.features, model.parts["penalty"][0]
        u = -point.g / rho
        u[p:] = 0.0
        found = model.parts | {"z": Z, "u": u, "start": Z, "pull": model.apply(Z) - point.g}
        names = found.keys()
        iterations = ROUGH_ITERATIONS if self.full and self.rough else ITERATIONS
        for _ in range(0, iterations, CHECK_EVERY):
            found = advance({name: found[name] for name in names})
            if float(found["change"]) <= UNCHANGED:
                break
        return torch.cat([found["z"][:p], found["x"][p:]])

    def _make_advance(self, domain: Domain) -> Advance:
        """Iterations of the alternating direction method for the models of this relaxation."""
        items, p, kind = self.inst.items, self.inst.items.features, FullModel if self.full else BlockModel

        def step(tensors: Tensors) -> Tensors:
            z, u, penalty = tensors["z"], tensors["u"], tensors["penalty"]
            # The intercepts stay near where they were, by a penalty that is next to nothing.
            anchor = torch.cat([(z - u)[:p], tensors["start"][p:]])
            x = kind.solve(tensors, tensors["pull"] + penalty * anchor)
            w = OVERSHOOT * x + (1 - OVERSHOOT) * z + u
            packed = items.pack(w)
            shrunk, _ = domain.shrink(packed.abs(), self.ridge, penalty[0])
            moved = items.replace(w, shrunk * packed)
            change = (moved - z).abs().max() / moved.abs().max().clamp(min=TINY)
            return tensors | {"z": moved, "u": w - moved, "x": x, "change": change}

        if self.device.type == "cuda":
            return Replay(step, constants=("inverse", "K", "shift", "start", "pull"), times=CHECK_EVERY)

        def advance(tensors: Tensors) -> Tensors:
            names, found = tensors.keys(), tensors
            for _ in range(CHECK_EVERY):
                found = step({name: found[name] for name in names})
            return found

        return advance

    def _step(self, domain: Domain, point: JointPoint, ahead: Tensor) -> tuple[JointPoint, bool]:
        """A point on the way to the one ahead where the objective is lower, and whether the step was shortened.

        Blocks have more curvature than the losses. So the objective is often lower beyond the point ahead.
        """
        most, length = point.value + ROUNDING * abs(point.value), 1.0
        moved = self._place(domain, ahead)
        while not self.inst.grid.follow_first_rank(moved.value <= most):
            length /= 2
            if length < LEAST_LENGTH:
                return point, True
            moved = self._place(domain, point.Z + length * (ahead - point.Z))
        short = length < 1
        while not self.full and not short and length < MOST_LENGTH:
            length *= 2
            farther = self._place(domain, point.Z + length * (ahead - point.Z))
            if not self.inst.grid.follow_first_rank(farther.value < moved.value):
                break
            moved = farther
        return moved, short
