"""Starts of a search that need no iteration: forward selection and backward elimination, in stages.

For a quadratic objective the form holds everywhere, and one stage is enough. For other losses the support is fitted
again after each stage, and a new model made there. Which of the two is better depends on the data, so both are tried.
"""

from math import ceil

import torch
from torch import Tensor

from psfit.comm import even_bounds
from psfit.search.batch_refit import CLOSE, fit_batch
from psfit.search.form_search import End
from psfit.search.local_form import LocalForm
from psfit.search.objective import SEARCH_TOL, Objective
from psfit.search.refit import Fit
from psfit.search.support_fit import SupportFit

# Stages of forward selection; the share of the items that a stage of backward elimination keeps.
FORWARD_STAGES = 4
KEPT = 0.5
# Backward elimination begins with this many times the limit, at least LEAST_BEGIN, or with all items; with fewer items
# if each has several coefficients, but with twice the limit.
BEGIN = 4
LEAST_BEGIN = 100
# The accuracy of fits that only rank items.
ROUGH = 1e-2


def select_forward(objective: Objective, limit: int, Z: Tensor) -> SupportFit:
    """Add the items that help most, a share of the limit at a time."""
    chosen = objective.domain.inside[0]
    found = SupportFit(chosen, objective.fit(chosen, Z, tol=ROUGH))
    have = int(objective.domain.weigh(chosen))
    if have >= limit:
        return refit_end(objective, chosen, Z)
    stages = even_bounds(limit - have, min(limit - have, 1 if objective.exact else FORWARD_STAGES))[1:]
    for bound in stages:
        found = grow(objective, found, have + bound, have + bound < limit)
    return found


def eliminate_backward(objective: Objective, limit: int, Z: Tensor) -> SupportFit:
    """Begin with all items, or with many of the best; take out those that cost least, a share at a time.

    With groups the items at the beginning are those that forward selection allows, since all items together would
    exceed what a group may have.
    """
    size, inside, weigh = objective.domain.items.capacity, objective.domain.inside[0], objective.domain.weigh
    each = objective.domain.items.width if objective.domain.weights is None else 1
    used = int(weigh(inside))
    begin = used + max(max(BEGIN * (limit - used), LEAST_BEGIN) // each, 2 * (limit - used))
    if objective.exact:
        begin = min(begin, 2 * limit - used)
    if begin >= size and objective.domain.counts_only:
        chosen = ~objective.domain.outside[0]
        found = SupportFit(chosen, objective.fit(chosen, Z, tol=ROUGH))
    else:
        found = SupportFit(inside, objective.fit(inside, Z, tol=ROUGH))
        found = grow(objective, found, min(begin, size), True)
    if int(weigh(found.chosen)) <= limit:
        return refit_end(objective, found.chosen, found.fit.Z)
    while (count := int(weigh(found.chosen))) > limit:
        kept = limit if objective.exact else max(limit, ceil(KEPT * count))
        found = shrink(objective, found, kept, kept > limit)
        if int(weigh(found.chosen)) == count:
            # Items that must stay need others that take too much of the limit: other parents would take less.
            return select_forward(objective, limit, Z)
    # Where items have weights, those that are left may not use up the limit.
    return found if int(weigh(found.chosen)) == limit else grow(objective, found, limit)


def grow(objective: Objective, found: SupportFit, limit: int, rough: bool = False) -> SupportFit:
    """The support with the items that help most, and its fit; in stages where a model has too few items."""
    local = objective.local_form(found)
    base = local.pack(found.chosen)
    (end,) = local.find(lambda search: [End(search.grow(base, [limit])[0], 0.0)], 1)
    if local.index is None or local.search.measure(end.chosen) in (limit, local.search.measure(base)):
        return _fit_end(objective, local, end, found, rough)
    return grow(objective, _fit_end(objective, local, end, found, True), limit, rough)


def shrink(
    objective: Objective, found: SupportFit, limit: int, rough: bool = False, known: SupportFit | None = None
) -> SupportFit:
    """The support without the items that cost least, and its fit; that of a `known` support if it is the same."""
    local = objective.local_form(found)
    base = local.pack(found.chosen)
    (end,) = local.find(lambda search: [End(search.shrink(base, [limit])[0], 0.0)], 1)
    if known is not None and torch.equal(local.unpack(end.chosen), known.chosen):
        return known
    return _fit_end(objective, local, end, found, rough)


def _fit_end(objective: Objective, local: LocalForm, end: End, found: SupportFit, rough: bool) -> SupportFit:
    """The fit on a support that a form has led to; a `rough` one makes only a few steps with the form's own Hessian."""
    chosen, Z = local.unpack(end.chosen), found.fit.Z
    if objective.exact or not objective.fits_in_batches:
        return SupportFit(chosen, objective.fit(chosen, Z, tol=ROUGH if rough else SEARCH_TOL))
    batch = fit_batch(objective, local, [end.chosen], Z, float("inf"), ROUGH**2 if rough else CLOSE)
    moved = Z.clone()
    moved[:, objective.outputs] = batch.Z[0].to(Z.dtype)
    value, promised = float(batch.values[0]), float(batch.promised[0])
    if batch.is_finished(0) or (rough and promised <= ROUGH * abs(value)):
        return SupportFit(chosen, Fit(moved, value, 0.0))
    return SupportFit(chosen, objective.fit(chosen, moved, tol=ROUGH if rough else SEARCH_TOL))


def refit_end(objective: Objective, chosen: Tensor, Z: Tensor) -> SupportFit:
    """A support with its fit."""
    return SupportFit(chosen, objective.fit(chosen, Z))
