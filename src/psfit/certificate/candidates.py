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
from psfit.certificate.newton_cases import count_steps, serves
from psfit.certificate.wide_slopes import find_wide_slopes
from psfit.problem.instance import Instance

# The most rounds. A round that closes less than this share of the gap is the last.
ROUNDS = 4
WORTHWHILE = 0.02
PATIENCE = 1
# Until the candidates are known, slopes may lack this share of what their bound misses. The last slopes need a pass
# over all columns, which is only made in memory.
ROUGH = 0.05

# A bound, and the scores behind it.
Proof = tuple[Tensor, Tensor]


def bound_by_candidates(inst: Instance, Z: Tensor, objective: float) -> Proof:
    """A lower bound ``(1,)`` of one problem at its answer ``Z (n, c)``, and the scores behind it."""
    source = inst.source
    index = _find_used(inst, Z)
    eta = inst.restrict(index).source.matrix.mv(inst.pick_rows(Z, index).to(source.matrix.dtype))
    slopes = inst.problem.loss.gradient(eta, source.working_target)
    best = found = dual_bound(inst, slopes, inst.domain)
    # A bound that stays below the one that needs no data is given up.
    floor, some = trivial_bound(inst), None
    for number in range(ROUNDS):
        chosen, grown = _choose_candidates(inst, Z, found[1])
        if inst.watch.must_stop() or not grown:
            break
        index, some = chosen, inst.restrict(chosen)
        rough = 0.0 if source.matrix.streamed else ROUGH
        slopes, part = _improve_slopes(some, inst.pick_rows(Z, index), objective, rough)
        Z, found = inst.fill_rows(part, index), dual_bound(inst, slopes, inst.domain)
        gain = float(found[0]) - float(best[0])
        best = _take_higher(best, found)
        hopeless = number >= PATIENCE and float(best[0]) < floor
        if inst.grid.follow_first_rank(hopeless or not gain > WORTHWHILE * (objective - float(best[0]))):
            break
    if some is not None and serves(some) and not source.matrix.streamed and not inst.watch.must_stop():
        slopes, part = _improve_slopes(some, inst.pick_rows(Z, index), objective)
        Z, best = inst.fill_rows(part, index), _take_higher(best, dual_bound(inst, slopes, inst.domain))
    return _add_wide_slopes(inst, Z, best)


def _add_wide_slopes(inst: Instance, Z: Tensor, best: Proof) -> Proof:
    """The bound, raised to the optimum without a limit if it is below; that is not above the objective at `Z`."""
    used = _find_used(inst, Z)
    dense = float(inst.restrict(used).objective(inst.pick_rows(Z, used)))
    if inst.grid.follow_first_rank(float(best[0]) >= dense) or inst.watch.must_stop():
        return best
    wide = find_wide_slopes(inst)
    return best if wide is None else _take_higher(best, dual_bound(inst, wide, inst.domain))


def _take_higher(first: Proof, second: Proof) -> Proof:
    return second if float(second[0]) > float(first[0]) else first


def _find_used(inst: Instance, Z: Tensor) -> Tensor:
    """The features of the items with nonzero coefficients."""
    used = (Z[: inst.items.features] != 0).any(dim=1).nonzero().flatten()
    return inst.items.features_of(inst.items.items_of(used)) if inst.items.in_groups else used


def _improve_slopes(inst: Instance, Z: Tensor, objective: float, rough: float = 0.0) -> tuple[Tensor, Tensor]:
    """Slopes ``(m, c)`` that prove a good bound for a problem with few columns, and coefficients at the end.

    Second-order steps may leave a share `rough` of what the bound misses.
    """
    if serves(inst):
        newton = make_newton(inst)
        eta, x = newton.find_slopes(newton.start(Z), objective, count_steps(inst), rough)
        return newton.slopes(eta), x.T
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
