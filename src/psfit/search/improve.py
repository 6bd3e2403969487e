"""Better supports by local models, for losses whose form is only a model.

At a fitted support the model proposes supports: after the best single swaps, after a few swaps, where no swap helps any
more, and from perturbations. The most promising ones are fitted in one batch. The best of them is accepted only if its
true objective is lower. Supports that are a few swaps away are among the proposals, since a model that promises too
much is often still right about them.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from torch import Tensor

from psfit.search.batch_refit import HOPE, fit_batch
from psfit.search.form_search import MOST_SWAPS, End, FormSearch
from psfit.search.local_form import LocalForm
from psfit.search.objective import Objective
from psfit.search.refit import Fit
from psfit.search.support_fit import SupportFit, drop_repeats

MOST_ROUNDS = 50
# How many swaps the short searches make; from a large support also more, up to an eighth of its items.
FEW_SWAPS = (1, 2, 3, 4, 8)
MORE_SWAPS = (16, 32, 64)
# Shares of the support that are exchanged at random for further searches.
PERTURBED = (0.1, 0.25, 0.5, 0.25, 0.5, 0.1, 0.75, 0.5)
# The ends of searches that are tried; the single swaps that are tried together with them; and those that are tried when
# nothing else is better.
SEARCHED = 12
SINGLE_SWAPS = 12
MANY_SWAPS = 256
MOST_PROPOSED = max(SEARCHED + len(MORE_SWAPS) + SINGLE_SWAPS, MANY_SWAPS)
# Fits of many swaps may always cost this many operations, by the kind of device, and on a CPU about as many as two
# models: on a GPU models cost much less than fits. A fit costs about so many for each sample and column. They are tried
# at most so often from one start.
FREE_FITS = {"cpu": 1e9, "cuda": 1e12}
FIT_WORK = 16.0
MANY_TRIALS = 3
# Searches from perturbations with one model may cost this many operations, by the kind of device.
PERTURBED_WORK = {"cpu": float("inf"), "cuda": 5e10}
# Where searches are costly, another round follows only if the last one lowered the objective by at least this share.
WORTHWHILE = 2e-4
# How often a model is asked for proposals before it is given up.
ATTEMPTS = 3
# If the loss has kinks, so many supports are fitted one after the other until one of them is better.
KINK_TRIES = 16
# Where all supports are fitted, the second derivatives of those in one batch have at most about so many numbers.
MOST_SQUARES = 1 << 22


def improve(objective: Objective, found: SupportFit, rounds: int = MOST_ROUNDS, attempts: int = ATTEMPTS) -> SupportFit:
    """The best support after rounds of models, until no proposal of the last model is better."""
    watch, trials = objective.inst.watch, 0
    for _ in range(rounds):
        removable = found.chosen & ~objective.domain.inside[0]
        if watch.must_stop() or bool(found.chosen.all()) or not bool(removable.any()):
            break
        if objective.is_finished(found.chosen) or abs(found.value) <= objective.rounding:
            break
        costly = objective.is_costly
        better, many = _improve_once(objective, found, 1 if costly else attempts, trials < MANY_TRIALS and not costly)
        trials += many
        if better is None:
            objective.note_finished(found.chosen)
            break
        gain, found = found.value - better.value, better
        watch.reporter.report_objective(objective.problem, found.value)
        if costly and gain < WORTHWHILE * abs(found.value):
            break
    return found


def _improve_once(objective: Objective, found: SupportFit, attempts: int, many: bool) -> tuple[SupportFit | None, bool]:
    """A better support by the model at a fit, and whether `many` single swaps were tried, which is done if allowed.

    The first proposals of the model come first, and those of further perturbations last.
    """
    local = objective.local_form(found)
    base = local.pack(found.chosen)
    tried, asked, better = {base.tobytes()}, False, None
    swaps = _count_swaps(objective, local) if many else 0
    ways = _list_proposals(base, attempts, swaps, objective.inst.seed)
    if objective.brief:
        ways = iter([(partial(_propose_briefly, base=base, value=found.value), False)])
    for propose, is_many in ways:
        ends = [end for end in local.find(propose, MOST_PROPOSED) if end.chosen.tobytes() not in tried]
        tried |= {end.chosen.tobytes() for end in ends}
        better = _try(objective, local, found, ends)
        asked |= is_many
        if better is not None:
            break
    objective.work += local.search.work
    return better, asked


def _list_proposals(
    base: np.ndarray, attempts: int, swaps: int, seed: int
) -> Iterator[tuple[Callable[[FormSearch], list[End]], bool]]:
    """Ways to propose supports, in the order in which they are asked, and whether they are many single swaps."""
    yield partial(_propose, base=base, attempt=0, seed=seed), False
    if swaps:
        yield partial(_propose_swaps, base=base, count=swaps), True
    for attempt in range(1, attempts):
        yield partial(_propose, base=base, attempt=attempt, seed=seed), False


def _count_swaps(objective: Objective, local: LocalForm) -> int:
    """How many single swaps are worth a fit when nothing else is better; none if they are fitted one by one."""
    if not objective.fits_in_batches:
        return 0
    columns, place = len(local.form.H), local.device.type
    free = FREE_FITS[place] / (FIT_WORK * max(objective.inst.samples, 1) * columns)
    return int(min(max(free, 4 * columns / FIT_WORK if place == "cpu" else 0.0), MANY_SWAPS))


def _propose(search: FormSearch, base: np.ndarray, attempt: int, seed: int) -> list[End]:
    """Ends of searches around a support, without repeats, the most promising first.

    Few of the searches are asked for, since a model may promise much too much for supports that are far away. Single
    swaps are always among the proposals.
    """
    generator = np.random.default_rng([attempt, seed])
    most = MOST_SWAPS * int(base.sum())
    perturbed = PERTURBED[: search.count_affordable(base, PERTURBED_WORK[search.form.H.device.type])]
    starts, swaps = [search.perturb(base, share, generator) for share in perturbed], [most] * len(perturbed)
    more = [count for count in MORE_SWAPS if 8 * count <= base.sum()]
    singles: list[End] = []
    if attempt == 0:
        short = [*FEW_SWAPS, *more, most]
        starts, swaps = starts + [base] * len(short), swaps + short
        singles = search.single_swaps(base, SINGLE_SWAPS)
    ends = _sort(search.descend_around(base, np.stack(starts), swaps))
    return _sort([*ends[: SEARCHED + len(more)], *singles])


def _propose_briefly(search: FormSearch, base: np.ndarray, value: float) -> list[End]:
    """Supports after some swaps that the model promises to be better than a value, without perturbations."""
    singles, most = search.single_swaps(base, SINGLE_SWAPS), MOST_SWAPS * int(base.sum())
    swaps = [*FEW_SWAPS, most] if singles else [most]
    ends = search.descend_around(base, np.stack([base] * len(swaps)), swaps)
    return _sort([end for end in [*ends, *singles] if end.value < value - search.rel_tol * abs(value)])


def _propose_swaps(search: FormSearch, base: np.ndarray, count: int) -> list[End]:
    """Many single swaps: newcomers in the places that the model prefers, and the best newcomers in all places."""
    ends = search.single_swaps(base, max(count // 2, 1))
    removable = np.flatnonzero(base & ~search.fixed)
    if search.domain.group is None and search.domain.weights is None and len(removable):
        for end in ends[: count // 2 // len(removable)]:
            for gone in removable:
                chosen = base | end.chosen
                chosen[gone] = False
                ends.append(End(chosen, end.value))
    return drop_repeats(ends, lambda end: end.chosen)


def _sort(ends: list[End]) -> list[End]:
    """Different ends, the most promising first."""
    return drop_repeats(sorted(ends, key=lambda end: end.value), lambda end: end.chosen)


def _try(objective: Objective, local: LocalForm, found: SupportFit, ends: list[End]) -> SupportFit | None:
    """The best of the proposals by its true objective, if it is better than what was found."""
    threshold = objective.rel_tol * abs(found.value)
    if not ends:
        return None
    if not objective.fits_in_batches:
        return _try_in_turn(objective, local, found, ends[:KINK_TRIES], threshold)
    batch = fit_batch(objective, local, [end.chosen for end in ends], found.fit.Z, found.value)
    hoped = batch.values - batch.promised
    values, left = batch.values.tolist(), batch.promised.tolist()
    # First the best fit as it is; a fit that promises much is often far from its end, and promises too much.
    for k in dict.fromkeys([int(batch.values.argmin()), *hoped.argsort(stable=True).tolist()[:2]]):
        if values[k] - left[k] >= found.value - threshold:
            continue
        Z = found.fit.Z.clone()
        Z[:, objective.outputs] = batch.Z[k].to(Z.dtype)
        support = local.unpack(ends[k].chosen)
        finished = batch.is_finished(k)
        fit = Fit(Z, values[k], 0.0) if finished else objective.fit(support, Z, found.value)
        if fit.value < found.value - threshold:
            return SupportFit(support, fit)
    return None


def rank_supports(objective: Objective, found: SupportFit, supports: list[Tensor]) -> list[Tensor]:
    """Supports ``(size,)`` by what fits in batches promise, the best first.

    These fits end early, so what they promise only serves to begin with good supports: others are then given up
    sooner. Where supports cannot be fitted in batches by a model of all items, they stay in their order.
    """
    if objective.exact or not objective.fits_in_batches or not supports:
        return supports
    local, inst = objective.local_form(found), objective.inst
    if local.index is not None:
        return supports
    most = max(int(inst.items.mask_one(support).sum()) for support in supports)
    width = max(1, MOST_SQUARES // (most + inst.items.free * len(objective.outputs)) ** 2)
    hoped: list[float] = []
    for k in range(0, len(supports), width):
        packed = [local.pack(support) for support in supports[k : k + width]]
        batch = fit_batch(objective, local, packed, found.fit.Z, found.value)
        hoped += (batch.values - HOPE * batch.promised).nan_to_num(nan=-math.inf).tolist()
    order = sorted(range(len(supports)), key=hoped.__getitem__)
    return [supports[k] for k in order]


def _try_in_turn(
    objective: Objective, local: LocalForm, found: SupportFit, ends: list[End], threshold: float
) -> SupportFit | None:
    """The first of some fits, one after the other, that is better than what was found."""
    for end in ends:
        support = local.unpack(end.chosen)
        fit = objective.fit(support, found.fit.Z, found.value)
        if fit.value < found.value - threshold:
            return SupportFit(support, fit)
    return None
