"""What users demand of the coefficients besides the limit kappa, with features as numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Heredity = Literal["strong", "weak"]


@dataclass(frozen=True, eq=False)
class Constraints:
    """Demands on the features of a problem, which are numbered as the columns of its data.

    Parameters
    ----------
    include, exclude : tuple of int
        Features that are in every support, and features that are in none. With groups, those of whole groups.
    count_included : bool
        Whether kappa counts the features (or groups) that are included.
    lower, upper : array (p, 1) or (p, c), optional
        The least and the largest value of each coefficient in the units of the data. Zero is always between them.
    group : array (p,) of integers, optional
        The group of each feature, from 0 without gaps. The items that kappa counts are then whole groups. A feature
        without a group is a group of its own.
    counts_features : bool
        Whether kappa counts the features of the chosen groups, and not the groups.
    kind : array (p,) of integers, optional
        The kind of each feature, from 0 without gaps; -1 for none.
    at_most : array (kinds,) of integers, optional
        How many features of each kind a support may have.
    parents : tuple of (int, tuple of int)
        Features with their parents.
    heredity : {"strong", "weak"}
        Whether a feature needs all of its parents in the support, or one of them.
    """

    include: tuple[int, ...] = ()
    exclude: tuple[int, ...] = ()
    count_included: bool = False
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None
    group: np.ndarray | None = None
    counts_features: bool = False
    kind: np.ndarray | None = None
    at_most: np.ndarray | None = None
    parents: Sequence[tuple[int, tuple[int, ...]]] = field(default=())
    heredity: Heredity = "strong"

    @property
    def has_groups(self) -> bool:
        """Whether a group has several features."""
        return self.group is not None and len(np.unique(self.group)) < len(self.group)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is demanded."""
        arrays = self.lower, self.upper, self.group, self.kind
        return not (self.include or self.exclude or self.parents or any(array is not None for array in arrays))

    @property
    def signature(self) -> str:
        """The demands as a text that is the same for the same demands."""
        arrays = self.lower, self.upper, self.group, self.kind, self.at_most
        tables = [None if array is None else np.asarray(array).tolist() for array in arrays]
        others = self.include, self.exclude, self.count_included, self.counts_features
        return repr([*others, *tables, list(self.parents), self.heredity])


NO_CONSTRAINTS = Constraints()
