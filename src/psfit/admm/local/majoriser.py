"""One step on a quadratic bound of each node's losses, for smooth losses whose curvature is bounded.

With L the largest curvature of the loss, the losses of a node lie below

    f(x_old) + s'A (x - x_old) + L / 2 ||A (x - x_old)||^2,   s the slopes at x_old,

and touch it at the last answer x_old. The minimiser of this bound and the proximal term takes the place of the prox.
Then Bi-cADMM is a proximal ADMM: it has the same fixed points as with the exact prox, and about as many iterations, but
each needs only two passes over the data and one product with a matrix that is inverted once.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from psfit.admm.local.base import LocalSolver, LocalState, Subproblem
from psfit.admm.local.ridge import RidgeFactor, ridge_factor
from psfit.losses import Loss


@dataclass(frozen=True)
class MajoriserState(LocalState):
    """The factor of ``diag(w) + L A'DA``."""

    factor: RidgeFactor


@dataclass(frozen=True)
class Majoriser(LocalSolver[MajoriserState]):
    """Steps that minimise a quadratic bound at the last answer; the objective of the prox falls with each.

    Parameters
    ----------
    steps : int, default=1
        Steps in each call. More of them come closer to the exact prox.
    """

    steps: int = 1
    name: ClassVar[str] = "majoriser"
    steady: ClassVar[bool] = True

    def objection(self, loss: Loss, blocks: int) -> str | None:
        if loss.most_curvature is None:
            return f"the majoriser needs a loss of bounded curvature, not {loss.name}; use 'feature_split'"
        if blocks > 1:
            return f"the majoriser works on whole nodes, not on {blocks} blocks; use 'feature_split'"
        return None

    def init(self, sub: Subproblem, x: Tensor) -> MajoriserState:
        assert sub.loss.most_curvature is not None
        return MajoriserState(x, ridge_factor(sub.split, sub.weight, sub.loss.most_curvature))

    def prox(self, sub: Subproblem, state: MajoriserState, v: Tensor, tol: Tensor | float) -> MajoriserState:
        loss, target, x = sub.loss, sub.split.source.working_target, state.x
        for _ in range(self.steps):
            x = state.factor.descend(x, v, lambda eta: loss.gradient(eta, target), loss.of_differences)
        return MajoriserState(x, state.factor)
