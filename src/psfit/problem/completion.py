"""Supports that grow by items with all that they need, or shrink by items with all that need them.

One item is looked at after the other, so this works on plain arrays on the host.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from psfit.problem.domain import Domain

# So many supports are tried where items that are in lack one of several parents.
MOST_TRIES = 10_000


@dataclass(frozen=True, eq=False)
class Completion:
    """What a domain of one problem says about its items.

    Parameters
    ----------
    outside : array (size,) of bool
    weights : array (size,)
        What each item takes of the limit.
    group, most : array (size,), array (groups,)
        The group of each item, or -1; how many items of each group are allowed.
    parents, children : lists of lists
        Of each item.
    strong : bool
        Whether an item needs all of its parents, or one.
    """

    outside: np.ndarray
    weights: np.ndarray
    group: np.ndarray
    most: np.ndarray
    parents: list[list[int]]
    children: list[list[int]]
    strong: bool

    @classmethod
    def of(cls, domain: "Domain") -> "Completion":
        """The rules of a batch of one."""
        size, heredity = domain.items.size, domain.heredity
        parents: list[list[int]] = [[] for _ in range(size)]
        children: list[list[int]] = [[] for _ in range(size)]
        if heredity is not None:
            for child, parent in zip(heredity.child.tolist(), heredity.parent.tolist(), strict=True):
                parents[child].append(parent)
                children[parent].append(child)
        grouped = domain.group is not None and domain.most is not None
        return cls(
            domain.outside[0].cpu().numpy(),
            np.ones(size, np.int64) if domain.weights is None else domain.weights.cpu().numpy(),
            domain.group.cpu().numpy() if grouped else np.full(size, -1),  # type: ignore[union-attr]
            domain.most.cpu().numpy() if grouped else np.zeros(0, np.int64),  # type: ignore[union-attr]
            parents,
            children,
            heredity is None or heredity.strong,
        )

    def weigh(self, chosen: np.ndarray) -> int:
        """What the items ``chosen (size,)`` take of the limit."""
        return int(self.weights[chosen].sum())

    def find_missing(self, chosen: np.ndarray, item: int) -> list[int]:
        """The parents that an item lacks: all that are not chosen, unless one of them is enough and there."""
        missing = [parent for parent in self.parents[item] if not chosen[parent]]
        return missing if self.strong or len(missing) == len(self.parents[item]) else []

    def complete(self, chosen: np.ndarray, item: int, keys: np.ndarray) -> np.ndarray | None:
        """A support with one more item and the parents that it needs, of which those with large `keys` are preferred.

        None if no such support is allowed.
        """
        group = self.group[item]
        if self.outside[item]:
            return None
        trial = chosen.copy()
        trial[item] = True
        if group >= 0 and (trial & (self.group == group)).sum() > self.most[group]:
            return None
        missing = self.find_missing(trial, item)
        if self.strong:
            for parent in missing:
                whole = trial if trial[parent] else self.complete(trial, parent, keys)
                if whole is None:
                    return None
                trial = whole
            return trial
        tries = (self.complete(trial, one, keys) for one in sorted(missing, key=lambda one: -keys[one]))
        return next((whole for whole in tries if whole is not None), None) if missing else trial

    def mend(self, chosen: np.ndarray, keys: np.ndarray, limit: int) -> np.ndarray | None:
        """An allowed support of at most this `limit` with the items of ``chosen (size,)`` and the parents they lack.

        Parents with large `keys` are tried first, others where these lead to nothing. None if no support is found.
        """
        branches = [(chosen, self.outside)]
        for _ in range(MOST_TRIES):
            if not branches:
                break
            trial, closed = branches.pop()
            lacks = [missing for item in np.flatnonzero(trial).tolist() if (missing := self.find_missing(trial, item))]
            if (trial & closed).any() or not self._obeys_kinds(trial):
                continue
            if self.weigh(trial) + count_apart(lacks) > limit:
                continue
            if not lacks:
                return trial
            # All parents together; or each of those that one item may have, where the ones before it are not in.
            every = [one for missing in lacks for one in missing]
            options = [every] if self.strong else [[one] for one in self._rank(lacks, closed, keys)]
            more = []
            for items in options:
                more.append((set_items(trial, items), closed))
                closed = set_items(closed, items)
            branches += reversed(more)
        return None

    def _rank(self, lacks: list[list[int]], closed: np.ndarray, keys: np.ndarray) -> list[int]:
        """The parents of the item with the fewest that are possible, by falling `keys`."""
        possible = [[one for one in missing if not closed[one]] for missing in lacks]
        fewest = min(possible, key=len)
        return sorted(fewest, key=lambda one: -keys[one])

    def _obeys_kinds(self, chosen: np.ndarray) -> bool:
        taken = np.bincount(self.group[chosen & (self.group >= 0)], minlength=len(self.most))
        return bool((taken <= self.most).all())

    def drop(self, chosen: np.ndarray, item: int) -> np.ndarray:
        """A support without an item, and without those that need it."""
        rest, open_items = chosen.copy(), [item]
        rest[item] = False
        while open_items:
            for child in self.children[open_items.pop()]:
                if rest[child] and self.find_missing(rest, child):
                    rest[child] = False
                    open_items.append(child)
        return rest

    def fill(self, chosen: np.ndarray, keys: np.ndarray, room: int) -> np.ndarray:
        """A support ``chosen (size,)`` with further items, one after the other by falling `keys`.

        Each item comes with those that it needs, if they fit in the `room` of the limit, and may close its group. No
        item has a key of minus infinity. If items lack parents that do not fit, nothing joins.
        """
        limit = self.weigh(chosen) + room
        whole = self.mend(chosen, keys, limit)
        if whole is None:
            return chosen
        chosen, used = whole, self.weigh(whole)
        for item in np.argsort(-keys, kind="stable").tolist():
            if not chosen[item] and (keys[item] == -np.inf or used >= limit):
                break
            if chosen[item] or used + self.weights[item] > limit:
                continue
            trial = self.complete(chosen, item, keys)
            if trial is not None and self.weigh(trial) <= limit:
                chosen, used = trial, self.weigh(trial)
        return chosen


def set_items(mask: np.ndarray, items: list[int]) -> np.ndarray:
    """A mask ``(size,)`` that is true for some more items."""
    more = mask.copy()
    more[items] = True
    return more


def count_apart(sets: list[list[int]]) -> int:
    """How many of the sets, one after the other, have no element in common with those before."""
    seen: set[int] = set()
    count = 0
    for one in sets:
        if seen.isdisjoint(one):
            seen.update(one)
            count += 1
    return count


def fill_in_turn(domain: "Domain", chosen: Tensor, keys: Tensor, room: int) -> Tensor:
    """A support ``chosen (size,)`` of a batch of one with further items; see `Completion.fill`."""
    filled = domain.completion.fill(chosen.cpu().numpy(), keys.double().cpu().numpy(), room)
    return torch.from_numpy(filled.copy()).to(chosen.device)


def add_needed(domain: "Domain", chosen: Tensor) -> Tensor:
    """A support ``chosen (size,)`` of a batch of one with the items that those in it need, if these fit in."""
    if domain.heredity is None:
        return chosen
    nothing = torch.full_like(chosen, -torch.inf, dtype=torch.float64)
    return fill_in_turn(domain, chosen, nothing, int(domain.limit - domain.weigh(chosen)))
