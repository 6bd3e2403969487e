"""What to solve: the loss, the limit on nonzeros, the ridge."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from psfit.common.arguments import BOOLEAN, GAMMA, Rule, check, one_of
from psfit.losses import Loss
from psfit.problem.constraints import NO_CONSTRAINTS, Constraints
from psfit.problem.demands import restrict_supports
from psfit.problem.domain import Domain
from psfit.problem.items import EntryItems, Items, OutputItems, RowItems

Sparsity = Literal["element", "feature"]

# The values that the settings of a problem may have. The limits depend on the data and are checked with them.
RULES: dict[str, Rule] = {
    "gamma": GAMMA,
    "sparsity": one_of("element", "feature"),
    "fit_intercept": BOOLEAN,
    "standardize": BOOLEAN,
}


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
        Whether to fit an intercept. It has no ridge and is not counted.
    standardize : bool
        Whether the ridge applies to columns divided by their standard deviations (about zero without an intercept).
    constraints : Constraints
        Further demands on the coefficients.
    """

    loss: Loss
    kappa: tuple[int, ...]
    gamma: float = 1.0
    sparsity: Sparsity = "element"
    fit_intercept: bool = True
    standardize: bool = False
    constraints: Constraints = NO_CONSTRAINTS

    def __post_init__(self) -> None:
        for name, value in check(self, RULES).items():
            object.__setattr__(self, name, value)

    def items(self, features: int, outputs: int) -> Items:
        """What kappa counts among the coefficients of `features` by `outputs`."""
        kind: type[Items] = EntryItems if self.loss.joint else OutputItems
        if self.sparsity == "feature" and outputs > 1:
            kind = RowItems
        return kind(features, outputs, int(self.fit_intercept))

    def domain(self, items: Items, limit: Tensor | int, device: torch.device) -> Domain:
        """Which supports of these items are allowed within a limit; see `Domain.of`. Subclasses may allow fewer.

        The limit counts the items that are included, too.
        """
        return restrict_supports(Domain.of(items, limit, device), self.constraints)
