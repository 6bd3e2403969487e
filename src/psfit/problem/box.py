"""Bounds on coefficients, and what the ridge and the bounds of one coefficient contribute to a lower bound."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class CoefficientBox:
    """The least and the largest values ``low, high (p, c)`` of coefficients, in float64; zero is between them."""

    low: Tensor
    high: Tensor

    @cached_property
    def limits_only_signs(self) -> bool:
        """Whether every bound is zero or infinite."""
        return bool((((self.low == 0) | self.low.isinf()) & ((self.high == 0) | self.high.isinf())).all())

    def select_rows(self, rows: Tensor) -> "CoefficientBox":
        """The bounds of some features."""
        return CoefficientBox(self.low[rows], self.high[rows])

    def select_outputs(self, outputs: list[int]) -> "CoefficientBox":
        """The bounds of some outputs, or of copies of them."""
        return CoefficientBox(self.low[:, outputs], self.high[:, outputs])

    @cached_property
    def signs(self) -> "CoefficientBox":
        """The box that allows the same signs, of any size."""
        low = torch.where(self.low >= 0, 0.0, -torch.inf).double()
        return CoefficientBox(low, torch.where(self.high <= 0, 0.0, torch.inf).double())

    def with_free(self, free: int) -> tuple[Tensor, Tensor]:
        """The bounds ``(p + free, c)`` with those of rows that have none."""
        none = self.low.new_full((free, self.low.shape[1]), torch.inf)
        return torch.cat([self.low, -none]), torch.cat([self.high, none])

    def clip(self, X: Tensor) -> Tensor:
        """Coefficients ``(p + free, c)`` moved into the box; the free rows stay as they are."""
        low, high = self._bounds_for(len(X) - len(self.low), X.dtype)
        return X.clamp(low, high)

    def clip_signs(self, X: Tensor) -> Tensor:
        """Coefficients ``(p + free, c)`` with zeros where their sign is not allowed."""
        return self.signs.clip(X)

    def _bounds_for(self, free: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The bounds with free rows, as numbers of a type; they are made once."""
        if (free, dtype) not in self._made:
            low, high = self.with_free(free)
            self._made[free, dtype] = low.to(dtype), high.to(dtype)
        return self._made[free, dtype]

    @cached_property
    def _made(self) -> dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]]:
        return {}


def bounds_of(box: CoefficientBox | None) -> tuple[Tensor | None, Tensor | None]:
    """The bounds of a box, if there is one."""
    return (None, None) if box is None else (box.low, box.high)


def score(g: Tensor, error: Tensor | float, ridge: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    """``max (-g x - r x^2 / 2)`` over ``low <= x <= high``, at least, for any derivative within `error` of ``g``.

    Without bounds this is ``g^2 / (2 r)``. The result is convex in g, so its largest value is at an end.
    """
    if low is None or high is None:
        return (g.abs() + error).square() / (2 * ridge)
    return torch.maximum(_score(g - error, ridge, low, high), _score(g + error, ridge, low, high))


def _score(g: Tensor, ridge: Tensor, low: Tensor, high: Tensor) -> Tensor:
    x = torch.minimum(torch.maximum(-g / ridge, low), high)
    return (-g * x - 0.5 * ridge * x.square()).clamp(min=0)
