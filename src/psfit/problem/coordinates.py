"""The coordinates of an instance: how columns and targets were changed, and the way back to the user's units."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Coordinates:
    """Columns ``(a_j - shift_j) / scale_j`` and a last column `constant`, targets less `level`.

    Parameters
    ----------
    shift, scale : Tensor (p,), float64
        What was subtracted from each column, and what it was then divided by: infinity for a constant column.
    level : Tensor (c,), float64
        What was subtracted from the targets of each output.
    constant : float
        The value of the intercept's column; zero if there is no intercept.
    column_norm : float
        The norm that all columns have in these coordinates.
    rounding_norm : Tensor (n, 1), float64
        The norms that bound the rounding of sums over samples: those of the columns, and larger ones where means are
        subtracted from the sums and not from the entries.
    """

    shift: Tensor
    scale: Tensor
    level: Tensor
    constant: float
    column_norm: float
    rounding_norm: Tensor

    def restrict(self, features: Tensor, keep: Tensor) -> "Coordinates":
        """The coordinates of some of the features; `keep` are these and the intercept."""
        return replace(
            self, shift=self.shift[features], scale=self.scale[features], rounding_norm=self.rounding_norm[keep]
        )

    def with_outputs(self, outputs: list[int]) -> "Coordinates":
        """The coordinates of some of the targets, or of copies of them."""
        return replace(self, level=self.level[outputs])

    def to_user(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients ``(p, c)`` and intercepts ``(c,)`` in the units of the caller's columns."""
        p = len(self.shift)
        coef = Z[:p].double() / self.scale.unsqueeze(1)
        moved = (self.shift.unsqueeze(1) * coef).sum(dim=0)
        return coef, self.level + self.constant * Z[p:].double().sum(dim=0) - moved

    def from_user(self, coef: Tensor, intercept: Tensor) -> Tensor:
        """The inverse of `to_user`: coefficients ``(n, c)``."""
        scaled = torch.where(self.scale.isinf().unsqueeze(1), 0.0, coef * self.scale.unsqueeze(1))
        if not self.constant:
            return scaled
        moved = (intercept - self.level + (self.shift.unsqueeze(1) * coef).sum(dim=0)).unsqueeze(0)
        return torch.cat([scaled, moved / self.constant])
