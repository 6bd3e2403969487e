"""The certificate of an answer: how much better any other support could be, and which items are beyond doubt."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.certificate import extraction
from psfit.certificate.branch import screen
from psfit.certificate.candidates import bound_by_candidates
from psfit.certificate.data_relaxation import DataRelaxation
from psfit.certificate.dual import gradient_bound, trivial_bound
from psfit.certificate.perspective import Fixed
from psfit.certificate.quadratic import Quadratic, pooled
from psfit.certificate.relaxation import QuadraticRelaxation
from psfit.instance import Instance

# Iterations that a certificate may spend: each is a small product, or two passes over the data.
SMALL_BUDGET = 100
PASS_BUDGET = 60


@dataclass(frozen=True)
class Certificate:
    """No support has an objective below `lower`; every one better than the answer's has the items `inside` and none of
    the items `outside`, two masks ``(size,)``.
    """

    lower: float
    inside: Tensor
    outside: Tensor


def certify(
    inst: Instance, problem: int, Z: Tensor, objective: float, late: Callable[[], bool] = lambda: False
) -> Certificate:
    """Bound one problem of an instance from its answer ``Z (n, c)`` with the given objective.

    Passes over the data end with their budget, or when `late` says so.
    """
    single, Z = inst.single(problem), Z[:, inst.layout.outputs_of(problem)].double()
    fixed = Fixed.nothing(single.layout.size, single.problem.kappa[0], inst.ridge.device)
    if single.problem.loss.quadratic and single.tall and single.squares_fit:
        certified = _by_one_gradient if inst.grid.blocks.size > 1 else _by_quadratic_form
        lower, fixed = certified(single, Z[: single.layout.features], objective, fixed)
    elif single.selective:
        bound, scores = bound_by_candidates(single, Z, objective, PASS_BUDGET, late)
        lower, fixed = float(bound), screen(fixed, scores, bound, objective)[0]
    else:
        relaxation = DataRelaxation(single, late=late)
        bounds = relaxation.bound(fixed, relaxation.start(Z), objective, PASS_BUDGET)
        lower, fixed = float(bounds.lower), screen(fixed, bounds.scores, bounds.lower, objective)[0]
    # Numbers that overflow prove nothing.
    lower = min(max(trivial_bound(single), lower if lower == lower else -torch.inf), objective)
    return Certificate(lower, fixed.inside[0], fixed.outside[0])


def _by_one_gradient(inst: Instance, X: Tensor, objective: float, fixed: Fixed) -> tuple[float, Fixed]:
    """Nothing is pooled: the nodes' own smallest eigenvalues and one gradient at the answer."""
    extracted = torch.full_like(inst.ridge[: len(X)], extraction.unpooled(inst))
    bound, scores = gradient_bound(inst, X, extracted, fixed)
    return float(bound), screen(fixed, scores, bound, objective)[0]


def _by_quadratic_form(inst: Instance, X: Tensor, objective: float, fixed: Fixed) -> tuple[float, Fixed]:
    """A better point from the pooled form, the bound there from the data; and once more without what that decided."""
    form = pooled(inst)
    extracted = extraction.uniform(form)
    X = _ascended(form, extracted, X, objective)
    bound, scores = gradient_bound(inst, X, extracted.unsqueeze(1), fixed)
    fixed, _ = screen(fixed, scores, bound, objective)
    inside, free = fixed.inside[0], fixed.free[0]
    if not bool(free.any()) or bool(free.all()):
        return float(bound), fixed
    # Items inside are an ordinary part of the convex problem. Half of their ridge stays what pays for the gradient that
    # rounding leaves on them, the other half joins the loss; what can be extracted then depends on the others only.
    rest = form.reduced(inside, fixed.outside[0])
    halved = replace(form, ridge=form.ridge / 2).reduced(inside, fixed.outside[0])
    extracted = torch.where(inside, -form.ridge / 2, 0.0)
    extracted[free] = extraction.uniform(halved)
    x = rest.Q * 0 if rest.kappa <= 0 else _ascended(rest, extracted[free], X[free], objective)
    again, scores = gradient_bound(inst, form.completed(inside, free, x), extracted.unsqueeze(1), fixed)
    fixed, _ = screen(fixed, scores, again, objective)
    return max(float(bound), float(again)), fixed


def _ascended(form: Quadratic, extracted: Tensor, X: Tensor, objective: float) -> Tensor:
    relaxation = QuadraticRelaxation(form, extracted)
    root = Fixed.nothing(form.size, form.kappa, X.device)
    return relaxation.ascend(root, relaxation.start(X), objective, SMALL_BUDGET)[0][0].T
