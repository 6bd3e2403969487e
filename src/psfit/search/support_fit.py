"""A support and its fit: what searches pass to each other."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from torch import Tensor

from psfit.search.refit import Fit

T = TypeVar("T")


@dataclass(frozen=True)
class SupportFit:
    """A support ``chosen (size,)`` of one problem, and the fit on it."""

    chosen: Tensor
    fit: Fit

    @property
    def value(self) -> float:
        """The objective."""
        return self.fit.value


def drop_repeats(found: Iterable[T], support_of: Callable[[T], np.ndarray]) -> list[T]:
    """Those with different supports, which are masks on the host; of equal ones the first."""
    different: dict[bytes, T] = {}
    for one in found:
        different.setdefault(support_of(one).tobytes(), one)
    return list(different.values())
