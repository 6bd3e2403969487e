"""Swap search: exchange chosen items for items outside as long as the objective falls.

The domain scores all exchanges on the model around the support, exactly for the squared loss and to second order for
the others. A swap is made only if the refitted objective really falls.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.problem import Domain, LocalModel
from psfit.search.objective import Objective
from psfit.search.refit import Fit

MAX_ROUNDS = 100
# For every chosen item this many of its best newcomers are considered.
PARTNERS = 4
# The least number of single swaps to try, and the most. More than the least are tried only while all of them together
# cost less than the model that proposed them.
SINGLE_TRIES = 8
MOST_TRIES = 100


@dataclass(frozen=True)
class Swap:
    """Take item `out` off the support, put item `into` on it."""

    gain: float
    out: int
    into: int


def swap_search(objective: Objective, chosen: Tensor, Z: Tensor, rel_tol: float) -> tuple[Tensor, Fit, int]:
    """From the items ``chosen (size,)`` to a support that no single swap improves by more than `rel_tol`.

    Returns the support, its fit and the number of rounds. Several swaps without common items are tried at once,
    best first, then fewer of them until the objective falls. The search also ends when the fit must stop.
    """
    fit = objective.fit(chosen, Z)
    if bool(chosen.all()) or not bool(chosen.any()):
        return chosen, fit, 0
    for rounds in range(MAX_ROUNDS):
        threshold, before = rel_tol * abs(fit.value), objective.work
        swaps = [s for s in propose(objective.domain, objective.model(fit, chosen), chosen) if s.gain > threshold]
        better = _improve(objective, chosen, fit, swaps, threshold, 2 * objective.work - before)
        if better is None:
            return chosen, fit, rounds
        chosen, fit = better
        if objective.inst.watch.must_stop():
            return chosen, fit, rounds + 1
    return chosen, fit, MAX_ROUNDS


def _improve(
    objective: Objective, chosen: Tensor, fit: Fit, swaps: list[Swap], threshold: float, allowed: float
) -> tuple[Tensor, Fit] | None:
    """The first group of swaps that lowers the objective: many at once, then fewer, then single swaps.

    Scores that are only of second order may be wrong for whole features. So the single swaps are the best ones of
    different newcomers, and they are tried until the work `allowed` is used up.
    """
    apart = _disjoint(swaps)
    groups = []
    count = len(apart)
    while count > 1:
        groups.append(apart[:count])
        count //= 4
    least = len(groups) + SINGLE_TRIES
    newcomers = {swap.into: swap for swap in reversed(swaps)}.values()
    groups += [[swap] for swap in sorted(newcomers, key=_order)][:MOST_TRIES]
    for tries, group in enumerate(groups):
        if (tries >= least and objective.work > allowed) or objective.inst.watch.must_stop():
            break
        trial = chosen.clone()
        trial[[s.out for s in group]] = False
        trial[[s.into for s in group]] = True
        moved = objective.fit(trial, fit.Z, fit.value)
        if moved.value < fit.value - threshold:
            return trial, moved
    return None


def propose(domain: Domain, model: LocalModel, chosen: Tensor) -> list[Swap]:
    """Swaps with a positive predicted gain, best first."""
    found = [swap for scores in domain.swap_scores(model, chosen) for swap in _best(*scores)]
    return sorted(found, key=_order)


def _order(swap: Swap) -> tuple[float, int, int]:
    """Best first; ties are ordered by item, so that all ranks agree."""
    return -swap.gain, swap.out, swap.into


def _best(scores: Tensor, inside: Tensor, outside: Tensor) -> list[Swap]:
    """The highest positive scores of every chosen item and of many newcomers.

    Most chosen items have the same best newcomers, and most newcomers the same cheapest chosen item. To get many
    disjoint swaps, the k-th best chosen item is also paired with the k-th best newcomer.
    """
    width = len(outside)
    if not scores.numel():
        return []
    by_item, by_newcomer = scores.max(dim=1), scores.max(dim=0)
    partners = scores.topk(min(width, PARTNERS), dim=1).indices
    partners = partners + width * torch.arange(len(inside), device=partners.device).unsqueeze(1)
    newcomers = by_newcomer.values.topk(min(width, max(len(inside), MOST_TRIES))).indices
    tried = newcomers[:MOST_TRIES]
    paired = by_item.values.argsort(descending=True, stable=True)[: len(newcomers)]
    diagonal = paired * width + newcomers[: len(paired)]
    index = torch.cat([partners.flatten(), by_newcomer.indices[tried] * width + tried, diagonal]).unique()
    gains = scores.flatten()[index]
    gains, index = gains[gains > 0], index[gains > 0]
    out, into = inside[index // width], outside[index % width]
    return [Swap(*row) for row in zip(gains.tolist(), out.tolist(), into.tolist(), strict=True)]


def _disjoint(swaps: list[Swap]) -> list[Swap]:
    """The best swaps, no two of them with a common item."""
    taken: set[int] = set()
    picked = []
    for swap in swaps:
        if swap.out not in taken and swap.into not in taken:
            taken |= {swap.out, swap.into}
            picked.append(swap)
    return picked
