"""A bound where columns are too many or too slow to read: its dual point comes from a few candidate columns.

A bound needs slopes for the samples and one product with every column. It is valid whatever the slopes are. So they are
improved on a few candidate columns only, and the bound is made in one pass over all columns. Columns with large scores
join the candidates.
"""

import torch
from torch import Tensor

from psfit.certificate.choose import make_newton
from psfit.certificate.data_relaxation import DataRelaxation, count_iterations
from psfit.certificate.dual import dual_bound, trivial_bound
from psfit.certificate.newton_relaxation import count_steps, serves
from psfit.certificate.wide_slopes import find_wide_slopes
from psfit.problem.instance import Instance

# The most rounds. A round that closes less than this share of the gap is the last.
ROUNDS = 4
WORTHWHILE = 0.02
PATIENCE = 1


def bound_by_candidates(inst: Instance, Z: Tensor, objective: float) -> tuple[Tensor, Tensor]:
    """A lower bound ``(1,)`` of one problem at its answer ``Z (n, c)``, and the scores behind it."""
    source = inst.source
    index = _find_used(inst, Z)
    eta = inst.restrict(index).source.matrix.mv(inst.pick_rows(Z, index).to(source.matrix.dtype))
    slopes = inst.problem.loss.gradient(eta, source.working_target)
    best, scores = dual_bound(inst, slopes, inst.domain)
    # A bound that stays below the one that needs no data is given up.
    floor, found = trivial_bound(inst), scores
    for number in range(ROUNDS):
        index, grown = _choose_candidates(inst, Z, found)
        if inst.watch.must_stop() or not grown:
            break
        slopes, part = _improve_slopes(inst.restrict(index), inst.pick_rows(Z, index), objective)
        Z = inst.fill_rows(part, index)
        value, found = dual_bound(inst, slopes, inst.domain)
        gain = float(value) - float(best)
        if gain > 0:
            best, scores = value, found
        hopeless = number >= PATIENCE and float(best) < floor
        if inst.grid.follow_first_rank(hopeless or not gain > WORTHWHILE * (objective - float(best))):
            break
    wide = None if inst.watch.must_stop() else find_wide_slopes(inst)
    if wide is not None:
        value, found = dual_bound(inst, wide, inst.domain)
        best, scores = (value, found) if float(value) > float(best) else (best, scores)
    return best, scores


def _find_used(inst: Instance, Z: Tensor) -> Tensor:
    """The features of the items with nonzero coefficients."""
    used = (Z[: inst.items.features] != 0).any(dim=1).nonzero().flatten()
    return inst.items.features_of(inst.items.items_of(used)) if inst.items.in_groups else used


def _improve_slopes(inst: Instance, Z: Tensor, objective: float) -> tuple[Tensor, Tensor]:
    """Slopes ``(m, c)`` that prove a good bound for a problem with few columns, and coefficients at the end."""
    if serves(inst):
        newton = make_newton(inst)
        (x,) = newton.bound(newton.root, newton.start(Z), objective, count_steps(inst)).state
        return newton.slopes(newton.samples.predict(x)), x.T
    relaxation = DataRelaxation(inst)
    state = relaxation.bound(relaxation.root, relaxation.start(Z), objective, count_iterations(inst)).state
    return state[1][0], state[0][0].double()


def _choose_candidates(inst: Instance, Z: Tensor, scores: Tensor) -> tuple[Tensor, bool]:
    """The features that `Z` uses, and others whose scores are among the largest; tell if there are any others.

    At most as many as memory allows.
    """
    by_feature, used = inst.items.by_feature(scores).amax(dim=1), _find_used(inst, Z)
    size = min(inst.sizes.column_room, inst.items.features, len(used) + inst.costs.first_candidates)
    one_each = scores.flatten() if inst.items.in_groups else by_feature
    least = one_each.topk(min(inst.problem.kappa[0], len(one_each))).values[-1]
    others = by_feature.index_fill(0, used, -torch.inf)
    ranked = others.topk(max(0, size - len(used))).values
    order = by_feature.index_fill(0, used, torch.inf).argsort(descending=True, stable=True)
    index = inst.items.take_first(order, len(used) + int((ranked > 0).sum()), 0)
    grown = bool((ranked >= least).any()) and len(index) > len(used)
    return index, inst.grid.follow_first_rank(grown)
