"""Algorithm 2 of the paper: the prox of a node whose features are split into M blocks.

With ``A_i x = sum_j A_ij x_j`` and an auxiliary predictor ``omega_j`` for each block, the scaled ADMM steps are

    x_j       = argmin 1/2 ||x_j - v_j||_w^2 + rho_l / 2 ||A_j x_j - (A_j x_j^old + omega_bar - mean_Ax - nu)||^2
    mean_Ax   = 1/M sum_j A_j x_j                                   (the one reduction)
    omega_bar = 1/M prox_{(M / rho_l) loss}(M (mean_Ax + nu))       (separable over samples)
    nu       += mean_Ax - omega_bar

The quadratic penalties are taken in the metric of the sample weights. Then a weight cancels from the omega step, and a
sample of weight zero has no effect.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.admm.local.base import LocalSolver, LocalState, Subproblem
from psfit.admm.local.ridge import RidgeFactor, ridge_factor
from psfit.data import NodeSplit
from psfit.losses import Loss


@dataclass(frozen=True)
class Block:
    """One feature block: its columns of every node, and their factor."""

    at: slice
    data: NodeSplit
    factor: RidgeFactor


@dataclass(frozen=True)
class FeatureSplitState(LocalState):
    """Predictors cover all samples of all nodes: ``parts`` has M tensors ``(m, c)``, the others are ``(m, c)``."""

    blocks: tuple[Block, ...]
    parts: tuple[Tensor, ...]
    mean: Tensor
    omega_bar: Tensor
    nu: Tensor
    varying: ClassVar[tuple[str, ...]] = ("x", "parts", "mean", "omega_bar", "nu")


@dataclass(frozen=True)
class FeatureSplit(LocalSolver[FeatureSplitState]):
    """Inner ADMM over feature blocks, which starts from its last state; for every loss and any number of blocks.

    Parameters
    ----------
    max_inner : int, default=5
        The most inner steps per call. With the warm start a few are enough; `tol` decides how many.
    """

    max_inner: int = 5
    name: ClassVar[str] = "feature_split"

    def objection(self, loss: Loss, blocks: int) -> str | None:
        return None

    def init(self, sub: Subproblem, x: Tensor) -> FeatureSplitState:
        blocks = []
        for at in sub.blocks:
            data = sub.split.columns(at)
            blocks.append(Block(at, data, ridge_factor(data, sub.weight[at], sub.rho_l)))
        parts = tuple(block.data.mv(x[:, block.at]) for block in blocks)
        mean, _ = self._mean(sub, parts, x.new_zeros(1))
        return FeatureSplitState(x, tuple(blocks), parts, mean, mean, torch.zeros_like(mean))

    def prox(self, sub: Subproblem, state: FeatureSplitState, v: Tensor, tol: Tensor | float) -> FeatureSplitState:
        source = sub.split.source
        # Errors are compared as energies: 1/2 ||x||_w^2 and rho_l / 2 ||omega||^2 are terms of one function.
        limit = tol**2 * sub.weight.mean()
        for _ in range(self.max_inner):
            previous = state
            state, moved = self._step(sub, state, v)
            mismatch = source.working_weight * (state.mean - state.omega_bar).square()
            drift = source.working_weight * (state.omega_bar - previous.omega_bar).square()
            energy = torch.cat([moved, sub.rho_l * sub.axis.size * (mismatch + drift).sum().reshape(1)])
            if bool((energy <= limit).all()):
                break
        return state

    def _step(self, sub: Subproblem, state: FeatureSplitState, v: Tensor) -> tuple[FeatureSplitState, Tensor]:
        """One inner iteration, and the change of ``x``, summed over all blocks."""
        source, M = sub.split.source, sub.axis.size
        common = state.omega_bar - state.mean - state.nu
        x, parts = torch.zeros_like(state.x), []
        for block, part in zip(state.blocks, state.parts, strict=True):
            pull = block.data.rmv(source.working_weight * (part + common))
            x[:, block.at] = block.factor.solve(sub.weight[block.at] * v[:, block.at] + sub.rho_l * pull)
            parts.append(block.data.mv(x[:, block.at]))
        mean, moved = self._mean(sub, tuple(parts), (sub.weight * (x - state.x).square()).sum().reshape(1))
        omega_bar = sub.loss.prox(M * (mean + state.nu), source.working_target, M / sub.rho_l) / M
        nu = state.nu + mean - omega_bar
        return FeatureSplitState(x, state.blocks, tuple(parts), mean, omega_bar, nu), moved

    @staticmethod
    def _mean(sub: Subproblem, parts: tuple[Tensor, ...], moved: Tensor) -> tuple[Tensor, Tensor]:
        """The only reduction of an inner iteration; it also sums one number of the stopping test."""
        local = torch.stack(parts).sum(dim=0)
        summed = sub.axis.total(torch.cat([local.flatten(), moved]))
        return summed[:-1].view_as(local) / sub.axis.size, summed[-1:]
