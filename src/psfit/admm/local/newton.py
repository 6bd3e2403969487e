"""Newton's method on each node, for smooth losses with few features: all nodes and problems as one batch."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.admm.local.base import LocalSolver, LocalState, Subproblem
from psfit.kernels.linalg import Evaluation, newton
from psfit.losses import Loss


@dataclass(frozen=True)
class Newton(LocalSolver[LocalState]):
    """Newton steps from the last answer, to high accuracy; each needs a Gram product per output (or pair, if joint)."""

    name: ClassVar[str] = "newton"

    def objection(self, loss: Loss, blocks: int) -> str | None:
        if not loss.smooth:
            return f"Newton's method needs a differentiable loss, not {loss.name}; use 'feature_split'"
        if blocks > 1:
            return f"Newton's method works on whole nodes, not on {blocks} blocks; use 'feature_split'"
        return None

    def init(self, sub: Subproblem, x: Tensor) -> LocalState:
        return LocalState(x)

    def prox(self, sub: Subproblem, state: LocalState, v: Tensor, tol: Tensor | float) -> LocalState:
        target = _Batch(sub, v)
        accuracy = max(1e-7, 50 * torch.finfo(v.dtype).eps)
        result = newton(target.evaluate, target.value, target.flatten(state.x), tol=accuracy, max_iter=40)
        return LocalState(target.unflatten(result.x))


class _Batch:
    """The nodes' objectives in the form that `newton` needs: a batch of vectors, ordered by output."""

    def __init__(self, sub: Subproblem, v: Tensor) -> None:
        self.sub, self.v = sub, v
        self.nodes, self.n, self.outputs = v.shape
        self.joint = sub.loss.joint

    def flatten(self, X: Tensor) -> Tensor:
        size = self.n * self.outputs if self.joint else self.n
        return X.transpose(1, 2).reshape(-1, size)

    def unflatten(self, x: Tensor) -> Tensor:
        return x.reshape(self.nodes, self.outputs, self.n).transpose(1, 2)

    def value(self, x: Tensor) -> Tensor:
        X = self.unflatten(x)
        return self._value(X, self.sub.split.mv(X))

    def _value(self, X: Tensor, eta: Tensor) -> Tensor:
        source = self.sub.split.source
        fit = self.sub.split.sum_rows(source.working_weight * self.sub.loss.value(eta, source.working_target))
        near = 0.5 * self.sub.weight * (X - self.v).square()
        return fit.flatten() + self.flatten(near).sum(dim=1)

    def evaluate(self, x: Tensor) -> Evaluation:
        sub, source = self.sub, self.sub.split.source
        X = self.unflatten(x)
        eta = sub.split.mv(X)
        slope = source.working_weight * sub.loss.gradient(eta, source.working_target)
        gradient = sub.split.rmv(slope) + sub.weight * (X - self.v)
        hessian = self._joint_hessian(eta) if self.joint else self._scalar_hessian(eta)
        hessian.diagonal(dim1=1, dim2=2).add_(self.flatten(sub.weight.expand_as(X)))
        return self._value(X, eta), self.flatten(gradient), hessian

    def _scalar_hessian(self, eta: Tensor) -> Tensor:
        source = self.sub.split.source
        curvature = source.working_weight * self.sub.loss.curvature(eta, source.working_target)
        grams = [self.sub.split.weighted_gram(curvature[:, k : k + 1]) for k in range(self.outputs)]
        return torch.stack(grams, dim=1).reshape(-1, self.n, self.n)

    def _joint_hessian(self, eta: Tensor) -> Tensor:
        source = self.sub.split.source
        cross = source.working_weight.unsqueeze(2) * self.sub.loss.cross_curvature(eta, source.working_target)
        H = eta.new_zeros(self.nodes, self.outputs, self.n, self.outputs, self.n)
        for k in range(self.outputs):
            for q in range(k + 1):
                H[:, k, :, q] = H[:, q, :, k] = self.sub.split.weighted_gram(cross[:, k, q : q + 1])
        return H.reshape(self.nodes, self.outputs * self.n, -1)
