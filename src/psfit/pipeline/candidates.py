"""Fits on a few candidate columns, for data with too many columns to factor, or too slow to read often.

When kappa is much smaller than the number of features, most columns never matter. The first candidates are the features
that help most on their own. After they are fitted, one pass over all columns scores every exchange of a chosen feature
for any other one. Features with a positive score become candidates, too. This ends when there are none, or when they
bring no gain.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from psfit.admm.checkpoint import Store
from psfit.pipeline.answers import Answers
from psfit.problem.instance import Instance
from psfit.search.objective import DataObjective
from psfit.search.refit import Fit, optimal_slopes, refit

ROUNDS = 6
# The most numbers in the model of one block of columns.
BLOCK_NUMBERS = 1 << 25

# At most so many limits of a path look for newcomers.
MOST_LIMITS = 5

# Finds the answers on some of the columns. Its arguments: the instance, coefficients to iterate from, coefficients
# ``(K, n, c)`` whose supports are further starts, a store for checkpoints, and whether the search goes through all of
# its stages.
Find = Callable[[Instance, Tensor | None, Tensor | None, Store | None, bool], Answers]


@dataclass(frozen=True)
class Candidates:
    """Some features, by sorted numbers ``index``, and the problem with these features only."""

    index: Tensor
    part: Instance

    @classmethod
    def of(cls, inst: Instance, index: Tensor) -> "Candidates":
        """Features and the parents of those that need some."""
        index = _with_parents(inst, index)
        return cls(index, inst.restrict(index))


def search_candidates(
    inst: Instance, find: Find, start: Tensor | None, store: Store | None, thorough: bool, in_stages: bool
) -> Answers:
    """Answers for all limits, with only a few passes over all columns.

    Newcomers are first ranked by their slopes alone, which is one product with all columns. When those bring nothing,
    or if the search is `thorough` from the beginning, all swaps are scored. If searches have stages, the first stage
    serves until these bring nothing, too, and all stages follow on the last candidates.
    """
    inst.watch.begin("the choice of candidates")
    order = rank_features(inst, start)
    some = Candidates.of(inst, _take_first(inst, order, inst.costs.first_candidates))
    begin = None if start is None else inst.pick_rows(start, some.index)
    inside = None if store is None else store.inside("candidates")
    first = find(some.part, begin, None, inside, not in_stages)
    best, some = _add_candidates(inst, find, _fill(inst, first, some), some, order, thorough, not in_stages)
    if in_stages and not inst.watch.must_stop():
        better = _improve(inst, find, best, some, True)
        if better is not None:
            best, some = _add_candidates(inst, find, better, some, order, True, True)
    return replace(best, iteration=first.iteration, candidates=len(some.index))


def _add_candidates(
    inst: Instance, find: Find, best: Answers, some: Candidates, order: Tensor, thorough: bool, complete: bool
) -> tuple[Answers, Candidates]:
    """Better answers with newcomers among the candidates, and the candidates, until newcomers bring nothing."""
    for _ in range(ROUNDS):
        inst.watch.begin("the search for candidates")
        if inst.watch.must_stop():
            break
        newcomers = _find_newcomers(inst, best, some, thorough)
        if len(newcomers):
            some = Candidates.of(inst, _add_newcomers(inst, best.Z, newcomers, some.index, order))
            better = _improve(inst, find, best, some, complete)
            if better is not None:
                best = better
                continue
        if thorough:
            break
        thorough = True
    return best, some


def _improve(inst: Instance, find: Find, best: Answers, some: Candidates, complete: bool) -> Answers | None:
    """Better answers on the candidates from the supports of the best ones, if there are some."""
    known = torch.stack([inst.pick_rows(Z, some.index) for Z in best.Z])
    found = find(some.part, None, known, None, complete)
    better = found.objective < best.objective - inst.resolution * abs(best.objective)
    return _fill(inst, found, some) if better else None


def _fill(inst: Instance, found: Answers, some: Candidates) -> Answers:
    """Answers for all features from those for some."""
    return replace(found, Z=torch.stack([inst.fill_rows(Z, some.index) for Z in found.Z]))


def _add_newcomers(inst: Instance, Z: Tensor, newcomers: Tensor, index: Tensor, order: Tensor) -> Tensor:
    """The support, the newcomers, and the best of the other candidates, as many as memory allows."""
    p = inst.items.features
    rank = torch.empty(p, dtype=torch.long, device=order.device)
    rank[order] = torch.arange(p, device=order.device)
    priority = torch.full((p,), 4 * p, dtype=torch.long, device=order.device)
    priority[index] = 2 * p + rank[index]
    priority[newcomers] = p + torch.arange(len(newcomers), device=order.device)
    priority[(Z[:, :p] != 0).any(dim=2).any(dim=0)] = 0
    size = min(inst.sizes.column_room, len(index) + len(newcomers))
    return _take_first(inst, priority.argsort(stable=True), size)


def _take_first(inst: Instance, order: Tensor, count: int) -> Tensor:
    """The features of the first items in an order of features; always enough items for two supports."""
    return inst.items.take_first(order, count, 2 * inst.items.count_within(max(inst.problem.kappa)))


def _with_parents(inst: Instance, index: Tensor) -> Tensor:
    """Sorted features and the parents of those that need some."""
    parents, wanted = dict(inst.problem.constraints.parents), index.tolist()
    found = set(wanted)
    while wanted:
        new = {parent for feature in wanted for parent in parents.get(feature, ())} - found
        wanted, found = list(new), found | new
    return index if len(found) == len(index) else torch.tensor(sorted(found), device=index.device)


def rank_features(inst: Instance, start: Tensor | None) -> Tensor:
    """All features, those of the starting point first, then by how much they help on their own."""
    p = inst.items.features
    scores = torch.zeros(p, dtype=torch.float64, device=inst.ridge.device)
    nothing = torch.zeros(inst.items.size, dtype=torch.bool, device=scores.device)
    for problem in range(inst.items.problems):
        objective = DataObjective(inst, problem)
        empty = objective.fit(nothing, inst.ridge.new_zeros(len(inst.ridge), inst.items.outputs))
        gains = objective.domain.addition_scores(objective.model(empty, nothing), nothing)
        best = inst.items.by_feature(gains).amax(dim=1)
        # The scale of a problem must not matter, so all problems have the same weight.
        scores = torch.maximum(scores, best / best.max().clamp(min=torch.finfo(best.dtype).tiny))
    needed = inst.items.by_feature(inst.domain.inside.any(dim=0))
    scores[needed.any(dim=1)] = torch.inf
    if start is not None:
        scores[(start[:p] != 0).any(dim=1)] = torch.inf
    return inst.grid.agree(scores)[0].argsort(descending=True, stable=True)


def _find_newcomers(inst: Instance, best: Answers, some: Candidates, thorough: bool) -> Tensor:
    """Features outside the candidates that may join, the most promising first.

    If the search is `thorough`, those that would join by a swap with a gain; else those with the largest slopes.
    """
    gains = torch.zeros(inst.items.features, dtype=torch.float64)
    places = np.unique(np.linspace(0, len(best.Z) - 1, MOST_LIMITS).round().astype(int)).tolist()
    for place in places:
        for problem, value in enumerate(best.objectives[place].tolist()):
            score = _score_newcomers if thorough else _score_slopes
            gains = torch.maximum(gains, score(inst, some, best.Z[place], problem, value))
    (gains,) = inst.grid.agree(gains)
    gains[some.index.cpu()] = 0.0
    order = gains.argsort(descending=True, stable=True)
    return order[gains[order] > inst.resolution].to(some.index.device)[: inst.costs.first_candidates]


def _score_slopes(inst: Instance, some: Candidates, Z: Tensor, problem: int, value: float) -> Tensor:
    """For every feature the square of its slope at one answer, in units of the largest of this problem."""
    outputs, own, part = inst.items.outputs_of(problem), inst.pick_rows(Z, some.index), some.part
    fit = Fit(own, value, 0.0, _slopes_at(part, problem, own))
    slope = inst.source.weight * optimal_slopes(part, problem, _support(part, own, problem), fit)
    local = inst.source.matrix.rmv(slope.to(inst.source.matrix.dtype)).double()
    gradient = inst.grid.nodes.total(local) + inst.ridge * Z[:, outputs]
    if inst.box is not None:
        gradient = -inst.box.select_outputs(outputs).clip_signs(-gradient)
    size = gradient[: inst.items.features].square().amax(dim=1)
    size = inst.items.mean_rows(size).cpu()
    return size / size.max().clamp(min=torch.finfo(size.dtype).tiny)


def _score_newcomers(inst: Instance, some: Candidates, Z: Tensor, problem: int, value: float) -> Tensor:
    """For every feature the gain of its best swap into the support of one answer, as a share of the objective."""
    gains = torch.zeros(inst.items.features, dtype=torch.float64)
    chosen = _support(inst, Z, problem)
    fitted = Fit(Z, value, 0.0, _slopes_at(some.part, problem, inst.pick_rows(Z, some.index)))
    for features, block in _split_features(inst, chosen):
        support = chosen[inst.items.items_of(features)]
        objective = DataObjective(block, problem)
        model = objective.model(replace(fitted, Z=inst.pick_rows(Z, features)), support)
        for scores, _, newcomers in objective.domain.swap_scores(model, support):
            if scores.numel():
                best_gain = scores.new_full((block.items.size,), -torch.inf)
                best_gain[newcomers] = scores.amax(dim=0) / max(abs(value), 1e-300)
                by_feature = block.items.by_feature(best_gain).amax(dim=1)
                gains.scatter_reduce_(0, features.cpu(), by_feature.cpu(), "amax")
    return gains


def _support(inst: Instance, Z: Tensor, problem: int) -> Tensor:
    """The items ``(size,)`` of one problem with nonzero coefficients."""
    return inst.items.pack(Z)[problem] != 0


def _slopes_at(part: Instance, problem: int, Z: Tensor) -> Tensor | None:
    """The multipliers of the samples where a loss has kinks."""
    if part.problem.loss.smooth:
        return None
    return refit(part, problem, _support(part, Z, problem), Z).slope


def _split_features(inst: Instance, chosen: Tensor) -> Iterator[tuple[Tensor, Instance]]:
    """All features in blocks whose models have a bounded size; every block also has the chosen features."""
    p = inst.items.features
    inside = inst.items.by_feature(chosen).any(dim=1)
    size = int(chosen.sum()) * inst.items.width + inst.items.outputs
    width = max(1, BLOCK_NUMBERS // (size * len(inst.items.outputs_of(0))))
    all_features = torch.arange(p, device=chosen.device)
    if width >= p:
        yield all_features, inst
        return
    # The features of an item stay together.
    numbers = inst.items.by_feature(torch.arange(len(chosen), device=chosen.device))[:, 0]
    width = max(1, round(width * inst.items.per_feature))
    for start in range(0, len(chosen), width):
        taken = inside | ((numbers >= start) & (numbers < start + width))
        features = taken.nonzero().flatten()
        yield features, inst.restrict(features)
