"""The certificate of an answer: how much better any other support could be, and which items are certain."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite

import torch
from torch import Tensor

from psfit.certificate import extraction
from psfit.certificate.candidates import bound_by_candidates
from psfit.certificate.choose import choose_relaxation
from psfit.certificate.dense_slopes import MOST_VARIABLES, DenseSlopes
from psfit.certificate.dual import gradient_bound, trivial_bound
from psfit.certificate.form_ascent import raise_bound
from psfit.certificate.form_bound import FormBound, Point
from psfit.certificate.newton_cases import serves_all_columns
from psfit.certificate.quadratic import LimitedForm
from psfit.certificate.relaxation import Bounds, Fit, Relaxation
from psfit.data.form_elimination import complete
from psfit.problem import Domain
from psfit.problem.instance import Instance

# A bound from a quadratic form is proved again from the data if rounding takes more than this share of its gap.
ROUNDING_SHARE = 0.01
# The iterations that a later answer adds, as a divisor of those for the first one.
LATER_SHARE = 3


@dataclass(frozen=True)
class Certificate:
    """No support has an objective below `lower`. Every support better than the answer's has all items `inside` and none
    of the items `outside`, two masks ``(size,)``.
    """

    lower: float
    inside: Tensor
    outside: Tensor


class Certifier:
    """Certificates for answers of one problem of an instance; what they share is made once.

    Passes over the data end when their budget is used up, or when the fit must stop. With some `patience` the budget is
    so many times as large. With `fit`, which minimises on a support, a relaxation that is not solved proves at least
    the optimum without a limit, if that is cheap.
    """

    def __init__(self, inst: Instance, problem: int, fit: Fit | None = None, patience: int = 1) -> None:
        self.inst = inst.single(problem)
        self.outputs = inst.items.outputs_of(problem)
        self.dense = None if fit is None else DenseSlopes(self.inst, fit)
        self.patience = patience
        self._bounds: Bounds | None = None

    def certify(self, Z: Tensor, objective: float, gap: float = 0.0) -> Certificate:
        """Bound the problem from an answer ``Z (n, c)`` with the given objective; stop at a relative `gap`."""
        inst, Z = self.inst, Z[:, self.outputs].double()
        domain = inst.domain
        enough = objective - gap * abs(objective) if isfinite(objective) else objective
        if inst.costs.uses_form:
            lower, domain = self._by_quadratic_form(Z[: inst.items.features], objective, enough, domain)
        elif inst.problem.loss.quadratic and inst.costs.tall_nodes and inst.costs.squares_fit:
            lower, domain = self._by_one_gradient(Z[: inst.items.features], objective, domain)
        elif inst.costs.uses_candidates and not serves_all_columns(inst):
            bound, scores = bound_by_candidates(inst, Z, objective)
            lower, domain = float(bound), domain.screen(scores, bound, objective)[0]
        else:
            bounds = self._by_data(Z, enough, domain)
            lower, domain = float(bounds.lower), domain.screen(bounds.scores, bounds.lower, objective)[0]
        # Numbers that overflow prove nothing.
        lower = min(max(trivial_bound(inst), lower if lower == lower else -torch.inf), objective)
        return Certificate(lower, domain.inside[0], domain.outside[0])

    @cached_property
    def _relaxation(self) -> tuple[Relaxation, int]:
        """The relaxation of the data, and how many steps it may take."""
        return choose_relaxation(self.inst)

    def _by_data(self, Z: Tensor, enough: float, domain: Domain) -> Bounds:
        """Bounds by passes over the data. They hold for all supports, so a later answer adds only a few iterations."""
        (relaxation, steps), known = self._relaxation, self._bounds
        if known is None:
            found = relaxation.bound(domain, relaxation.start(Z), enough, self.patience * steps)
            found = found if self.dense is None else self.dense.improve(found, domain, enough)
        elif float(known.lower) >= enough:
            found = known
        else:
            further = relaxation.bound(domain, known.state, enough, steps // LATER_SHARE)
            found = further if float(further.lower) > float(known.lower) else known
        self._bounds = found
        return found

    @cached_property
    def _limited(self) -> LimitedForm:
        return LimitedForm.of(self.inst)

    @cached_property
    def _extracted_by_nodes(self) -> float:
        return extraction.extract_by_nodes(self.inst)

    def _by_one_gradient(self, X: Tensor, objective: float, domain: Domain) -> tuple[float, Domain]:
        """From the nodes' own smallest eigenvalues and one gradient at the answer; no Gram matrix leaves its node."""
        extracted = torch.full_like(self.inst.ridge[: len(X)], self._extracted_by_nodes)
        bound, scores = gradient_bound(self.inst, X, extracted, domain)
        return float(bound), domain.screen(scores, bound, objective)[0]

    def _by_quadratic_form(self, X: Tensor, objective: float, enough: float, domain: Domain) -> tuple[float, Domain]:
        """A gradient at the answer; then at a better point of the pooled form; then without the decided items.

        The first bound that is good enough ends the work. Where rounding in the form takes too much of a bound, the
        data themselves prove it. Where a single place is left, all items are tried for it.
        """
        inst, limited = self.inst, self._limited
        if domain.box is not None or not domain.counts_only:
            return self._by_restricted_form(X, objective, enough, domain)
        if limited.kappa == 1 and not domain.decided:
            return _by_trying_all(limited, objective, domain)
        bound = FormBound(limited, limited.form.curvature.extracted)
        point = bound.at(X.T.contiguous(), domain)
        if point.lower < enough:
            point = self._raise(limited, bound, point, domain, objective, enough)
        lower, scores = point.lower, point.scores
        if lower < enough and point.is_spoiled(ROUNDING_SHARE, objective):
            proved, found = gradient_bound(inst, point.x.T, bound.extracted.unsqueeze(1), domain)
            lower, scores = (float(proved), found) if float(proved) > lower else (lower, scores)
        domain, _ = domain.screen(scores, scores.new_tensor([lower]), objective)
        free = domain.free[0]
        if lower >= enough or bool(free.all()):
            return lower, domain
        if not bool(free.any()):
            return max(lower, _by_last_support(limited, domain)), domain
        rest = limited.reduce(domain.inside[0], domain.outside[0])
        if rest.kappa == 1:
            least, tried = _by_trying_all(rest, objective, domain)
            return (least, tried) if least > lower else (lower, domain)
        return self._without_decided(rest, point.x, lower, objective, enough, domain)

    def _by_restricted_form(self, X: Tensor, objective: float, enough: float, domain: Domain) -> tuple[float, Domain]:
        """With bounds on coefficients, or with other rules for supports: items are taken out of the form at last."""
        limited, extracted = self._limited, self._limited.form.curvature.extracted
        bound = FormBound(limited, extracted)
        best = bound.at(X.T.contiguous(), domain)
        if best.lower < enough:
            best = self._raise(limited, bound, best, domain, objective, enough)
        lower, scores = best.lower, best.scores
        if lower < enough and best.is_spoiled(ROUNDING_SHARE, objective):
            proved, found = gradient_bound(self.inst, best.x.T, extracted.unsqueeze(1), domain)
            lower, scores = (float(proved), found) if float(proved) > lower else (lower, scores)
        domain, _ = domain.screen(scores, scores.new_tensor([lower]), objective)
        free = domain.free[0]
        if lower >= enough or bool(free.all()) or not bool(free.any()) or not domain.counts_only:
            return lower, domain
        # What is proved without bounds on the coefficients holds with them, too, and lets decided items be taken out.
        relaxed = replace(limited, domain=replace(limited.domain, box=None))
        rest = relaxed.reduce(domain.inside[0], domain.outside[0])
        return self._without_decided(rest, best.x, lower, objective, enough, domain)

    def _without_decided(
        self, rest: LimitedForm, x: Tensor, lower: float, objective: float, enough: float, domain: Domain
    ) -> tuple[float, Domain]:
        """From the form that is left without the decided items of the domain; `x` and `lower` are known from before."""
        bound, limit = FormBound(rest, rest.form.curvature.extracted), rest.domain
        point = bound.at(x[:, rest.rows] if rest.kappa > 0 else torch.zeros_like(bound.Q), limit)
        if rest.kappa > 0 and point.lower < enough:
            point = self._raise(rest, bound, point, limit, objective, enough)
        if point.lower < enough and point.is_spoiled(ROUNDING_SHARE, objective):
            proved, scores = self._by_gradient_without_decided(point.x.T, domain)
            if float(proved) > max(point.lower, lower):
                return float(proved), domain.screen(scores, proved, objective)[0]
        if point.lower <= lower:
            return lower, domain
        limit, _ = limit.screen(point.scores, point.scores.new_tensor([point.lower]), objective)
        inside, outside = domain.inside.clone(), domain.outside.clone()
        inside[0, rest.index[limit.inside[0]]] = True
        outside[0, rest.index[limit.outside[0]]] = True
        return point.lower, domain.decide(inside, outside)

    def _raise(
        self, limited: LimitedForm, bound: FormBound, start: Point, domain: Domain, objective: float, enough: float
    ) -> Point:
        """A point with a better bound by ascent; its bound is that of the optimum without a limit where this is better.

        That optimum itself would be a bad start for further ascent.
        """
        raised = raise_bound(limited, bound, start, domain, objective)
        if raised.lower >= enough or limited.form.size >= min(self.inst.samples, MOST_VARIABLES):
            return raised
        dense = bound.at_dense_optimum(domain)
        return replace(dense, x=raised.x) if dense.lower > raised.lower else raised

    def _by_gradient_without_decided(self, x: Tensor, domain: Domain) -> tuple[Tensor, Tensor]:
        """From one gradient at free items ``x`` and the best values of those inside, by a pass over the data.

        Items inside are an ordinary part of the convex problem. Rounding leaves a small gradient on them, and half of
        their ridge is kept to bound its effect. The other half joins the loss before curvature is extracted.
        """
        limited, form = self._limited, self._limited.form
        halved = limited.with_ridge(form.ridge / 2).reduce(domain.inside[0], domain.outside[0])
        inside, free = (limited.items.spread_rows(part[0]) for part in (domain.inside, domain.free))
        extracted = torch.where(inside, -form.ridge / 2, 0.0)
        extracted[free] = halved.form.curvature.extracted
        return gradient_bound(self.inst, complete(form, inside, free, x), extracted.unsqueeze(1), domain)


def _by_last_support(limited: LimitedForm, domain: Domain) -> float:
    """The least value on the items inside, where all are decided: no other support is better than the answer's."""
    value, error = limited.minimise(domain.inside[0])
    return value - error


def _by_trying_all(limited: LimitedForm, objective: float, domain: Domain) -> tuple[float, Domain]:
    """The bound of a form with a single place left. Only items that reach the objective remain possible."""
    values = limited.single_optima()
    inside, outside = domain.inside.clone(), domain.outside.clone()
    outside[0, limited.index[values > objective]] = True
    possible = limited.index[values <= objective]
    if len(possible) == 1:
        inside[0, possible] = True
    return float(values.min()), domain.decide(inside, outside)
