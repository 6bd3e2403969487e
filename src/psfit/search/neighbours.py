"""Supports along a path of limits: the support of one limit is a start for its neighbours.

For a larger limit a support grows by the items that help most. For a smaller one it loses those that cost least. A
support of a smaller limit with any further items is allowed at a larger limit, so objectives can be made to fall along
the path. In a quadratic objective all limits are searched at once: forward selection and backward elimination pass
through all of them, and every support is improved by swaps.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from psfit.search.explore import EFFORTS, FREE_WORK, GRAM_SHARE, restart_models
from psfit.search.form_search import End, FormSearch
from psfit.search.improve import improve
from psfit.search.objective import Objective
from psfit.search.starts import grow, refit_end, shrink
from psfit.search.support_fit import SupportFit

# How often the supports of all limits are tried at their neighbours.
SWEEPS = 3
# Rounds of models at each limit of a path: neighbours improve each other.
PATH_ROUNDS = 6
# Restarts are made at this many limits, and at others if that is cheap; their neighbours then try what was found.
FIRST_RESTARTED = 10

# A limit, and the bytes of a support.
Row = tuple[int, bytes]


def search_limits(
    objective: Objective, kappas: list[int], starts: dict[int, list[Tensor]], Z: Tensor
) -> dict[int, SupportFit]:
    """A good support for each of the rising `kappas`; the first and some others have starts of their own."""
    if objective.exact:
        return _search_form(objective, kappas, starts, Z)
    found: dict[int, SupportFit] = {}
    for below, kappa in zip([None, *kappas], kappas, strict=False):
        # What is costly is decided for each limit.
        objective.work = 0.0
        best = None if below is None else grow(objective, found[below], kappa)
        for start in starts.get(kappa, []):
            best = _take_better(objective, start, best, Z)
        assert best is not None
        found[kappa] = improve(objective, best, PATH_ROUNDS)
        objective.inst.watch.reporter.report(done=len(found), total=len(kappas))
    return pass_on(objective, found)


def _take_better(objective: Objective, start: Tensor, best: SupportFit | None, Z: Tensor) -> SupportFit:
    """The better of a start and of the best so far; the fit of the start ends early where it is clearly worse."""
    if best is None:
        return refit_end(objective, start, Z)
    if torch.equal(start, best.chosen):
        return best
    other = SupportFit(start, objective.fit(start, best.fit.Z, best.value))
    return other if other.value < best.value else best


def pass_on(
    objective: Objective, found: dict[int, SupportFit], changed: set[int] | None = None
) -> dict[int, SupportFit]:
    """Try the support of every limit, or of those that have `changed`, at the next smaller and the next larger one."""
    found, kappas = dict(found), list(found)
    if changed is not None and not changed:
        return found
    if objective.exact:
        return _pass_on_in_form(objective, found, set(kappas) if changed is None else changed)
    for above, kappa in pairwise(reversed(kappas)):
        if objective.brief and not bool((found[kappa].chosen & ~found[above].chosen).any()):
            continue
        less = shrink(objective, found[above], kappa, known=found[kappa])
        if less.value < found[kappa].value - objective.rel_tol * abs(less.value):
            found[kappa] = improve(objective, less, PATH_ROUNDS)
    for below, kappa in pairwise(kappas):
        if found[below].value < found[kappa].value:
            found[kappa] = grow(objective, found[below], kappa)
    return found


def restart_limits(
    objective: Objective, found: dict[int, SupportFit], limits: list[int], effort: str
) -> dict[int, SupportFit]:
    """Search from perturbations of the supports of `limits`, in this order.

    All of them together may cost as much as the restarts of a single fit, and each has half the patience, since
    neighbours have already improved each other. After the first limits others follow only while little work was done.
    Where the form is only a model, each search needs models of its own, so there are fewer.
    """
    found, exploration = dict(found), EFFORTS[effort]
    if exploration is None:
        return found
    if not objective.exact:
        for kappa in limits[: exploration.patience // 2]:
            found[kappa] = restart_models(objective, found[kappa], 1, exploration.patience)
        return found
    inst = objective.inst
    n = len(inst.ridge)
    allowed = exploration.work * (FREE_WORK + GRAM_SHARE * inst.samples * n * n)
    local = objective.local_form(found[limits[0]])
    bases = [End(local.pack(found[kappa].chosen), found[kappa].value) for kappa in limits]

    def restart(search: FormSearch) -> list[End]:
        stop, ends, before = lambda: any(inst.watch.reasons), [], search.work
        for number, base in enumerate(bases):
            enough = allowed if number < FIRST_RESTARTED else exploration.work * FREE_WORK
            if search.work < before + enough:
                base = search.restart(base, exploration.patience // 2, allowed / 4, stop, inst.seed)
            ends.append(base)
        return ends

    ends = local.find(restart, len(limits))
    for kappa, base, end in zip(limits, bases, ends, strict=True):
        if end.value < base.value:
            found[kappa] = refit_end(objective, local.unpack(end.chosen), found[kappa].fit.Z)
    return found


def _search_form(
    objective: Objective, kappas: list[int], starts: dict[int, list[Tensor]], Z: Tensor
) -> dict[int, SupportFit]:
    """All limits in the form of the problem itself."""
    first = next(iter(starts.values()))[0]
    local = objective.local_form(SupportFit(first, objective.fit(first, Z)))
    own = [(kappa, local.pack(start)) for kappa, several in starts.items() for start in several]
    nothing = local.pack(objective.domain.inside[0])

    def search_all(search: FormSearch) -> list[End]:
        rows = list(zip(kappas, search.grow(nothing, kappas), strict=True))
        widest = search.grow(nothing, [min(objective.domain.items.capacity, 2 * kappas[-1])])[0]
        falling = [kappa for kappa in reversed(kappas) if kappa < search.measure(widest)]
        rows += zip(falling, search.shrink(widest, falling), strict=True)
        best: dict[int, End] = {}
        tried: set[Row] = set()
        for kappa, end in _descend_once(search, [*rows, *own], tried):
            if kappa not in best or end.value < best[kappa].value:
                best[kappa] = end
        return list(_sweep(search, {kappa: best[kappa] for kappa in kappas}, set(kappas), tried).values())

    ends = local.find(search_all, len(kappas))
    return {kappa: refit_end(objective, local.unpack(end.chosen), Z) for kappa, end in zip(kappas, ends, strict=True)}


def _descend_once(
    search: FormSearch, rows: Iterable[tuple[int, np.ndarray]], tried: set[Row]
) -> Iterator[tuple[int, End]]:
    """The ends of searches from supports of limits that were not `tried`; they and their ends are added to these.

    Most limits get the same support from several sides.
    """
    new = {(kappa, support.tobytes()): support for kappa, support in rows}
    new = {row: support for row, support in new.items() if row not in tried}
    ends = search.descend(list(new.values()))
    tried |= set(new)
    for (kappa, _), end in zip(new, ends, strict=True):
        tried.add((kappa, end.chosen.tobytes()))
        yield kappa, end


def _pass_on_in_form(objective: Objective, found: dict[int, SupportFit], changed: set[int]) -> dict[int, SupportFit]:
    kappas = list(found)
    local = objective.local_form(found[kappas[0]])
    known = {kappa: End(local.pack(one.chosen), one.value) for kappa, one in found.items()}
    tried = {(kappa, end.chosen.tobytes()) for kappa, end in known.items()}
    ends = local.find(lambda search: list(_sweep(search, known, changed, tried).values()), len(kappas))
    for kappa, end in zip(kappas, ends, strict=True):
        if not np.array_equal(end.chosen, known[kappa].chosen):
            found[kappa] = refit_end(objective, local.unpack(end.chosen), found[kappa].fit.Z)
    return found


def _sweep(search: FormSearch, best: dict[int, End], changed: set[int], tried: set[Row]) -> dict[int, End]:
    """Try supports that have `changed` at the next smaller and the next larger limit, until nothing changes.

    Supports that were `tried` are left out.
    """
    best, kappas = dict(best), list(best)
    for _ in range(SWEEPS):
        tries = [(low, high) for low, high in pairwise(kappas) if high in changed]
        tries += [(high, low) for low, high in pairwise(kappas) if low in changed]
        limits = [limit for limit, _ in tries]
        supports = search.change_each([best[known].chosen for _, known in tries], limits)
        changed = set()
        for kappa, end in _descend_once(search, zip(limits, supports, strict=True), tried):
            if end.value < best[kappa].value - search.rel_tol * abs(end.value):
                best[kappa] = end
                changed.add(kappa)
        if not changed:
            break
    return best
