"""Exact mode: take the items that the bounds decide out of the problem, then branch on the others."""

from dataclasses import replace

import torch
from torch import Tensor

from psfit.certificate.branch import Search, Tree, TreeState
from psfit.certificate.choose import make_joint, make_newton
from psfit.certificate.data_relaxation import DataRelaxation
from psfit.certificate.dual import trivial_bound
from psfit.certificate.exact_form import prove_form
from psfit.certificate.joint_relaxation import serves_jointly
from psfit.certificate.newton_cases import count_steps, serves
from psfit.certificate.newton_relaxation import NewtonRelaxation
from psfit.certificate.quadratic import LimitedForm
from psfit.certificate.relaxation import Fit, Relaxation
from psfit.certificate.tree_record import Proof, Request, Stop, TreeRecord, find_support, restore
from psfit.certificate.twins import find_twins
from psfit.problem import are_few
from psfit.problem.instance import Instance

# Iterations of the root's relaxation by passes over the data.
PASS_ITERATIONS = 300
# The gap of a node's relaxation, as a share of what its bound misses, at which it is branched on.
ROUGH = 0.05
# Twins are used if what they take from the bound is at most this share of the gap.
MOST_RISE = 0.01
# Up to this many features the quadratic form is used even if the data are smaller than it.
MOST_FEATURES = 4096


def prove(inst: Instance, problem: int, Z: Tensor, fit: Fit, request: Request) -> Proof:
    """Search for a better support than that of ``Z (n, c)``.

    Parameters
    ----------
    fit : callable
        The least objective on a support ``(size,)``, and the slopes ``(m, c')`` of the samples' losses there.
    """
    single = inst.single(problem)
    Z = Z[:, inst.items.outputs_of(problem)].double()
    if has_small_form(single):
        proof = prove_form(LimitedForm.of(single), Z[: single.items.features], request)
    else:
        relaxation, steps = relax(single, fit)
        proof = _prove_by_passes(relaxation, steps, Z, request)
    return replace(proof, lower=min(max(trivial_bound(single), proof.lower), proof.upper))


def has_small_form(inst: Instance) -> bool:
    """Whether a problem is proved by its quadratic form."""
    small = inst.costs.squares_fit and (inst.costs.tall or inst.source.matrix.shape[1] <= MOST_FEATURES)
    return inst.problem.loss.quadratic and (small or inst.costs.uses_form)


def relax(inst: Instance, fit: Fit) -> tuple[Relaxation, int]:
    """The relaxation of a problem without a quadratic form, and how many steps its root may take."""
    if serves(inst):
        return make_newton(inst, ROUGH, fit), count_steps(inst)
    if serves_jointly(inst):
        return make_joint(inst, ROUGH, fit)
    return DataRelaxation(inst, fit), PASS_ITERATIONS


def _prove_by_passes(relaxation: Relaxation, steps: int, Z: Tensor, request: Request) -> Proof:
    """Branch with bounds from the data; where supports are few, prove each of them."""
    root, objective, gap_tol = relaxation.root, request.objective, request.gap_tol
    if root.weights is None and root.heredity is None and are_few(root.items.size, relaxation.kappa):
        tree = Search(relaxation, objective, gap_tol).try_all(request.stop)
        return Proof(tree.lower, tree.upper, tree.support, root.inside[0], root.outside[0], tree.explored)
    record, bounds, answer = request.load(), None, root.items.pack(Z)[0] != 0
    if record is None:
        bounds = relaxation.bound(root, relaxation.start(Z), objective, steps).without_nan()
        domain, _ = root.screen(bounds.scores, bounds.lower, objective)
        start, lower, least_rise = objective, float(bounds.lower), 0.0
    else:
        domain = root.decide(record.inside.unsqueeze(0), record.outside.unsqueeze(0))
        start, lower, least_rise = record.start, record.root, record.rise
    label, rise = find_labels(relaxation, start, gap_tol)
    rise = max(rise, least_rise)
    kept = (~domain.outside[0]).nonzero().flatten()
    fewer = relaxation.kappa < len(kept) < root.items.size
    if isinstance(relaxation, NewtonRelaxation) and relaxation.by_columns and fewer:
        # Without the columns that no better support has, every node costs less.
        whole, relaxation = relaxation, relaxation.restrict(kept)
        root = relaxation.root.decide(domain.inside[:, kept], domain.outside[:, kept])
        if bounds is not None:
            bounds = relaxation.bound(root, whole.pick_features(bounds.state, kept), objective, steps).without_nan()
    else:
        kept = torch.arange(root.items.size, device=relaxation.device)
    goal = gap_tol - rise / abs(objective) if rise else gap_tol
    search = Search(relaxation, objective, goal, request.most_open, None if label is None else label[kept])

    def begin(stop: Stop) -> Tree:
        if bounds is not None:
            return search.run(root, bounds, stop)
        assert record is not None
        return search.resume(restore(record, objective, kept), stop)

    def describe(state: TreeState) -> TreeRecord:
        support = find_support(torch.zeros_like(answer), kept, state.best)
        best = answer if support is None else support
        return TreeRecord(start, lower, rise, domain.inside[0], domain.outside[0], best, Z.new_zeros(0), state)

    tree = request.explore(search, begin, describe)
    support = find_support(torch.zeros_like(answer), kept, tree.support)
    return Proof(max(tree.lower - rise, lower), tree.upper, support, domain.inside[0], domain.outside[0], tree.explored)


def find_labels(relaxation: Relaxation, objective: float, gap_tol: float) -> tuple[Tensor | None, float]:
    """The labels of twins, and what a bound loses by them; none if that is not much less than the gap."""
    # A twin may have other bounds.
    free = relaxation.root.counts_only and relaxation.root.box is None
    if isinstance(relaxation, NewtonRelaxation) and relaxation.by_columns and free:
        twins = find_twins(relaxation.samples, objective)
        if twins is not None and twins.rise <= MOST_RISE * gap_tol * abs(objective):
            return twins.label, twins.rise
    return None, 0.0
