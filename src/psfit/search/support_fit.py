"""A support and its fit: what searches pass to each other."""

from dataclasses import dataclass

from torch import Tensor

from psfit.search.refit import Fit


@dataclass(frozen=True)
class SupportFit:
    """A support ``chosen (size,)`` of one problem, and the fit on it."""

    chosen: Tensor
    fit: Fit

    @property
    def value(self) -> float:
        """The objective."""
        return self.fit.value
