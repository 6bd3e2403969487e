"""Exact mode: take the items that the bounds decide out of the problem, then branch on the others."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.certificate import extraction
from psfit.certificate.branch import Search, Standing, Tree
from psfit.certificate.data_relaxation import DataRelaxation
from psfit.certificate.dual import trivial_bound
from psfit.certificate.newton_relaxation import NewtonRelaxation, count_steps, serves
from psfit.certificate.quadratic import LimitedForm
from psfit.certificate.relaxation import Bounds, Fit, QuadraticRelaxation
from psfit.certificate.twins import find_twins
from psfit.problem import Items, are_few
from psfit.problem.instance import Instance

# Iterations of the root's relaxation: by passes over the data, where it is solved once, and on a quadratic form, where
# it is solved again in every round.
PASS_ITERATIONS = 300
ROOT_ITERATIONS = 30
# The gap of a node's relaxation, as a share of what its bound misses, at which it is branched on.
ROUGH = 0.05
# Improving the extraction: the most rounds, the most items for which it saves time, and the share of the gap that a
# round must close to be followed by another.
ROUNDS = 10
MOST_ITEMS = 800
WORTHWHILE = 0.03
# Twins are used if what they take from the bound is at most this share of the gap.
MOST_RISE = 0.01
# Up to this many features the quadratic form is used even if the data are smaller than it.
MOST_FEATURES = 4096


@dataclass(frozen=True)
class Proof:
    """No support is better than `lower`. `support` ``(size,)`` is a better one than the answer's, with the objective
    `upper`; it is None if none was found. `inside` and `outside` are the items that were decided before branching.
    """

    lower: float
    upper: float
    support: Tensor | None
    inside: Tensor
    outside: Tensor
    explored: int


Stop = Callable[[Standing], bool]


def prove(
    inst: Instance,
    problem: int,
    Z: Tensor,
    objective: float,
    fit: Fit,
    gap_tol: float,
    stop: Stop,
    most_open: float,
) -> Proof:
    """Search for a better support than that of ``Z (n, c)`` until the gap is below `gap_tol` or `stop` returns True.

    Parameters
    ----------
    fit : callable
        The least objective on a support ``(size,)``, and the slopes ``(m, c')`` of the samples' losses there.
    stop : callable
        Called with the progress between batches of tree nodes; the search ends when it returns True.
    most_open : float
        About how many tree nodes may wait at the same time.
    """
    single = inst.single(problem)
    Z = Z[:, inst.items.outputs_of(problem)].double()
    if has_small_form(single):
        X = Z[: single.items.features]
        proof = _prove_quadratic(LimitedForm.of(single), X, objective, gap_tol, stop, most_open)
    else:
        relaxation, steps = relax(single, fit)
        proof = _prove_by_passes(relaxation, steps, Z, objective, gap_tol, stop, most_open)
    return replace(proof, lower=min(max(trivial_bound(single), proof.lower), proof.upper))


def has_small_form(inst: Instance) -> bool:
    """Whether a problem is proved by its quadratic form."""
    small = inst.costs.squares_fit and (inst.costs.tall or inst.source.matrix.shape[1] <= MOST_FEATURES)
    return inst.problem.loss.quadratic and (small or inst.costs.uses_form)


def _prove_quadratic(
    limited: LimitedForm, X: Tensor, objective: float, gap_tol: float, stop: Stop, most_open: float
) -> Proof:
    """Bound, take out the decided items, improve the extraction; repeat; then branch."""
    inside, outside = limited.domain.inside[0].clone(), limited.domain.outside[0].clone()
    if limited.domain.decided:
        kept = ~outside if limited.is_restricted else ~(inside | outside)
        X = X[limited.items.spread_rows(kept)]
        limited = limited.reduce(inside, outside)
    extracted, root = limited.form.curvature.extracted, -float("inf")
    for k in range(ROUNDS):
        relaxation = QuadraticRelaxation(limited, extracted)
        bounds = relaxation.bound(relaxation.root, relaxation.start(X), objective, ROOT_ITERATIONS)
        gain, root = float(bounds.lower) - root, max(root, float(bounds.lower))
        domain, _ = relaxation.root.screen(bounds.scores, bounds.lower, objective)
        kept = ~domain.outside[0] if limited.is_restricted else domain.free[0]
        keep = limited.items.spread_rows(kept)
        X, slope = bounds.state[0][0][:, keep].T, slope_of(bounds, limited.items, keep)
        inside[limited.index[domain.inside[0]]] = True
        outside[limited.index[domain.outside[0]]] = True
        decided = not bool(keep.all())
        if decided:
            limited, extracted = limited.reduce(domain.inside[0], domain.outside[0]), extracted[keep]
        closed = root >= objective - gap_tol * abs(objective) or not limited.has_choice
        if closed or stop(Standing(objective, root, 0, 1)):
            break
        can_improve = limited.form.size <= MOST_ITEMS and bool(slope.any())
        if not decided and (gain < WORTHWHILE * (objective - root) or not can_improve):
            break
        if can_improve and bool(limited.form.curvature.extracted.any()):
            extracted = extracted + 1.5 / (k + 4) * (improve_extraction(limited, slope) - extracted)
        extracted = extraction.make_safe(limited.form.curvature, extracted)
    if not limited.has_choice:
        tree = _solve_single_support(limited, objective)
    else:
        if decided:
            relaxation = QuadraticRelaxation(limited, extracted)
            bounds = relaxation.bound(relaxation.root, relaxation.start(X), objective, ROOT_ITERATIONS)
        tree = Search(relaxation, objective, gap_tol, most_open).run(relaxation.root, bounds, stop)
    support = None
    if tree.support is not None:
        support = inside.clone()
        support[limited.index[tree.support]] = True
    return Proof(max(tree.lower, root), tree.upper, support, inside, outside, tree.explored)


def _solve_single_support(limited: LimitedForm, objective: float) -> Tree:
    """A form without choices has a single support."""
    chosen = torch.full((limited.size,), limited.kappa > 0, dtype=torch.bool, device=limited.index.device)
    if limited.domain.box is None:
        value, error = limited.minimise(chosen)
    else:
        relaxation = QuadraticRelaxation(limited, torch.zeros_like(limited.form.ridge))
        value, error = (float(part) for part in relaxation.optima(chosen.unsqueeze(0), None, objective))
    return Tree(min(value - error, objective), min(value, objective), chosen if value < objective else None, 1)


def relax(inst: Instance, fit: Fit) -> tuple[NewtonRelaxation | DataRelaxation, int]:
    """The relaxation of a problem without a quadratic form, and how many steps its root may take."""
    if serves(inst):
        return NewtonRelaxation(inst, ROUGH, fit), count_steps(inst)
    return DataRelaxation(inst, fit), PASS_ITERATIONS


def _prove_by_passes(
    relaxation: NewtonRelaxation | DataRelaxation,
    steps: int,
    Z: Tensor,
    objective: float,
    gap_tol: float,
    stop: Stop,
    most_open: float,
) -> Proof:
    """Branch with bounds from the data; where supports are few, prove each of them."""
    root = relaxation.root
    if root.weights is None and root.heredity is None and are_few(root.items.size, relaxation.kappa):
        tree = Search(relaxation, objective, gap_tol).try_all(stop)
        return Proof(tree.lower, tree.upper, tree.support, root.inside[0], root.outside[0], tree.explored)
    bounds = relaxation.bound(root, relaxation.start(Z), objective, steps).without_nan()
    label, rise = find_labels(relaxation, objective, gap_tol)
    domain, _ = root.screen(bounds.scores, bounds.lower, objective)
    lower, kept = float(bounds.lower), (~domain.outside[0]).nonzero().flatten()
    if isinstance(relaxation, NewtonRelaxation) and relaxation.kappa < len(kept) < root.items.size:
        # Without the columns that no better support has, every node costs less.
        relaxation, start = relaxation.restrict(kept, bounds.state)
        root = relaxation.root.decide(domain.inside[:, kept], domain.outside[:, kept])
        bounds = relaxation.bound(root, start, objective, steps).without_nan()
    else:
        kept = torch.arange(root.items.size, device=relaxation.device)
    twins = None if label is None else label[kept]
    goal = gap_tol - rise / abs(objective) if rise else gap_tol
    tree = Search(relaxation, objective, goal, most_open, twins).run(root, bounds, stop)
    support = None
    if tree.support is not None:
        support = torch.zeros_like(domain.inside[0])
        support[kept[tree.support]] = True
    proved = max(tree.lower - rise, lower)
    return Proof(proved, tree.upper, support, domain.inside[0], domain.outside[0], tree.explored)


def find_labels(
    relaxation: NewtonRelaxation | DataRelaxation, objective: float, gap_tol: float
) -> tuple[Tensor | None, float]:
    """The labels of twins, and what a bound loses by them; none if that is not much less than the gap."""
    # A twin may have other bounds.
    free = relaxation.root.counts_only and relaxation.root.box is None
    if isinstance(relaxation, NewtonRelaxation) and free:
        twins = find_twins(relaxation.samples, objective)
        if twins is not None and twins.rise <= MOST_RISE * gap_tol * abs(objective):
            return twins.label, twins.rise
    return None, 0.0


def improve_extraction(limited: LimitedForm, slope: Tensor) -> Tensor:
    """Nearly the best curvature ``(n,)`` to extract for a linear gain; the same for all rows of an item."""
    ideal = extraction.improve(limited.form.curvature, slope)
    return limited.items.spread_rows(limited.items.least_rows(ideal))


def slope_of(bounds: Bounds, items: Items, keep: Tensor) -> Tensor:
    """How the bound grows with the curvature extracted for each row that is kept; rows of an item share its growth."""
    shares = items.spread_rows(bounds.shares[0])[keep]
    squares = items.mean_rows(bounds.state[0][0].square().sum(dim=0))[keep]
    slope = torch.where(shares > 0, squares / shares.clamp(min=1e-12) - squares, 0.0).clamp(min=0)
    # Every item gets a little, because an item with slope zero may matter in the next round.
    return slope + 1e-3 * slope.mean()
