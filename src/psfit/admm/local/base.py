"""The contract of a local solver: the proximal operator of each node's data.

With the ridge folded into the weight ``w_j = ridge_j / N + rho_c`` and the centre ``v = (rho_c / w)(z - u)``, the
node's update is

    x = argmin  sum_k weight_k loss(A_i x; b_i)_k + 1/2 ||x - v||_w^2

so that a local solver does not need gamma, rho_c or u, and an intercept is a coordinate with its own weight.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from psfit.comm import Axis
from psfit.data import NodeSplit
from psfit.losses import Loss


@dataclass(frozen=True)
class Subproblem:
    """The problem that all nodes hosted here solve, in every iteration for new centres ``v``.

    Parameters
    ----------
    loss : Loss
    split : NodeSplit
        The rows of each hosted node.
    weight : Tensor (n, 1)
        The weights ``w`` of the proximal term.
    blocks : tuple of slice
        The column ranges of the feature blocks hosted here.
    axis : Axis
        The feature axis of the grid, over which partial predictors are summed.
    rho_l : float
        Penalty of the feature decomposition.
    """

    loss: Loss
    split: NodeSplit
    weight: Tensor
    blocks: tuple[slice, ...]
    axis: Axis
    rho_l: float


@dataclass(frozen=True)
class LocalState:
    """What a local solver keeps from one call to the next: at least its answer ``x (N, n, c)``.

    The fields named in `varying` change with every call; the others depend only on the subproblem.
    """

    x: Tensor
    varying: ClassVar[tuple[str, ...]] = ("x",)

    def tensors(self) -> dict[str, Tensor]:
        """The varying fields as arrays."""
        fields = {name: getattr(self, name) for name in self.varying}
        return {name: torch.stack(value) if isinstance(value, tuple) else value for name, value in fields.items()}

    def restore(self, tensors: dict[str, Tensor]) -> "LocalState":
        """The state with these `tensors`, which a state of the same subproblem returned before."""
        fields = {n: tuple(v) if isinstance(getattr(self, n), tuple) else v for n, v in tensors.items()}
        return replace(self, **fields)  # type: ignore[arg-type]


S = TypeVar("S", bound=LocalState)


class LocalSolver(ABC, Generic[S]):
    """The settings of a solver; its state is passed in and returned."""

    name: ClassVar[str]
    # Whether every call does the same work for all numbers, and never reads one of them on the host.
    steady: ClassVar[bool] = False

    @abstractmethod
    def objection(self, loss: Loss, blocks: int) -> str | None:
        """Why this solver cannot work for a loss and a number of feature blocks, or None."""

    @abstractmethod
    def init(self, sub: Subproblem, x: Tensor) -> S:
        """Factor once; start from ``x (N, n, c)``."""

    @abstractmethod
    def prox(self, sub: Subproblem, state: S, v: Tensor, tol: Tensor | float) -> S:
        """The update for centres ``v (N, n, c)``; if it is iterative, to about ``tol`` in ``||x||``."""
