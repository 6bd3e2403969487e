"""Items that are groups of features: a support has all features of its groups."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from psfit.problem.items import Items, SeparateItems


@dataclass(frozen=True)
class GroupItems(Items):
    """Whole groups of rows, counted by their norms, in one problem.

    Parameters
    ----------
    group : Tensor (features,) of integers
        The group of each feature, from 0 without gaps.
    counts_features : bool
        Whether a group takes as much of the limit as it has features.
    """

    group: Tensor = field(compare=False)
    counts_features: bool = False

    @cached_property
    def lengths(self) -> Tensor:
        """The number of features of each group."""
        return self.group.bincount()

    @property
    def size(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        return len(self.lengths)

    @property
    def width(self) -> int:
        return -(-self.features * len(self.outputs_of(0)) // self.size)

    @property
    def weights(self) -> Tensor | None:
        return self.lengths if self.counts_features else None

    @property
    def capacity(self) -> int:
        return self.features if self.counts_features else self.size

    def count_within(self, limit: int) -> int:
        return max(1, limit * self.size // self.features) if self.counts_features else limit

    @property
    def in_blocks(self) -> bool:
        return True

    @property
    def in_groups(self) -> bool:
        return True

    def restrict(self, features: Tensor) -> "GroupItems":
        labels, group = self.group[features.cpu()].unique(return_inverse=True)
        if not torch.equal(group.bincount(), self.lengths[labels]):
            raise ValueError("a part of a group is no item: restrict a problem to the features of whole groups")
        return self._with_groups(group)

    def select(self, index: Tensor) -> "GroupItems":
        labels = index.cpu()
        return self._with_groups(torch.searchsorted(labels, self.group[torch.isin(self.group, labels)]))

    def _with_groups(self, group: Tensor) -> "GroupItems":
        return type(self)(len(group), self.outputs, self.free, group, self.counts_features)

    def pack(self, Z: Tensor) -> Tensor:
        return self.pack_scores(Z[: self.features].square()).sqrt()

    def replace(self, Z: Tensor, packed: Tensor, before: Tensor | None = None) -> Tensor:
        """The coefficients of a group keep their direction and take the new norm."""
        norm = self.pack(Z) if before is None else before
        return self.scale(Z, torch.where(norm > 0, packed / norm, 0.0))

    def mask(self, chosen: Tensor) -> Tensor:
        return self.spread_rows(chosen).T.expand(self.features, self.outputs)

    def rows_of(self, chosen: Tensor) -> Tensor:
        return super().rows_of(self.spread_rows(chosen))

    def pack_scores(self, scores: Tensor) -> Tensor:
        return self.sum_rows(scores.sum(dim=1).unsqueeze(0))

    def pack_ridge(self, ridge: Tensor) -> Tensor:
        """All features of a group have the same ridge."""
        first = torch.empty(self.size, dtype=torch.int64)
        first[self.group.flip(0)] = torch.arange(self.features - 1, -1, -1)
        return ridge[first.to(ridge.device)]

    def item_of(self, row: Tensor, output: int) -> Tensor:
        # An intercept's row has no group; the caller leaves it out.
        return self._group_on(row.device)[row.clamp(max=self.features - 1)]

    def items_of(self, features: Tensor) -> Tensor:
        return self._group_on(features.device)[features].unique()

    def features_of(self, index: Tensor) -> Tensor:
        return torch.isin(self._group_on(index.device), index).nonzero().flatten()

    def take_first(self, order: Tensor, count: int, least: int) -> Tensor:
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device=order.device)
        ranked = self.least_rows(rank.double()).argsort()
        lengths = self.lengths.to(order.device)[ranked].cumsum(0)
        number = max(int((lengths <= count).sum()), min(least, self.size))
        return self.features_of(ranked[:number])

    def by_feature(self, values: Tensor) -> Tensor:
        return self.spread_rows(values.flatten()).unsqueeze(1)

    @cached_property
    def _common_length(self) -> int:
        """The length of all groups, if they have the same and their features follow each other; else 0."""
        length = self.features // max(self._count, 1)
        follows = length * self._count == self.features
        return length if follows and torch.equal(self.group, torch.arange(self.features) // max(length, 1)) else 0

    def sum_rows(self, values: Tensor) -> Tensor:
        if self._common_length:
            return values.unflatten(-1, (-1, self._common_length)).sum(dim=-1)
        return values.new_zeros(*values.shape[:-1], self.size).index_add_(-1, self._group_on(values.device), values)

    def least_rows(self, values: Tensor) -> Tensor:
        most = values.new_full((self.size,), torch.inf)
        return most.scatter_reduce_(0, self._group_on(values.device), values, "amin")

    def mean_rows(self, values: Tensor) -> Tensor:
        return self.spread_rows(self.sum_rows(values) / self.lengths.to(values))

    def spread_rows(self, values: Tensor) -> Tensor:
        return values.index_select(-1, self._group_on(values.device))

    def _group_on(self, device: torch.device) -> Tensor:
        """The groups on a device; a copy is made once."""
        if device not in self._copies:
            self._copies[device] = self.group.to(device)
        return self._copies[device]

    @cached_property
    def _copies(self) -> dict[torch.device, Tensor]:
        return {}


class OutputGroupItems(SeparateItems, GroupItems):
    """The groups of features in each output."""

    def mask(self, chosen: Tensor) -> Tensor:
        return self.spread_rows(chosen).T

    def pack_scores(self, scores: Tensor) -> Tensor:
        return self.sum_rows(scores.T)
