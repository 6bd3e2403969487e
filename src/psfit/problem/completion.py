"""Supports that grow by items with all that they need, or shrink by items with all that need them."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from psfit.problem.domain import Domain


def fill_in_turn(domain: "Domain", chosen: Tensor, keys: Tensor, room: int) -> Tensor:
    """A support ``chosen (size,)`` of a batch of one with further items, one after the other by falling `keys`.

    Each item comes with those that it needs, if they fit in the `room` of the limit, and may close its group. No item
    has a key of minus infinity.
    """
    limit = int(domain.weigh(chosen)) + room
    chosen = chosen.clone()
    lacking = [] if domain.heredity is None else domain.heredity.find_missing(chosen).nonzero().flatten().tolist()
    for item in lacking:
        trial = complete(domain, chosen, item, keys)
        if trial is not None and int(domain.weigh(trial)) <= limit:
            chosen = trial
    for item in keys.argsort(descending=True, stable=True).tolist():
        if keys[item] == -torch.inf or int(domain.weigh(chosen)) >= limit:
            break
        trial = None if bool(chosen[item]) else complete(domain, chosen, item, keys)
        if trial is not None and int(domain.weigh(trial)) <= limit:
            chosen = trial
    return chosen


def complete(domain: "Domain", chosen: Tensor, item: int, keys: Tensor) -> Tensor | None:
    """A support with one more item and the parents that it needs, of which those with large `keys` are preferred.

    None if no such support is allowed.
    """
    if bool(domain.outside[0, item]):
        return None
    trial, heredity = chosen.clone(), domain.heredity
    trial[item] = True
    if not bool(domain.obeys_groups(trial.unsqueeze(0))):
        return None
    parents = [] if heredity is None else heredity.parents_of(item)
    missing = [parent for parent in parents if not bool(trial[parent])]
    if heredity is None or not missing or (not heredity.strong and len(missing) < len(parents)):
        return trial
    if heredity.strong:
        for parent in missing:
            whole = complete(domain, trial, parent, keys)
            if whole is None:
                return None
            trial = whole
        return trial
    tries = (complete(domain, trial, one, keys) for one in sorted(missing, key=lambda one: -float(keys[one])))
    return next((whole for whole in tries if whole is not None), None)


def drop(domain: "Domain", chosen: Tensor, item: int) -> Tensor:
    """A support without an item, and without those that need it."""
    rest, heredity = chosen.clone(), domain.heredity
    rest[item] = False
    while heredity is not None and bool((lacking := heredity.find_missing(rest)).any()):
        rest = rest & ~lacking
    return rest
