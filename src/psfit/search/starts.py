"""Starts of a search that need no iteration: forward selection and backward elimination, in stages.

For a quadratic objective the form holds everywhere, and one stage is enough. For other losses the support is fitted
again after each stage, and a new model made there. Which of the two is better depends on the data, so both are tried.
"""

from math import ceil

import torch
from torch import Tensor

from psfit.comm import even_bounds
from psfit.search.form_search import End
from psfit.search.objective import Objective
from psfit.search.support_fit import SupportFit

# Stages of forward selection; the share of the items that a stage of backward elimination keeps.
FORWARD_STAGES = 5
KEPT = 0.6
# Backward elimination begins with this many times the limit, at least LEAST_BEGIN, or with all items; with fewer items
# if each has several coefficients, but with twice the limit.
BEGIN = 4
LEAST_BEGIN = 200
# The accuracy of fits that only rank items.
ROUGH = 1e-2


def select_forward(objective: Objective, limit: int, Z: Tensor) -> SupportFit:
    """Add the items that help most, a share of the limit at a time."""
    chosen = objective.domain.inside[0]
    found = SupportFit(chosen, objective.fit(chosen, Z, tol=ROUGH))
    have = int(chosen.sum())
    if have >= limit:
        return refit_end(objective, chosen, Z)
    stages = even_bounds(limit - have, min(limit - have, 1 if objective.exact else FORWARD_STAGES))[1:]
    for bound in stages:
        found = grow(objective, found, have + bound, ROUGH if have + bound < limit else None)
    return found


def eliminate_backward(objective: Objective, limit: int, Z: Tensor) -> SupportFit:
    """Begin with all items, or with many of the best; take out those that cost least, a share at a time.

    With groups the items at the beginning are those that forward selection allows, since all items together would
    exceed what a group may have.
    """
    size, inside = objective.domain.items.size, objective.domain.inside[0]
    begin = max(max(BEGIN * limit, LEAST_BEGIN) // objective.domain.items.width, 2 * limit)
    if objective.exact:
        begin = min(begin, 2 * limit)
    if begin >= size and objective.domain.group is None:
        chosen = ~objective.domain.outside[0]
        found = SupportFit(chosen, objective.fit(chosen, Z, tol=ROUGH))
    else:
        found = SupportFit(inside, objective.fit(inside, Z, tol=ROUGH))
        found = grow(objective, found, min(begin, size), ROUGH)
    while (count := int(found.chosen.sum())) > limit:
        kept = limit if objective.exact else max(limit, ceil(KEPT * count))
        found = shrink(objective, found, kept, ROUGH if kept > limit else None)
    return found


def grow(objective: Objective, found: SupportFit, limit: int, tol: float | None = None) -> SupportFit:
    """The support with the items that help most, and its fit; in stages where a model has too few items."""
    local = objective.local_form(found)
    base = local.pack(found.chosen)
    (end,) = local.find(lambda search: [End(search.grow(base, [limit])[0], 0.0)], 1)
    chosen = local.unpack(end.chosen)
    if local.index is None or int(chosen.sum()) in (limit, int(found.chosen.sum())):
        return refit_end(objective, chosen, found.fit.Z, tol)
    return grow(objective, refit_end(objective, chosen, found.fit.Z, ROUGH), limit, tol)


def shrink(objective: Objective, found: SupportFit, limit: int, tol: float | None = None) -> SupportFit:
    """The support without the items that cost least, and its fit."""
    local = objective.local_form(found)
    base = local.pack(found.chosen)
    (end,) = local.find(lambda search: [End(search.shrink(base, [limit])[0], 0.0)], 1)
    return refit_end(objective, local.unpack(end.chosen), found.fit.Z, tol)


def refit_end(objective: Objective, chosen: Tensor, Z: Tensor, tol: float | None = None) -> SupportFit:
    """A support with its fit."""
    return SupportFit(chosen, objective.fit(chosen, Z) if tol is None else objective.fit(chosen, Z, tol=tol))


def drop_repeats(starts: list[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    """Starts with different supports; of equal ones the first."""
    different: list[tuple[str, Tensor]] = []
    for kind, start in starts:
        if not any(torch.equal(start, other) for _, other in different):
            different.append((kind, start))
    return different
