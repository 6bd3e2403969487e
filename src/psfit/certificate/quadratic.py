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
    """A form in some items of a problem: `index` are their numbers, at most `kappa` of them may be nonzero."""

    form: QuadraticForm
    kappa: int
    index: Tensor

    @classmethod
    def of(cls, inst: Instance) -> "LimitedForm":
        """All features of an instance of one problem with the squared loss."""
        form = inst.proof_form
        return cls(form, inst.problem.kappa[0], torch.arange(form.size, device=form.G.device))

    @property
    def size(self) -> int:
        """The number of items."""
        return self.form.size

    @property
    def domain(self) -> Domain:
        """The supports of these items within the limit."""
        return Domain.of(RowItems(self.size, self.form.Q.shape[1], 0), self.kappa, self.index.device)

    def with_ridge(self, ridge: Tensor) -> "LimitedForm":
        """The same with another ridge ``(n,)``."""
        return replace(self, form=self.form.with_ridge(ridge))

    def reduce(self, inside: Tensor, outside: Tensor) -> "LimitedForm":
        """The problem in the items that are in neither of the masks ``(n,)``."""
        form = eliminate(self.form, inside, outside)
        return LimitedForm(form, self.kappa - int(inside.sum()), self.index[~(inside | outside)])
