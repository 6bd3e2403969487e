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
        item has a key of minus infinity.
        """
        used = self.weigh(chosen)
        limit = used + room
        lacking = [item for item in np.flatnonzero(chosen).tolist() if self.find_missing(chosen, item)]
        for item in [*lacking, *np.argsort(-keys, kind="stable").tolist()]:
            if not chosen[item] and (keys[item] == -np.inf or used >= limit):
                break
            known = chosen[item] and not self.find_missing(chosen, item)
            if known or (not chosen[item] and used + self.weights[item] > limit):
                continue
            trial = self.complete(chosen, item, keys)
            if trial is not None and self.weigh(trial) <= limit:
                chosen, used = trial, self.weigh(trial)
        return chosen


def fill_in_turn(domain: "Domain", chosen: Tensor, keys: Tensor, room: int) -> Tensor:
    """A support ``chosen (size,)`` of a batch of one with further items; see `Completion.fill`."""
    filled = domain.completion.fill(chosen.cpu().numpy(), keys.double().cpu().numpy(), room)
    return torch.from_numpy(filled.copy()).to(chosen.device)
