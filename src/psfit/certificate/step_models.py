"""What second-order steps need of the models behind them: those of free items and those of decided supports."""

from typing import Protocol, Self, TypeVar

from torch import Tensor

from psfit.certificate.node_points import Points, Samples
from psfit.problem import Domain


class StepModels(Protocol):
    """Models of the losses at the points of a batch of tree nodes."""

    @property
    def corners(self) -> Tensor | None:
        """The second derivatives of the intercept in all rows, ``(B, 1)``; None if there is none."""

    def select(self, rows: Tensor) -> Self:
        """The models of some rows of the batch."""

    def put(self, rows: Tensor, other: Self) -> Self:
        """The same with other models of some rows."""

    def minimise(self, samples: Samples, points: Points, domain: Domain, tolerance: Tensor) -> Tensor:
        """The minimisers ``(B, n)`` of the models at the points, up to gaps of ``tolerance (B,)``."""


Kind = TypeVar("Kind", bound=StepModels)
Made = TypeVar("Made", bound=StepModels, covariant=True)


class Maker(Protocol[Made]):
    """Makes models of one kind."""

    def make(self, bend: Tensor, rows: int, at: Tensor | None = None, rough: bool = False) -> Made:
        """Models of `rows` nodes from the weights ``bend (k, m)`` of the samples in their second derivatives.

        ``k`` is `rows` or divides it. `at` are their numbers in a larger batch. A `rough` model needs few digits.
        """
