"""The contract of a loss.

A loss is a convex function of one sample's predictor ``eta`` and target ``b``. It holds no data: every method
is a pure function of tensors of shape ``(m, c)`` (samples by outputs). For a *scalar* loss the ``c`` columns are
independent problems; for a *joint* loss (softmax) they are the outputs of one problem.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Box:
    """A loss as ``max over low <= a <= high of a (eta - centre) - bend a^2 / 2``; tensors are ``(m, c)``."""

    low: Tensor
    high: Tensor
    centre: Tensor
    bend: float


class Loss(ABC):
    """A convex loss of single samples; the caller applies weights and sums over samples."""

    name: ClassVar[str]
    joint: ClassVar[bool] = False
    smooth: ClassVar[bool] = True
    quadratic: ClassVar[bool] = False
    # Whether it depends on ``eta - b`` alone, so that the mean may be subtracted from the targets.
    of_residual: ClassVar[bool] = False
    # Whether `dual_point` does the same work for all numbers, and never reads one of them on the host.
    steady: ClassVar[bool] = True
    # What reports and criteria need to know; all of this may be left out. What the loss fits, and the loss of a sample
    # as a formula of the predictor eta and the target y: without them, reports call the loss by its name.
    fits: ClassVar[str | None] = None
    formula: ClassVar[str | None] = None
    # What each field of the class means.
    meanings: ClassVar[dict[str, str]] = {}
    # Whether it is the negative logarithm of a likelihood, up to constants: then there are information criteria. The
    # square is one of a variance that is not known.
    likelihood: ClassVar[bool] = False
    # The largest second derivative, for a joint loss the largest eigenvalue; None if there is none, or it is not known.
    most_curvature: ClassVar[float | None] = None
    # Whether a joint loss stays the same if the predictors of all outputs change by the same number.
    of_differences: ClassVar[bool] = False
    # Whether its curvature comes as close to zero as one likes; None if that is not known.
    curvature_vanishes: ClassVar[bool | None] = None

    @abstractmethod
    def value(self, eta: Tensor, b: Tensor) -> Tensor:
        """Loss of each sample: ``(m, c)``, or ``(m, 1)`` for a joint loss."""

    @abstractmethod
    def gradient(self, eta: Tensor, b: Tensor) -> Tensor:
        """A (sub)gradient in ``eta``, shape ``(m, c)``."""

    @abstractmethod
    def curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        """Diagonal of the (generalised) second derivative in ``eta``, shape ``(m, c)``."""

    @abstractmethod
    def prox(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        """``argmin_w loss(w; b) + ||w - v||^2 / (2 step)`` to machine accuracy; ``step > 0`` broadcasts."""

    def dual_point(self, v: Tensor, b: Tensor, step: Tensor | float) -> Tensor:
        """About ``(v - prox(v)) / step``: a slope of the loss near its prox, in the domain of the conjugate."""
        return self.gradient(self.prox(v, b, step), b)

    @abstractmethod
    def conjugate(self, a: Tensor, b: Tensor) -> Tensor:
        """``sup_eta a'eta - loss(eta; b)``; infinite outside its closed domain. Shaped like `value`."""

    def conjugate_sizes(self, a: Tensor, b: Tensor) -> Tensor:
        """Sizes ``(m, c)`` of the terms that `conjugate` adds up: its rounding errors are a few units of them."""
        return a.abs() * (1 + b.abs()) + a.square()

    def nearest_slope(self, a: Tensor, b: Tensor) -> Tensor:
        """The slopes ``a (m, c)``, moved into the domain of the conjugate if rounding has left them outside."""
        return a

    @abstractmethod
    def typical_curvature(self, mean_target: float, outputs: int) -> float:
        """A typical second derivative: the unit in which penalties are chosen."""

    def constant_predictor(self, mean_target: Tensor) -> Tensor:
        """About the best predictors ``(c,)`` without features, from the mean targets ``(c,)``; zero if not known."""
        return mean_target if self.of_residual else torch.zeros_like(mean_target)

    def coupling(self, eta: Tensor, b: Tensor) -> Tensor:
        """``u (m, c)`` of a joint loss, whose second derivative is ``diag(u) - u u'``; its rows have sum one."""
        raise TypeError(f"the outputs of the {self.name} loss are independent")

    def cross_curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        """Second derivatives in all pairs of outputs, ``(m, c, c)``; diagonal unless the loss is joint."""
        diagonal = self.curvature(eta, b)
        if not self.joint:
            return diagonal.diag_embed()
        u = self.coupling(eta, b)
        return (diagonal + u.square()).diag_embed() - u.unsqueeze(2) * u.unsqueeze(1)

    def broad_curvature(self, eta: Tensor, b: Tensor) -> Tensor:
        """Curvature over steps of the usual size, ``(m, c)``: for models that compare supports.

        A loss with kinks has curvature nowhere or only in a small range, so its curvature at a point is of no use.
        """
        return self.curvature(eta, b)

    def envelope(self, width: float) -> "Loss | None":
        """A smooth loss below one with kinks, by at most `width` / 2, whose slopes are slopes of it, if known."""
        return None

    def box(self, b: Tensor) -> Box | None:
        """The loss as a maximum over a box of slopes; None if it is not made of lines and parabolas."""
        return None
