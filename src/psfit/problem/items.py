"""Items: what the limit kappa counts among the coefficients, and which coefficients belong to each item.

Coefficients are ``Z (p + free, c)``; the last `free` rows (the intercept) are never counted. A table
``(problems, size)`` holds one number for each item. Single items are the coefficients of each output, where every
output is a problem of its own; the entries of all outputs together; or whole rows. See `groups` for those of features.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Items(ABC):
    """The items of `features` by `outputs` coefficients, and `free` rows that are not counted."""

    features: int
    outputs: int
    free: int

    # Whether every output is a problem of its own. Copies of such a problem can be further outputs.
    separate: ClassVar[bool] = False

    @property
    def problems(self) -> int:
        """Independent problems."""
        return 1

    @property
    def size(self) -> int:
        """Items of each problem."""
        return self.features

    @property
    def width(self) -> int:
        """Coefficients of one item; if items differ, the mean, rounded up."""
        return 1

    @property
    def in_blocks(self) -> bool:
        """Whether items may have several coefficients."""
        return self.width > 1

    @property
    def in_groups(self) -> bool:
        """Whether items are groups of features."""
        return False

    @property
    def weights(self) -> Tensor | None:
        """What each item takes of the limit ``(size,)``; None where items are counted."""
        return None

    @property
    def capacity(self) -> int:
        """What all items together take of the limit."""
        return self.size

    def count_within(self, limit: int) -> int:
        """About how many items a limit allows."""
        return limit

    @property
    def per_feature(self) -> float:
        """Items for each feature, on average."""
        return self.size / self.features

    def restrict(self, features: Tensor) -> "Items":
        """The items of some of the features, by sorted indices."""
        return replace(self, features=len(features))

    def select(self, index: Tensor) -> "Items":
        """Some of the items of one problem, by sorted indices."""
        return replace(self, features=len(index))

    @abstractmethod
    def pack(self, Z: Tensor) -> Tensor:
        """The counted numbers of `Z`, ``(problems, size)``: signed coefficients, or norms of rows."""

    @abstractmethod
    def replace(self, Z: Tensor, packed: Tensor, before: Tensor | None = None) -> Tensor:
        """`Z` with its counted numbers replaced by `packed`; they were those `before`, if that is known."""

    def scale(self, Z: Tensor, factors: Tensor) -> Tensor:
        """`Z` with its counted numbers multiplied by ``factors (problems, size)``, which are not negative."""
        return torch.cat([Z[: self.features] * self.mask(factors), Z[self.features :]])

    @abstractmethod
    def mask(self, chosen: Tensor) -> Tensor:
        """Which coefficients ``(p, c)`` may be nonzero when the items ``chosen (problems, size)`` are."""

    def mask_one(self, chosen: Tensor) -> Tensor:
        """Which coefficients ``(p, c')`` of a single problem its items ``chosen (size,)`` allow."""
        return self.mask(chosen.unsqueeze(0))

    def rows_of(self, chosen: Tensor) -> Tensor:
        """The rows of `Z` that may be nonzero in all outputs of a single problem with the items ``chosen (size,)``."""
        free = torch.ones(self.free, dtype=torch.bool, device=chosen.device)
        return torch.cat([chosen, free]).nonzero().flatten()

    def pack_scores(self, scores: Tensor) -> Tensor:
        """Scores of items ``(problems, size)`` from those of single coefficients ``(p, c)``."""
        return self.pack(scores)

    def pack_ridge(self, ridge: Tensor) -> Tensor:
        """The ridge of each item of a problem ``(size,)`` from that of each feature ``(p,)``."""
        return ridge

    def sum_outputs(self, by_output: Tensor) -> Tensor:
        """Sums over the outputs of each problem: ``(c,) -> (problems,)``."""
        return by_output.sum().unsqueeze(0)

    def norms(self, X: Tensor) -> Tensor:
        """Euclidean norm of each problem's coefficients: ``(..., p + free, c) -> (..., problems)``."""
        return X.flatten(-2).norm(dim=-1, keepdim=True)

    def outputs_of(self, problem: int) -> list[int]:
        """The columns of coefficients that belong to a problem."""
        return list(range(self.outputs))

    def item_of(self, row: Tensor, output: int) -> Tensor:
        """The item of each coefficient, by its feature `row` and its place among the outputs of a problem."""
        return row

    def items_of(self, features: Tensor) -> Tensor:
        """The items of one problem that belong to some features."""
        return features

    def features_of(self, index: Tensor) -> Tensor:
        """The features, sorted, of some items of one problem by sorted indices."""
        return index

    def take_first(self, order: Tensor, count: int, least: int) -> Tensor:
        """The features, sorted, of the first items in an `order` of features: at most `count` of them.

        There may be more if these are fewer than `least` items.
        """
        return order[:count].sort().values

    def sum_rows(self, values: Tensor) -> Tensor:
        """Sums over the features of each item: ``(..., p) -> (..., size)``, where items are whole rows."""
        return values

    def spread_rows(self, values: Tensor) -> Tensor:
        """Numbers of items for each of their features: ``(..., size) -> (..., p)``, where items are whole rows."""
        return values

    def least_rows(self, values: Tensor) -> Tensor:
        """The least number of the features of each item: ``(p,) -> (size,)``, where items are whole rows."""
        return values

    def mean_rows(self, values: Tensor) -> Tensor:
        """Means over the features of the same item: ``(..., p) -> (..., p)``, where items are whole rows."""
        return values

    def by_feature(self, values: Tensor) -> Tensor:
        """Numbers of one problem's items ``(size,)`` as a table with a row for each feature."""
        return values.view(self.features, -1)


class SeparateItems(Items):
    """Items of each output; every output is a problem of its own."""

    separate: ClassVar[bool] = True

    @property
    def problems(self) -> int:
        return self.outputs

    def sum_outputs(self, by_output: Tensor) -> Tensor:
        return by_output

    def norms(self, X: Tensor) -> Tensor:
        return X.norm(dim=-2)

    def outputs_of(self, problem: int) -> list[int]:
        return [problem]


class OutputItems(SeparateItems):
    """The coefficients of each output."""

    def pack(self, Z: Tensor) -> Tensor:
        return Z[: self.features].T

    def replace(self, Z: Tensor, packed: Tensor, before: Tensor | None = None) -> Tensor:
        return torch.cat([packed.T, Z[self.features :]])

    def mask(self, chosen: Tensor) -> Tensor:
        return chosen.T


class EntryItems(Items):
    """The entries of all outputs, in one problem."""

    @property
    def size(self) -> int:
        return self.features * self.outputs

    def pack(self, Z: Tensor) -> Tensor:
        return Z[: self.features].reshape(1, -1)

    def replace(self, Z: Tensor, packed: Tensor, before: Tensor | None = None) -> Tensor:
        return torch.cat([packed.reshape(self.features, self.outputs), Z[self.features :]])

    def mask(self, chosen: Tensor) -> Tensor:
        return chosen.reshape(self.features, self.outputs)

    def rows_of(self, chosen: Tensor) -> Tensor:
        raise TypeError("entries of several outputs have no rows in common: each output has a support of its own")

    def pack_ridge(self, ridge: Tensor) -> Tensor:
        return ridge.repeat_interleave(self.outputs)

    def select(self, index: Tensor) -> Items:
        """Some entries of several outputs are no table any more, only a list."""
        return OutputItems(len(index), 1, self.free)

    def features_of(self, index: Tensor) -> Tensor:
        return torch.unique(index // self.outputs)

    def item_of(self, row: Tensor, output: int) -> Tensor:
        return row * self.outputs + output

    def items_of(self, features: Tensor) -> Tensor:
        return (features.unsqueeze(1) * self.outputs + torch.arange(self.outputs, device=features.device)).flatten()


class RowItems(Items):
    """Whole rows, counted by their norms, in one problem."""

    @property
    def width(self) -> int:
        return self.outputs

    def pack(self, Z: Tensor) -> Tensor:
        return Z[: self.features].norm(dim=1).unsqueeze(0)

    def replace(self, Z: Tensor, packed: Tensor, before: Tensor | None = None) -> Tensor:
        """A row keeps its direction and takes the new norm."""
        counted = Z[: self.features]
        norm = counted.norm(dim=1, keepdim=True) if before is None else before.T
        return torch.cat([counted * torch.where(norm > 0, packed.T / norm, 0.0), Z[self.features :]])

    def mask(self, chosen: Tensor) -> Tensor:
        return chosen.T.expand(self.features, self.outputs)

    def pack_scores(self, scores: Tensor) -> Tensor:
        return scores.sum(dim=1).unsqueeze(0)


def largest(packed: Tensor, limit: Tensor) -> Tensor:
    """A mask of the largest magnitudes in each row, as many as its limit allows; ties go to the smaller index."""
    order = packed.abs().argsort(dim=1, descending=True, stable=True)
    chosen = torch.arange(packed.shape[1], device=packed.device) < limit
    return torch.zeros_like(packed, dtype=torch.bool).scatter(1, order, chosen)
