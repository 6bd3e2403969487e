"""A quadratic form with a limit: at most kappa of its items may be nonzero. Decided items can be taken out of it."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.data.form_elimination import eliminate, rounding_of, single_optima
from psfit.data.quadratic_form import QuadraticForm
from psfit.problem import Domain, GroupItems, Items, RowItems
from psfit.problem.instance import Instance


@dataclass(frozen=True)
class LimitedForm:
    """A form in some items of a problem: `index` are their numbers, and the domain says which may be nonzero.

    The items of the domain are whole rows of the form, or groups of them. `rows` are the numbers of the rows among all
    features.
    """

    form: QuadraticForm
    domain: Domain
    index: Tensor
    rows: Tensor

    @classmethod
    def of(cls, inst: Instance) -> "LimitedForm":
        """All features of an instance of one problem with the squared loss."""
        form, items, device = inst.proof_form, inst.items, inst.ridge.device
        whole: Items = RowItems(form.size, form.Q.shape[1], 0)
        if isinstance(items, GroupItems):
            whole = GroupItems(form.size, form.Q.shape[1], 0, items.group, items.counts_features)
        numbers = torch.arange(form.size, device=device)
        return cls(form, replace(inst.domain, items=whole), torch.arange(whole.size, device=device), numbers)

    @property
    def kappa(self) -> int:
        """What the items together may take of the limit."""
        return int(self.domain.limit)

    @property
    def items(self) -> Items:
        """What is counted."""
        return self.domain.items

    @property
    def size(self) -> int:
        """The number of items."""
        return self.items.size

    @property
    def is_restricted(self) -> bool:
        """Whether items inside cannot be taken out: there are bounds on coefficients, or other rules for supports."""
        return not self.domain.counts_only or self.domain.box is not None

    @property
    def has_choice(self) -> bool:
        """Whether several supports are as large as possible."""
        if not self.is_restricted:
            return 0 < self.kappa < self.items.capacity
        every = torch.ones(self.size, dtype=torch.bool, device=self.index.device)
        return self.items.capacity > self.kappa or not self.domain.allows(every)

    def with_ridge(self, ridge: Tensor) -> "LimitedForm":
        """The same with another ridge ``(n,)``."""
        return replace(self, form=self.form.with_ridge(ridge))

    def reduce(self, inside: Tensor, outside: Tensor) -> "LimitedForm":
        """The problem in the items that are in neither of the masks ``(size,)``.

        With bounds on coefficients, or other rules for supports, the items inside stay, and are decided.
        """
        domain = self.domain.decide(inside.unsqueeze(0), outside.unsqueeze(0))
        gone = outside if self.is_restricted else inside | outside
        taken_out = torch.zeros_like(inside) if self.is_restricted else inside
        form = eliminate(self.form, self.items.spread_rows(taken_out), self.items.spread_rows(outside))
        index, rows = (~gone).nonzero().flatten(), self.items.spread_rows(~gone)
        return LimitedForm(form, domain.restrict(index), self.index[index], self.rows[rows])

    def minimise(self, chosen: Tensor) -> tuple[float, float]:
        """The least value over the items ``chosen (size,)``, and by how much rounding may have raised it."""
        minimum = self.form.minimise(self.items.rows_of(chosen))
        return minimum.value, rounding_of(self.form, minimum)

    def single_optima(self) -> Tensor:
        """Lower bounds ``(size,)`` of the objective with each item as the only nonzero one, less all roundings."""
        if not self.items.in_groups:
            return single_optima(self.form)
        found = [self.minimise(self.index == number) for number in self.index]
        values = torch.tensor([value - error for value, error in found], dtype=torch.float64, device=self.index.device)
        return values.nan_to_num(nan=-torch.inf)
