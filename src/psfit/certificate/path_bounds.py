"""Lower bounds for many limits at once: all kappas of a path are rows of one batch and share every pass."""

from functools import cached_property

import torch
from torch import Tensor

from psfit.certificate.choose import choose_relaxation
from psfit.certificate.dense_slopes import DenseSlopes
from psfit.certificate.dual import gradient_bound, trivial_bound
from psfit.certificate.form_ascent import ITERATIONS
from psfit.certificate.quadratic import LimitedForm
from psfit.certificate.relaxation import Fit, QuadraticRelaxation, Relaxation
from psfit.problem import Domain
from psfit.problem.instance import Instance


class PathBounds:
    """Bounds for the limits of one problem; what they need of the data is computed once."""

    def __init__(self, inst: Instance, gap: float, fit: Fit, patience: int = 1) -> None:
        self.inst, self.gap, self.patience = inst, gap, patience
        self.dense = DenseSlopes(inst, fit)

    def __call__(self, kappas: Tensor, Z: Tensor, objectives: Tensor) -> Tensor:
        """A bound ``(K,)`` for each limit ``kappas (K,)``, from its answers ``Z (K, n, c)``.

        A relative `gap` between a bound and its objective ``(K,)`` is good enough.
        """
        inst = self.inst
        domain = inst.domain_at(kappas.unsqueeze(1))
        enough = objectives - self.gap * objectives.abs()
        if inst.costs.uses_form and inst.items.separate:
            bounds = self._by_quadratic_form(kappas, Z[:, : inst.items.features, 0].T, enough, objectives, domain)
        else:
            relaxation, steps = self._relaxation
            parts = []
            # As many limits together as memory allows.
            for rows in torch.arange(len(kappas), device=kappas.device).split(relaxation.width):
                starts = [relaxation.start(part) for part in Z[rows]]
                state = tuple(torch.cat(column) for column in zip(*starts, strict=True))
                some = domain.select(rows)
                found = relaxation.bound(some, state, enough[rows], self.patience * steps)
                parts.append(self.dense.improve(found, some, enough[rows]).lower)
            bounds = torch.cat(parts)
        least = torch.full_like(bounds, trivial_bound(inst))
        return torch.minimum(torch.maximum(least, bounds.nan_to_num(nan=-torch.inf)), objectives)

    @cached_property
    def _relaxation(self) -> tuple[Relaxation, int]:
        """The relaxation of the data, and how many steps it may take."""
        return choose_relaxation(self.inst)

    @cached_property
    def _limited(self) -> LimitedForm:
        return LimitedForm.of(self.inst)

    def _by_quadratic_form(
        self, kappas: Tensor, X: Tensor, enough: Tensor, objectives: Tensor, domain: Domain
    ) -> Tensor:
        """One gradient at every answer; then at better points, for limits whose bounds are not good enough."""
        inst, form = self.inst, self._limited.form
        extracted = form.curvature.extracted
        many = inst.with_limits(tuple(kappas.tolist()))
        bounds = gradient_bound(many, X, extracted.unsqueeze(1), domain)[0]
        bounds = torch.where(kappas == 1, torch.maximum(bounds, self._limited.single_optima().min()), bounds)
        short = (bounds < enough).nonzero().flatten()
        if not len(short):
            return bounds
        relaxation = QuadraticRelaxation(self._limited, extracted)
        states = [relaxation.start(X[:, k : k + 1]) for k in short.tolist()]
        state = tuple(torch.cat(column) for column in zip(*states, strict=True))
        some = domain.select(short)
        points = relaxation.ascend(some, state, objectives[short], ITERATIONS)[0]
        part = inst.with_limits(tuple(kappas[short].tolist()))
        better = gradient_bound(part, points[:, 0].T, extracted.unsqueeze(1), some)[0]
        return bounds.index_put((short,), torch.maximum(bounds[short], better))
