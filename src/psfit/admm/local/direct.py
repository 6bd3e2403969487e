"""The exact prox of the squared loss: one regularised least squares problem per node, factored once."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from psfit.admm.local.base import LocalSolver, LocalState, Subproblem
from psfit.admm.local.ridge import RidgeFactor, ridge_factor
from psfit.losses import Loss


@dataclass(frozen=True)
class DirectState(LocalState):
    """The factor of ``diag(w) + 2 A'DA`` and the constant part ``2 A'D b`` of the right-hand side."""

    factor: RidgeFactor
    data_term: Tensor


@dataclass(frozen=True)
class Direct(LocalSolver[DirectState]):
    """``x = (diag(w) + 2 A'DA)^-1 (w v + 2 A'D b)``."""

    name: ClassVar[str] = "direct"
    steady: ClassVar[bool] = True

    def objection(self, loss: Loss, blocks: int) -> str | None:
        if not loss.quadratic:
            return f"the direct solver needs the squared loss, not {loss.name}; use 'feature_split' or 'newton'"
        if blocks > 1:
            return f"the direct solver works on whole nodes, not on {blocks} blocks; use 'feature_split'"
        return None

    def init(self, sub: Subproblem, x: Tensor) -> DirectState:
        return DirectState(x, ridge_factor(sub.split, sub.weight, 2.0), sub.split.Q)

    def prox(self, sub: Subproblem, state: DirectState, v: Tensor, tol: Tensor | float) -> DirectState:
        x = state.factor.solve(torch.addcmul(state.data_term, sub.weight, v))
        return DirectState(x, state.factor, state.data_term)
