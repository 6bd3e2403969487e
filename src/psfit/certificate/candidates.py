"""A bound where columns are too many or too slow to read: its dual point comes from a few candidate columns.

A bound needs slopes for the samples and one product with every column. It is valid whatever the slopes are. So they are
improved on a few candidate columns only, and the bound is made in one pass over all columns. Columns with large scores
join the candidates.
"""

import torch
from torch import Tensor

from psfit.certificate.data_relaxation import DataRelaxation, count_iterations
from psfit.certificate.dual import dual_bound
from psfit.certificate.model_ascent import raise_by_models, serves
from psfit.problem.instance import Instance

ROUNDS = 5
# Another round follows only if this one closed at least this share of the gap.
WORTHWHILE = 0.02


def bound_by_candidates(inst: Instance, Z: Tensor, objective: float) -> tuple[Tensor, Tensor]:
    """A lower bound ``(1,)`` of one problem at its answer ``Z (n, c)``, and the scores behind it."""
    source = inst.source
    support = (Z[: inst.items.features] != 0).any(dim=1).nonzero().flatten()
    eta = inst.restrict(support).source.matrix.mv(inst.pick_rows(Z, support).to(source.matrix.dtype))
    slopes = inst.problem.loss.gradient(eta, source.working_target)
    best, scores = dual_bound(inst, slopes, inst.domain)
    index, found = support, scores
    for _ in range(ROUNDS):
        larger = _add_candidates(inst, index, found)
        if inst.watch.must_stop() or len(larger) == len(index):
            break
        index = larger
        slopes = _improve_slopes(inst.restrict(index), inst.pick_rows(Z, index), objective)
        value, found = dual_bound(inst, slopes, inst.domain)
        gain = float(value) - float(best)
        if gain > 0:
            best, scores = value, found
        if not gain > WORTHWHILE * (objective - float(best)):
            break
    return best, scores


def _improve_slopes(inst: Instance, Z: Tensor, objective: float) -> Tensor:
    """Slopes ``(m, c)`` that prove a good bound for a problem with few columns."""
    if serves(inst):
        return raise_by_models(inst, Z, objective, inst.domain).slopes
    relaxation = DataRelaxation(inst)
    return relaxation.bound(relaxation.root, relaxation.start(Z), objective, count_iterations(inst)).state[1][0]


def _add_candidates(inst: Instance, index: Tensor, scores: Tensor) -> Tensor:
    """The features in `index` and the others with the largest scores, as many as memory allows."""
    by_feature = inst.items.by_feature(scores).amax(dim=1)
    by_feature[index] = torch.inf
    size = min(inst.sizes.column_room, inst.items.features, len(index) + inst.costs.first_candidates)
    if size <= len(index):
        return index
    return by_feature.topk(size).indices.sort().values
