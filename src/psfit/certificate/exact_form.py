"""Exact mode for the squared loss: take the items that bounds decide out of its quadratic form, then branch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.certificate import extraction
from psfit.certificate.branch import Search, Standing, Tree, TreeState
from psfit.certificate.form_bound import FormBound
from psfit.certificate.quadratic import LimitedForm
from psfit.certificate.relaxation import Bounds, QuadraticRelaxation
from psfit.certificate.tree_record import Proof, Request, Stop, TreeRecord, find_support, restore
from psfit.problem import Items

# Iterations of the root's relaxation, which is solved again in every round.
ROOT_ITERATIONS = 30
# Improving the extraction: the most rounds, the most items for which it saves time (the optimum without a limit does,
# too), and the share of the gap that a round must close to be followed by another.
ROUNDS = 10
MOST_ITEMS = 800
WORTHWHILE = 0.03


@dataclass(frozen=True)
class Reduced:
    """A form without the items ``inside (size,)`` and ``outside (size,)`` of the whole problem, bounded by `root`.

    Where supports are left to choose from, the relaxation is the form's, and its `bounds` may be known.
    """

    limited: LimitedForm
    relaxation: QuadraticRelaxation
    inside: Tensor
    outside: Tensor
    root: float
    bounds: Bounds | None = None


def prove_form(limited: LimitedForm, X: Tensor, request: Request) -> Proof:
    """Search for a better support than that of ``X (n, c)`` by the quadratic form of all features."""
    answer, objective = limited.items.pack(X)[0] != 0, request.objective
    record = request.load()
    reduced = _reduce(limited, X, request) if record is None else _restore_form(limited, record)
    limited, inside, outside, root = reduced.limited, reduced.inside, reduced.outside, reduced.root
    if not limited.has_choice:
        tree = _solve_single_support(limited, objective)
    else:
        relaxation = reduced.relaxation
        search = Search(relaxation, objective, request.gap_tol, request.most_open)
        start = objective if record is None else record.start

        def begin(stop: Stop) -> Tree:
            if record is not None:
                return search.resume(restore(record, objective, limited.index), stop)
            assert reduced.bounds is not None
            return search.run(relaxation.root, reduced.bounds, stop)

        def describe(state: TreeState) -> TreeRecord:
            support = find_support(inside, limited.index, state.best)
            best = answer if support is None else support
            return TreeRecord(start, root, 0.0, inside, outside, best, relaxation.form_bound.extracted, state)

        tree = request.explore(search, begin, describe)
    support = find_support(inside, limited.index, tree.support)
    return Proof(max(tree.lower, root), tree.upper, support, inside, outside, tree.explored)


def _restore_form(limited: LimitedForm, record: TreeRecord) -> Reduced:
    """The form of a record."""
    if bool((record.inside | record.outside).any()):
        limited = limited.reduce(record.inside, record.outside)
    # The form was reduced in other steps then, so that its roundings differ.
    extracted = extraction.make_safe(limited.form.curvature, record.extracted)
    return Reduced(limited, QuadraticRelaxation(limited, extracted), record.inside, record.outside, record.root)


def _reduce(limited: LimitedForm, X: Tensor, request: Request) -> Reduced:
    """Bound, take out the decided items, improve the extraction; repeat."""
    objective, gap_tol = request.objective, request.gap_tol
    inside, outside = limited.domain.inside[0].clone(), limited.domain.outside[0].clone()
    if limited.domain.decided:
        kept = ~outside if limited.is_restricted else ~(inside | outside)
        X = X[limited.items.spread_rows(kept)]
        limited = limited.reduce(inside, outside)
    extracted, root = limited.form.curvature.extracted, -float("inf")
    dense = -float("inf")
    if limited.form.size <= MOST_ITEMS:
        dense = FormBound(limited, extracted).at_dense_optimum(limited.domain).lower
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
        if closed or request.stop(Standing(objective, root, 0, 1)):
            break
        can_improve = limited.form.size <= MOST_ITEMS and bool(slope.any())
        if not decided and (gain < WORTHWHILE * (objective - root) or not can_improve):
            break
        if can_improve and bool(limited.form.curvature.extracted.any()):
            extracted = extracted + 1.5 / (k + 4) * (improve_extraction(limited, slope) - extracted)
        extracted = extraction.make_safe(limited.form.curvature, extracted)
    if decided and limited.has_choice:
        relaxation = QuadraticRelaxation(limited, extracted)
        bounds = relaxation.bound(relaxation.root, relaxation.start(X), objective, ROOT_ITERATIONS)
    return Reduced(limited, relaxation, inside, outside, max(root, dense), bounds)


def _solve_single_support(limited: LimitedForm, objective: float) -> Tree:
    """A form without choices has a single support."""
    chosen = torch.full((limited.size,), limited.kappa > 0, dtype=torch.bool, device=limited.index.device)
    if limited.domain.box is None:
        value, error = limited.minimise(chosen)
    else:
        relaxation = QuadraticRelaxation(limited, torch.zeros_like(limited.form.ridge))
        value, error = (float(part) for part in relaxation.optima(chosen.unsqueeze(0), None, objective))
    return Tree(min(value - error, objective), min(value, objective), chosen if value < objective else None, 1)


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
