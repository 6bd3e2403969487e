"""A good support from several starts: a swap search from each, then from perturbations of the best.

A swap search ends where no single swap helps. A new search, after random items of the best support are exchanged, often
ends at a better support. All random numbers come from one seeded generator on the host. So the same problem has the
same answer on every rank, on every device and in every run.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.comm import even_bounds
from psfit.problem import Domain, all_supports, are_few
from psfit.search.objective import Objective
from psfit.search.support_fit import SupportFit
from psfit.search.swaps import swap_search

# Restarts may always use FREE_WORK floating-point operations, which is little on any machine, and FREE_PASSES passes
# over the data. If it is more, they may use REPEATS times the work of the first searches.
FREE_WORK = 2e9
FREE_PASSES = 20
REPEATS = 2
GREEDY_STEPS = 10
# The shares of a support that restarts exchange, in this order, again and again.
EXCHANGED = (0.5, 0.25, 0.75, 1.0)
# The share of searches whose final objective no other search has estimates the chance that the next one finds a new
# objective (Good and Turing). If it is larger than NEW_SHARE, or only one search found the best objective, restarts may
# take LONGER times as long.
NEW_SHARE = 0.2
LONGER = 4


@dataclass(frozen=True)
class Exploration:
    """How long to search: restarts without improvement before it ends, a factor on the work they may cost, and whether
    all supports are tried where they are few.
    """

    patience: int
    work: float
    tries_all: bool = True


# "brief" is used before an exact search, which considers all supports anyway.
EFFORTS = {
    "low": None,
    "brief": Exploration(3, 0.25, False),
    "medium": Exploration(16, 1.0),
    "high": Exploration(40, 16.0),
}


def explore(
    objective: Objective, starts: list[Tensor], Z: Tensor, rel_tol: float, exploration: Exploration | None, passes: int
) -> Iterator[SupportFit]:
    """The best support after each stage of a search: from the first start, from all of them, from perturbations.

    The caller asks for the next stage only if a better support may exist. Without an `exploration` only a fit on the
    first of the ``starts`` (each ``(size,)``) is made. The starts have cost `passes` over the data, each a product with
    the matrix and one with its transpose; restarts may cost as much.
    """
    if exploration is None or bool(starts[0].all()):
        yield SupportFit(starts[0], objective.fit(starts[0], Z))
        return
    best = improve(objective, starts[0], Z, rel_tol)
    yield best
    watch = objective.inst.watch
    for start in _drop_repeats([*starts, _select_forward(objective, starts[0], Z)])[1:]:
        found = improve(objective, start, Z, rel_tol)
        if found.value < best.value:
            best = found
        if watch.must_stop():
            break
    yield best
    if exploration.tries_all and are_few(best.chosen.numel(), int(best.chosen.sum())):
        yield try_all(objective, best)
    else:
        yield restart(objective, best, rel_tol, exploration, passes)


def try_all(objective: Objective, best: SupportFit) -> SupportFit:
    """The best of all supports of this size; if the fit must stop, the best of those tried."""
    watch, chosen = objective.inst.watch, best.chosen
    for trial in all_supports(chosen.numel(), int(chosen.sum()), chosen.device):
        if not objective.domain.allows(trial):
            continue
        # Each fit is completed: after a few steps the objective is only a guess.
        fit = objective.fit(trial, best.fit.Z)
        if fit.value < best.value:
            best = SupportFit(trial, fit)
            watch.reporter.report_objective(objective.problem, fit.value)
        if watch.must_stop():
            break
    return best


def restart(
    objective: Objective, best: SupportFit, rel_tol: float, exploration: Exploration, passes: int
) -> SupportFit:
    """The best of a support and of those found by searches from perturbations of the best."""
    watch, generator = objective.inst.watch, torch.Generator().manual_seed(0)
    spent, known = objective.work, passes * objective.pass_work
    free = FREE_WORK + FREE_PASSES * objective.pass_work
    # A refit of a loss with kinks costs several times as much as a smooth one, so fewer restarts are made.
    patience = exploration.patience if objective.inst.problem.loss.smooth else exploration.patience // 4
    failures, restarts, finals = 0, 0, Counter([_label(best)])
    while True:
        many_new = sum(count == 1 for count in finals.values()) > NEW_SHARE * finals.total()
        longer = LONGER if many_new or finals[_label(best)] == 1 else 1
        allowed = spent + exploration.work * max(longer * free, REPEATS * spent, known)
        # If every search has ended at the same objective, half the patience is enough.
        enough = patience * longer if len(finals) > 1 else (patience + 1) // 2
        if failures >= enough or objective.work >= allowed or watch.must_stop():
            return best
        start = _perturb(objective.domain, best.chosen, EXCHANGED[restarts % len(EXCHANGED)], generator)
        found = improve(objective, start, best.fit.Z, rel_tol)
        finals[_label(found)] += 1
        restarts, failures = restarts + 1, failures + 1
        if found.value < best.value - rel_tol * abs(best.value):
            best, failures = found, 0
            watch.reporter.report_objective(objective.problem, best.value)


def improve(objective: Objective, start: Tensor, Z: Tensor, rel_tol: float) -> SupportFit:
    """A support that no single swap improves, from a start ``(size,)`` and coefficients `Z`."""
    chosen, fit, _ = swap_search(objective, start, Z, rel_tol)
    return SupportFit(chosen, fit)


def _label(found: SupportFit) -> str:
    """The final objective of a search, with only the digits that matter."""
    return f"{found.value:.4e}"


def _perturb(domain: Domain, chosen: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Exchange a share of the chosen items for others at random, as far as the domain allows."""
    removable = (chosen & ~domain.inside[0]).nonzero().flatten()
    newcomers = (~chosen & ~domain.outside[0]).nonzero().flatten()
    count = min(max(1, round(share * len(removable))), len(newcomers))
    kept = chosen.clone()
    kept[removable[torch.randperm(len(removable), generator=generator)[:count].to(chosen.device)]] = False
    order = torch.randperm(len(newcomers), generator=generator).to(chosen.device)
    keys = torch.full(chosen.shape, -torch.inf, dtype=torch.float64, device=chosen.device)
    keys[newcomers[order]] = torch.arange(len(order), 0, -1, dtype=torch.float64, device=chosen.device)
    return domain.fill(kept, keys, count)


def _select_forward(objective: Objective, like: Tensor, Z: Tensor) -> Tensor:
    """A greedy start: add the items that help most, a share of the limit at a time."""
    kappa, chosen = int(like.sum()), objective.domain.inside[0]
    for bound in even_bounds(kappa, min(kappa, GREEDY_STEPS))[1:]:
        model = objective.model(objective.fit(chosen, Z), chosen)
        gains = objective.domain.addition_scores(model, chosen)
        chosen = objective.domain.fill(chosen, gains, bound - int(chosen.sum()))
    return chosen


def _drop_repeats(starts: list[Tensor]) -> list[Tensor]:
    different: list[Tensor] = []
    for start in starts:
        if not any(bool((start == other).all()) for other in different):
            different.append(start)
    return different
