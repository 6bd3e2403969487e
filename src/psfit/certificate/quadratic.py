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
    """A form in some items of a problem: `index` are their numbers, at most `kappa` of them may be nonzero.

    The `items` are whole rows of the form, or groups of them. `rows` are the numbers of the rows among all features.
    """

    form: QuadraticForm
    kappa: int
    index: Tensor
    rows: Tensor
    items: Items

    @classmethod
    def of(cls, inst: Instance) -> "LimitedForm":
        """All features of an instance of one problem with the squared loss."""
        form, items, device = inst.proof_form, inst.items, inst.ridge.device
        whole: Items = RowItems(form.size, form.Q.shape[1], 0)
        if isinstance(items, GroupItems):
            whole = GroupItems(form.size, form.Q.shape[1], 0, items.group, items.counts_features)
        numbers = torch.arange(form.size, device=device)
        return cls(form, inst.problem.kappa[0], torch.arange(whole.size, device=device), numbers, whole)

    @property
    def size(self) -> int:
        """The number of items."""
        return self.items.size

    @property
    def domain(self) -> Domain:
        """The supports of these items within the limit."""
        return Domain.of(self.items, self.kappa, self.index.device)

    @property
    def has_choice(self) -> bool:
        """Whether several supports are as large as possible."""
        return 0 < self.kappa < self.items.capacity

    def with_ridge(self, ridge: Tensor) -> "LimitedForm":
        """The same with another ridge ``(n,)``."""
        return replace(self, form=self.form.with_ridge(ridge))

    def reduce(self, inside: Tensor, outside: Tensor) -> "LimitedForm":
        """The problem in the items that are in neither of the masks ``(size,)``."""
        form = eliminate(self.form, self.items.spread_rows(inside), self.items.spread_rows(outside))
        kept = ~(inside | outside)
        index, rows = kept.nonzero().flatten(), self.items.spread_rows(kept)
        return LimitedForm(
            form,
            self.kappa - int(self.domain.weigh(inside)),
            self.index[index],
            self.rows[rows],
            self.items.select(index),
        )

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
