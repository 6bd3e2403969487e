"""Supports along a path of limits: the support of one limit is a start for its neighbours.

For a larger limit a support grows by the items that help most. For a smaller one it loses those that cost least. At
every limit the best known start (the support from the iteration is one of them) is improved by swaps. A support of a
smaller limit with any further items is allowed at a larger limit, so objectives can be made to fall along the path.
"""

from itertools import pairwise

from torch import Tensor

from psfit.search.objective import Objective
from psfit.search.restarts import EFFORTS, FREE_PASSES, FREE_WORK, improve, restart
from psfit.search.support_fit import SupportFit


def search_limits(
    objective: Objective, kappas: list[int], starts: dict[int, Tensor], Z: Tensor, rel_tol: float
) -> dict[int, SupportFit]:
    """A good support for each of the rising `kappas`; the first and some others have starts of their own."""
    found: dict[int, SupportFit] = {}
    for below, kappa in zip([None, *kappas], kappas, strict=False):
        tries = [starts[kappa]] if kappa in starts else []
        if below is not None:
            tries.append(_grow(objective, found[below], kappa))
        best = min((SupportFit(one, objective.fit(one, Z)) for one in tries), key=lambda one: one.value)
        found[kappa] = improve(objective, best.chosen, best.fit.Z, rel_tol)
        objective.inst.watch.reporter.report(done=len(found), total=len(kappas))
    return pass_on(objective, found, rel_tol)


def pass_on(objective: Objective, found: dict[int, SupportFit], rel_tol: float) -> dict[int, SupportFit]:
    """Try the support of every limit at the next smaller one, and then at the next larger one."""
    found, kappas = dict(found), list(found)
    for above, kappa in pairwise(reversed(kappas)):
        less = _shrink(objective, found[above], kappa)
        fit = objective.fit(less, found[above].fit.Z)
        if fit.value < found[kappa].value - rel_tol * abs(fit.value):
            found[kappa] = improve(objective, less, fit.Z, rel_tol)
    for below, kappa in pairwise(kappas):
        if found[below].value < found[kappa].value:
            more = _grow(objective, found[below], kappa)
            found[kappa] = SupportFit(more, objective.fit(more, found[below].fit.Z))
    return found


def restart_limits(
    objective: Objective, found: dict[int, SupportFit], limits: list[int], rel_tol: float, effort: str
) -> dict[int, SupportFit]:
    """Search from perturbations of the supports of `limits`, in this order.

    All of them together may cost half as much as the restarts of a single fit, since neighbours have already improved
    each other. At least one limit is searched.
    """
    found, exploration, spent = dict(found), EFFORTS[effort], 0.0
    if exploration is None:
        return found
    allowed = 0.5 * exploration.work * (FREE_WORK + FREE_PASSES * objective.pass_work)
    for kappa in limits:
        objective.work = 0.0
        found[kappa] = restart(objective, found[kappa], rel_tol, exploration, 0)
        spent += objective.work
        if spent > allowed or objective.inst.watch.must_stop():
            break
    return found


def _grow(objective: Objective, known: SupportFit, kappa: int) -> Tensor:
    """The support with the items that help most; all at once, since one at a time would cost too much."""
    gains = objective.domain.addition_scores(objective.model(known.fit, known.chosen), known.chosen)
    return objective.domain.fill(known.chosen, gains, kappa - int(known.chosen.sum()))


def _shrink(objective: Objective, known: SupportFit, kappa: int) -> Tensor:
    """The support without the items that cost least."""
    costs = objective.domain.removal_costs(objective.model(known.fit, known.chosen), known.chosen)
    cheapest = costs.topk(int(known.chosen.sum()) - kappa, largest=False).indices
    return known.chosen.index_fill(0, cheapest, False)
