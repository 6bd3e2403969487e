"""What to solve: the loss, the limit on nonzeros, the ridge, and how coefficients are counted."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Literal

import torch
from torch import Tensor

from psfit.common.arguments import BOOLEAN, GAMMA, Rule, check, one_of
from psfit.losses import Loss

Sparsity = Literal["element", "feature"]
# To try so many supports is no more work than a search with its restarts, and leaves nothing to be missed.
FEW_SUPPORTS = 300

# What the settings of a problem may be; the limits depend on the data, and are checked with them.
RULES: dict[str, Rule] = {
    "gamma": GAMMA,
    "sparsity": one_of("element", "feature"),
    "fit_intercept": BOOLEAN,
    "standardize": BOOLEAN,
}


@dataclass(frozen=True)
class Layout:
    """How coefficients ``Z (p + free, c)`` are counted against kappa, as a table ``(problems, size)``.

    The last `free` rows (the intercept) are never counted. Columns of a scalar loss are independent problems, entries
    of a joint loss belong to one problem, and under feature sparsity the row norms are what is counted.
    """

    kind: Literal["columns", "entries", "rows"]
    features: int
    outputs: int
    free: int

    @property
    def problems(self) -> int:
        """Independent problems."""
        return self.outputs if self.kind == "columns" else 1

    @property
    def size(self) -> int:
        """Countable items of each problem."""
        return self.features * self.outputs if self.kind == "entries" else self.features

    def pack(self, Z: Tensor) -> Tensor:
        """The counted numbers of `Z`: signed coefficients, or norms of rows."""
        counted = Z[: self.features]
        if self.kind == "columns":
            return counted.T
        if self.kind == "entries":
            return counted.reshape(1, -1)
        return counted.norm(dim=1).unsqueeze(0)

    def replace(self, Z: Tensor, packed: Tensor) -> Tensor:
        """`Z` with its counted numbers replaced by `packed`; a row keeps its direction and takes the new norm."""
        counted, rest = Z[: self.features], Z[self.features :]
        if self.kind == "columns":
            counted = packed.T
        elif self.kind == "entries":
            counted = packed.reshape(self.features, self.outputs)
        else:
            norm = counted.norm(dim=1, keepdim=True)
            counted = counted * torch.where(norm > 0, packed.T / norm, 0.0)
        return torch.cat([counted, rest])

    def mask(self, chosen: Tensor) -> Tensor:
        """Which coefficients ``(p, c)`` may be nonzero when the items ``chosen (problems, size)`` are."""
        if self.kind == "columns":
            return chosen.T
        if self.kind == "entries":
            return chosen.reshape(self.features, self.outputs)
        return chosen.T.expand(self.features, self.outputs)

    def norms(self, X: Tensor) -> Tensor:
        """Euclidean norm of each problem's coefficients: ``(..., p + free, c) -> (..., problems)``."""
        if self.kind == "columns":
            return X.norm(dim=-2)
        return X.flatten(-2).norm(dim=-1, keepdim=True)

    def outputs_of(self, problem: int) -> list[int]:
        """The columns of coefficients that belong to a problem."""
        return [problem] if self.kind == "columns" else list(range(self.outputs))


def largest(packed: Tensor, kappa: Tensor) -> Tensor:
    """A mask of the kappa largest magnitudes in each row; ties go to the smaller index."""
    order = packed.abs().argsort(dim=1, descending=True, stable=True)
    chosen = torch.arange(packed.shape[1], device=packed.device) < kappa
    return torch.zeros_like(packed, dtype=torch.bool).scatter(1, order, chosen)


def are_few(size: int, kappa: int) -> bool:
    """Whether there are so few supports of `kappa` out of `size` items that all of them can be tried in a moment."""
    return comb(size, kappa) <= FEW_SUPPORTS


def all_supports(size: int, kappa: int, device: torch.device) -> Iterator[Tensor]:
    """All supports of `kappa` out of `size` items, as masks ``(size,)``."""
    for items in combinations(range(size), kappa):
        support = torch.zeros(size, dtype=torch.bool, device=device)
        support[list(items)] = True
        yield support


@dataclass(frozen=True)
class Problem:
    """Minimise ``sum_i loss(A_i x; b_i) + ||x||^2 / (2 gamma)`` subject to ``||x||_0 <= kappa``.

    Parameters
    ----------
    loss : Loss
        One of ``psfit.losses``, or one of your own.
    kappa : tuple of int
        The limit of each independent problem.
    gamma : float
        Inverse weight of the ridge.
    sparsity : {"element", "feature"}
        What kappa counts when there are several outputs: entries, or rows of the coefficients.
    fit_intercept : bool
        An intercept pays no ridge and does not count.
    standardize : bool
        The ridge sees coefficients of columns divided by their standard deviations (about zero without an intercept).
    """

    loss: Loss
    kappa: tuple[int, ...]
    gamma: float = 1.0
    sparsity: Sparsity = "element"
    fit_intercept: bool = True
    standardize: bool = False

    def __post_init__(self) -> None:
        for name, value in check(self, RULES).items():
            object.__setattr__(self, name, value)

    def layout(self, features: int, outputs: int) -> Layout:
        """How this problem counts the coefficients of `features` by `outputs`."""
        kind: Literal["columns", "entries", "rows"] = "entries" if self.loss.joint else "columns"
        if self.sparsity == "feature" and outputs > 1:
            kind = "rows"
        return Layout(kind, features, outputs, int(self.fit_intercept))
