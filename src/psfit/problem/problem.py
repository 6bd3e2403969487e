"""What to solve: the loss, the limit on nonzeros, the ridge."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from psfit.common.arguments import BOOLEAN, GAMMA, Rule, check, one_of
from psfit.losses import Loss
from psfit.problem.constrained_domain import restrict_supports
from psfit.problem.constraints import NO_CONSTRAINTS, Constraints
from psfit.problem.domain import Domain
from psfit.problem.groups import GroupItems, OutputGroupItems
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
        """What kappa counts among the coefficients of `features` by `outputs`.

        A group of features is an item in each output if these are problems of their own, else in all outputs together.
        """
        rows = outputs > 1 and (self.sparsity == "feature" or (self.loss.joint and self.constraints.group is not None))
        if self.constraints.has_groups:
            group = torch.as_tensor(self.constraints.group, dtype=torch.int64)
            if len(group) != features:
                raise ValueError(f"groups= has the groups of {len(group)} features, but there are {features}")
            together = GroupItems if rows else OutputGroupItems
            return together(features, outputs, int(self.fit_intercept), group, self.constraints.counts_features)
        kind: type[Items] = EntryItems if self.loss.joint else OutputItems
        return (RowItems if rows else kind)(features, outputs, int(self.fit_intercept))

    def domain(self, items: Items, limit: Tensor | int, device: torch.device) -> Domain:
        """Which supports of these items are allowed within a limit; see `Domain.of`. Subclasses may allow fewer.

        The limit counts the items that are included, too.
        """
        return restrict_supports(Domain.of(items, limit, device), self.constraints)
