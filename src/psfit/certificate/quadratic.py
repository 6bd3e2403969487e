"""A quadratic form with a limit: at most kappa of its rows may be nonzero. Decided items can be taken out of it."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.data.form_elimination import eliminate
from psfit.data.quadratic_form import QuadraticForm
from psfit.problem import Domain, RowItems
from psfit.problem.instance import Instance


@dataclass(frozen=True)
class LimitedForm:
    """A form in some items of a problem: `index` are their numbers, and the domain says which may be nonzero."""

    form: QuadraticForm
    domain: Domain
    index: Tensor

    @classmethod
    def of(cls, inst: Instance) -> "LimitedForm":
        """All features of an instance of one problem with the squared loss."""
        form = inst.proof_form
        domain = replace(inst.domain, items=RowItems(form.size, form.Q.shape[1], 0))
        return cls(form, domain, torch.arange(form.size, device=form.G.device))

    @property
    def kappa(self) -> int:
        """How many of the items may be nonzero."""
        return int(self.domain.limit)

    @property
    def size(self) -> int:
        """The number of items."""
        return self.form.size

    @property
    def is_restricted(self) -> bool:
        """Whether items inside cannot be taken out: there are bounds on coefficients, or other rules for supports."""
        return not self.domain.counts_only or self.domain.box is not None

    @property
    def has_one_support(self) -> bool:
        """Whether nothing is left to choose: no place, or a place for every item."""
        if not self.is_restricted:
            return self.kappa <= 0 or self.size <= self.kappa
        every = torch.ones(self.size, dtype=torch.bool, device=self.index.device)
        return self.size <= self.kappa and self.domain.allows(every)

    def with_ridge(self, ridge: Tensor) -> "LimitedForm":
        """The same with another ridge ``(n,)``."""
        return replace(self, form=self.form.with_ridge(ridge))

    def reduce(self, inside: Tensor, outside: Tensor) -> "LimitedForm":
        """The problem in the items that are in neither of the masks ``(n,)``.

        With bounds on coefficients, or other rules for supports, the items inside stay, and are decided.
        """
        domain = self.domain.decide(inside.unsqueeze(0), outside.unsqueeze(0))
        plain = not self.is_restricted
        gone = inside | outside if plain else outside
        keep = (~gone).nonzero().flatten()
        rest = domain.restrict(keep)
        if plain:
            rest = replace(rest, left=domain.left)
        form = eliminate(self.form, inside if plain else torch.zeros_like(inside), outside)
        return LimitedForm(form, rest, self.index[keep])
