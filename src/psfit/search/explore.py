"""A good support for one limit: searches from starts of several kinds, then from perturbations of the best."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from psfit.problem import all_supports, are_few
from psfit.search.form_search import EXCHANGED, End, FormSearch
from psfit.search.improve import improve, rank_supports
from psfit.search.objective import Objective
from psfit.search.starts import eliminate_backward, refit_end, select_forward
from psfit.search.support_fit import SupportFit, drop_repeats

# Restarts in a form may always use this many operations, and this share of those of its Gram product.
FREE_WORK = 4e8
GRAM_SHARE = 0.2
# The best so many different ends of searches in a form are fitted with all digits.
COMPARED = 3
MODEL_RESTARTS = 4
# Objectives that differ by less than this share count as the same.
AGREEMENT = 1e-9
# Kinds of contributions besides starts: searches from perturbations of the best support, and fits on all supports.
RESTARTS = "restarts"
ALL_SUPPORTS = "all supports"


@dataclass(frozen=True)
class Exploration:
    """How long to search: restarts without improvement before it ends, a factor on the work they may cost, and whether
    all supports are tried where they are few.

    If it `trusts_agreement`, searches by models are not restarted where starts of all kinds have led to one objective.
    A search that is not `complete` ends with the given starts.
    """

    patience: int
    work: float
    tries_all: bool = True
    trusts_agreement: bool = True
    complete: bool = True


# "brief" is used before an exact search, which considers all supports anyway.
EFFORTS = {
    "low": None,
    "brief": Exploration(16, 0.25, False),
    "medium": Exploration(16, 1.0),
    "high": Exploration(160, 32.0, trusts_agreement=False),
}


@dataclass(frozen=True)
class Contribution:
    """What a start of some kind led to: the objective of a problem on its support, and after the search from there.

    The kind may also be that of restarts, which begin at the best support so far, or of fits on all supports.
    """

    kind: str
    start: float
    end: float
    problem: int = 0


def explore(
    objective: Objective,
    starts: list[tuple[str, Tensor]],
    Z: Tensor,
    exploration: Exploration | None,
    contributions: list[Contribution],
) -> Iterator[SupportFit]:
    """The best support after each stage of a search, from ``starts``: kinds and supports ``(size,)``.

    A search by models has three stages: the given starts, further starts, restarts. The caller asks for the next one
    only if a better support may exist. A search in the form of the problem itself (squared loss) has one stage with all
    of these, and so have fits on all supports, where they are few. Without an `exploration` only a fit on the first
    start is made. What the starts led to is added to `contributions`.
    """
    first = starts[0][1]
    if exploration is None or bool(first.all()) or not bool(first.any()):
        fit = objective.fit(first, Z)
        contributions.append(Contribution(starts[0][0], fit.value, fit.value))
        yield SupportFit(first, fit)
        return
    # With weights, or where items need others, the first support can be smaller than the limit allows.
    uneven = objective.domain.weights is not None or objective.domain.heredity is not None
    limit = int(objective.domain.limit) if uneven else int(first.sum())
    if exploration.tries_all and not uneven and are_few(objective.domain.items.size, limit):
        start = refit_end(objective, first, Z)
        best = try_all(objective, start)
        contributions.append(Contribution(ALL_SUPPORTS, start.value, best.value))
        yield best
        return
    search = _search_form if objective.exact else _search_models
    yield from search(objective, starts, limit, Z, exploration, contributions)


def _search_form(
    objective: Objective,
    starts: list[tuple[str, Tensor]],
    limit: int,
    Z: Tensor,
    exploration: Exploration,
    contributions: list[Contribution],
) -> Iterator[SupportFit]:
    """Searches in the form of the problem itself."""
    nothing = SupportFit(starts[0][1], objective.fit(starts[0][1], Z))
    local, watch = objective.local_form(nothing), objective.inst.watch
    if exploration.complete:
        starts = [
            *starts,
            ("forward selection", select_forward(objective, limit, Z).chosen),
            ("backward elimination", eliminate_backward(objective, limit, Z).chosen),
        ]
    starts = drop_repeats(starts, lambda start: local.pack(start[1]))
    supports = [local.pack(support) for _, support in starts]
    ends = local.find(lambda search: search.descend(supports), len(starts))
    for (kind, support), end in zip(starts, ends, strict=True):
        contributions.append(Contribution(kind, objective.fit(support, Z).value, end.value))
    best = min(ends, key=lambda end: end.value)
    n = len(objective.inst.ridge)
    allowed = FREE_WORK + GRAM_SHARE * objective.inst.samples * n * n

    def restart(search: FormSearch) -> list[End]:
        def stop() -> bool:
            return any(watch.reasons)

        return [search.restart(best, exploration.patience, exploration.work * allowed, stop, objective.inst.seed)]

    if exploration.complete and not watch.must_stop():
        (better,) = local.find(restart, 1)
        contributions.append(Contribution(RESTARTS, best.value, better.value))
        ends = [better, *ends]
    compared = drop_repeats(sorted(ends, key=lambda end: end.value), lambda end: end.chosen)
    fits = [refit_end(objective, local.unpack(end.chosen), Z) for end in compared[:COMPARED]]
    yield min(fits, key=lambda found: found.value)


def _search_models(
    objective: Objective,
    starts: list[tuple[str, Tensor]],
    limit: int,
    Z: Tensor,
    exploration: Exploration,
    contributions: list[Contribution],
) -> Iterator[SupportFit]:
    """Searches by local models: from the best of the given starts, and from those made here."""
    watch = objective.inst.watch
    objective.most_work *= exploration.work
    given = _fit_best(objective, [support for _, support in starts], Z)
    tried = {starts[0][0]: given}
    best = improve(objective, given)
    ends = [best]
    contributions.append(Contribution(starts[0][0], given.value, best.value))
    yield best
    if not exploration.complete:
        return
    for kind, make in (("forward selection", select_forward), ("backward elimination", eliminate_backward)):
        if watch.must_stop() or objective.is_costly:
            break
        start = make(objective, limit, best.fit.Z)
        if any(torch.equal(start.chosen, other.chosen) for other in tried.values()):
            continue
        tried[kind] = start
        found = improve(objective, start)
        contributions.append(Contribution(kind, start.value, found.value))
        ends.append(found)
        best = min(best, found, key=lambda one: one.value)
    yield best
    if objective.is_costly:
        return
    threshold = best.value + max(AGREEMENT, objective.rel_tol) * abs(best.value)
    if exploration.trusts_agreement and all(end.value <= threshold for end in ends):
        return
    before = best.value
    best = restart_models(objective, best, exploration.patience // 8, MODEL_RESTARTS * exploration.patience)
    contributions.append(Contribution(RESTARTS, before, best.value))
    yield best


def _fit_best(objective: Objective, supports: list[Tensor], Z: Tensor) -> SupportFit:
    """The best of some supports with its fit; fits of others end early where they are clearly worse."""
    best: SupportFit | None = None
    for support in drop_repeats(supports, lambda support: support.cpu().numpy()):
        found = SupportFit(support, objective.fit(support, Z, float("inf") if best is None else best.value))
        best = found if best is None or found.value < best.value else best
    assert best is not None
    return best


def restart_models(objective: Objective, best: SupportFit, patience: int, most: int) -> SupportFit:
    """At most so many searches from perturbations of the best support, each with models of its own.

    They end after `patience` of them in a row have failed.
    """
    watch, failures = objective.inst.watch, 0
    generator = np.random.default_rng([0, objective.inst.seed])
    local = objective.local_form(best)
    for number in range(most):
        if failures >= patience or watch.must_stop() or abs(best.value) <= objective.rounding:
            break
        share = EXCHANGED[number % len(EXCHANGED)]
        start = local.search.perturb(local.pack(best.chosen), share, generator)
        found = improve(objective, refit_end(objective, local.unpack(start), best.fit.Z), attempts=1)
        failures += 1
        if found.value < best.value - objective.rel_tol * abs(best.value):
            best, failures = found, 0
            local = objective.local_form(best)
            watch.reporter.report_objective(objective.problem, best.value)
    return best


def try_all(objective: Objective, best: SupportFit) -> SupportFit:
    """The best of all supports of this size; if the fit must stop, the best of those tried."""
    watch, chosen = objective.inst.watch, best.chosen
    supports = all_supports(chosen.numel(), int(chosen.sum()), chosen.device)
    for trial in rank_supports(objective, best, [one for one in supports if objective.domain.allows(one)]):
        fit = objective.fit(trial, best.fit.Z, best.value)
        if fit.value < best.value:
            best = SupportFit(trial, fit)
            watch.reporter.report_objective(objective.problem, fit.value)
        if watch.must_stop():
            break
    return best
