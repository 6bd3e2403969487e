"""From several starting supports to one good one: swap search from each, then from perturbations of the best.

A swap search ends where no single swap helps. Exchanging a random half of the best support and searching again escapes
most such points. All random draws come from one seeded generator on the host, so that the same problem has the same
answer on every rank, device and day.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.comm import even_bounds
from psfit.problem import all_supports, are_few
from psfit.search.objective import Objective
from psfit.search.refit import Fit
from psfit.search.swaps import swap_search

# Floating-point operations that perturbed restarts may spend: an amount that is small on any machine and some passes
# over the data, or some times what the first searches did.
FREE_WORK = 2e9
PASSES = 20
REPEATS = 2
GREEDY_STEPS = 10


@dataclass(frozen=True)
class Exploration:
    """How hard to look: restarts without improvement before giving up, a factor on the work they may cost, and whether
    all supports are tried where they are few.
    """

    patience: int
    work: float
    tries_all: bool = True


# "brief" goes before an exact search, which looks everywhere anyway.
EFFORTS = {
    "low": None,
    "brief": Exploration(3, 0.25, False),
    "medium": Exploration(16, 1.0),
    "high": Exploration(40, 16.0),
}
SHARES = (0.5, 0.25, 0.75, 1.0)
# The share of searches that ended where no other did estimates the chance that the next one ends somewhere new (an idea
# of Good and Turing). Where it is more than this, or the best place was met only once, it pays to go on for longer.
NEWS = 0.2
RUGGED = 4


def explore(
    scene: Objective,
    starts: list[Tensor],
    Z: Tensor,
    rel_tol: float,
    plan: Exploration | None,
    passes: int,
    done: Callable[[Tensor, Fit], bool],
) -> tuple[Tensor, Fit]:
    """The best support found from the items ``starts`` (each ``(size,)``) and its fit; no search without a plan.

    `passes` over the data, forth and back, have led to the starts; restarts may cost as much. `done` is asked about the
    first answer and about the best one before the restarts, and ends the search there if it likes.
    """
    if plan is None or bool(starts[0].all()):
        return starts[0], scene.fit(starts[0], Z)
    chosen, fit, _ = swap_search(scene, starts[0], Z, rel_tol)
    if scene.inst.watch.must_stop() or done(chosen, fit):
        return chosen, fit
    first = fit
    for start in _distinct([*starts, _forward(scene, starts[0], Z)])[1:]:
        found, reached, _ = swap_search(scene, start, Z, rel_tol)
        if reached.value < fit.value:
            chosen, fit = found, reached
        if scene.inst.watch.must_stop():
            return chosen, fit
    if fit is not first and done(chosen, fit):
        return chosen, fit
    if plan.tries_all and are_few(chosen.numel(), int(chosen.sum())):
        return try_all(scene, chosen, fit)
    return restart(scene, chosen, fit, rel_tol, plan, passes)


def try_all(scene: Objective, chosen: Tensor, fit: Fit) -> tuple[Tensor, Fit]:
    """The best of all supports of this size, or the best until the fit is over."""
    for trial in all_supports(chosen.numel(), int(chosen.sum()), chosen.device):
        # Each is followed to its end: what a few steps promise is a guess.
        reached = scene.fit(trial, fit.Z)
        if reached.value < fit.value:
            chosen, fit = trial, reached
            scene.inst.watch.reporter.report_objective(scene.problem, fit.value)
        if scene.inst.watch.must_stop():
            break
    return chosen, fit


def restart(
    scene: Objective, chosen: Tensor, fit: Fit, rel_tol: float, plan: Exploration, passes: int
) -> tuple[Tensor, Fit]:
    """The best of a support and of the ends of searches from perturbations of the best."""
    generator = torch.Generator().manual_seed(0)
    spent, free, known = scene.work, FREE_WORK + PASSES * scene.pass_work, passes * scene.pass_work
    # A refit of a loss with kinks is a sequence of smooth ones: as much patience costs several times more there.
    patience = plan.patience if scene.inst.problem.loss.smooth else plan.patience // 4
    failures, restarts, ends = 0, 0, Counter([_place(fit)])
    while True:
        news = sum(count == 1 for count in ends.values()) > NEWS * ends.total()
        longer = RUGGED if news or ends[_place(fit)] == 1 else 1
        allowed = spent + plan.work * max(longer * free, REPEATS * spent, known)
        # Where every search has led to the same place, half the patience will do.
        enough = patience * longer if len(ends) > 1 else (patience + 1) // 2
        if failures >= enough or scene.work >= allowed or scene.inst.watch.must_stop():
            return chosen, fit
        start = _perturbed(chosen, SHARES[restarts % len(SHARES)], generator)
        found, reached, _ = swap_search(scene, start, fit.Z, rel_tol)
        ends[_place(reached)] += 1
        restarts, failures = restarts + 1, failures + 1
        if reached.value < fit.value - rel_tol * abs(fit.value):
            chosen, fit, failures = found, reached, 0
            scene.inst.watch.reporter.report_objective(scene.problem, fit.value)


def _place(fit: Fit) -> str:
    """A name for where a search ended: its objective, without the digits that are not worth another search."""
    return f"{fit.value:.4e}"


def _perturbed(chosen: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Exchange a share of the chosen items for others at random."""
    inside, outside = chosen.nonzero().flatten(), (~chosen).nonzero().flatten()
    count = min(max(1, round(share * len(inside))), len(outside))
    trial = chosen.clone()
    trial[inside[torch.randperm(len(inside), generator=generator)[:count].to(chosen.device)]] = False
    trial[outside[torch.randperm(len(outside), generator=generator)[:count].to(chosen.device)]] = True
    return trial


def _forward(scene: Objective, like: Tensor, Z: Tensor) -> Tensor:
    """A greedy start: the items that help most given those taken before, a share of the limit at a time."""
    kappa, chosen = int(like.sum()), torch.zeros_like(like)
    for bound in even_bounds(kappa, min(kappa, GREEDY_STEPS))[1:]:
        gains = scene.domain.addition_scores(scene.model(scene.fit(chosen, Z), chosen), chosen)
        taken = torch.where(chosen, -1.0, gains).topk(bound - int(chosen.sum())).indices
        chosen = chosen.index_fill(0, taken, True)
    return chosen


def _distinct(starts: list[Tensor]) -> list[Tensor]:
    kept: list[Tensor] = []
    for start in starts:
        if not any(bool((start == other).all()) for other in kept):
            kept.append(start)
    return kept
