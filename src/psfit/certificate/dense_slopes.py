"""The bound that the optimum without any limit proves, for relaxations that a budget has left unsolved.

Its slopes prove at least that optimum, because a conjugate with a limit is at most the one without.
"""

from dataclasses import replace

import torch
from torch import Tensor

from psfit.certificate.dual import prove_slopes
from psfit.certificate.relaxation import Bounds, Fit
from psfit.certificate.wide_slopes import find_wide_slopes
from psfit.problem import Domain
from psfit.problem.instance import Instance

# A relaxation is not solved if its own objective is above its bound by more than this share.
UNSOLVED = 1e-4
# With more variables, a fit of all of them would take longer than the search.
MOST_VARIABLES = 1024


class DenseSlopes:
    """The slopes of one problem at its optimum without a limit; they are computed when they are needed, once."""

    def __init__(self, inst: Instance, fit: Fit) -> None:
        self.inst, self.fit = inst, fit
        self._slopes: Tensor | None = None

    def improve(self, bounds: Bounds, domain: Domain, enough: Tensor | float) -> Bounds:
        """The bounds, higher where a relaxation is not solved and the optimum without a limit proves more."""
        inst, lower, scores = self.inst, bounds.lower.clone(), bounds.scores.clone()
        if bounds.value is None or inst.source.matrix.shape[1] * inst.source.outputs > MOST_VARIABLES:
            return bounds
        proved = lower.nan_to_num(nan=-torch.inf)
        unsolved = (bounds.value - proved > UNSOLVED * bounds.value.abs()) & (proved < enough)
        if bounds.dense is not None:
            # The optimum without a limit is not above the objective at any point.
            unsolved = unsolved & (bounds.dense > proved)
        rows = inst.grid.agree(unsolved)[0].nonzero().flatten().tolist()
        if not rows or inst.watch.must_stop():
            return bounds
        if self._slopes is None:
            self._slopes = self._find_slopes()
        for row in rows:
            found = prove_slopes(inst, self._slopes, domain.select(torch.tensor([row], device=lower.device)))
            if float(found.lower) > float(proved[row]):
                lower[row], scores[row] = found.lower[0], found.scores[0]
        return replace(bounds, lower=lower, scores=scores)

    def _find_slopes(self) -> Tensor:
        """The slopes at the optimum without a limit: from as many variables as samples, where these are fewer."""
        inst = self.inst
        wide = find_wide_slopes(inst) if inst.items.in_groups and inst.box is None else None
        if wide is not None:
            return wide
        return self.fit(torch.ones(inst.items.size, dtype=torch.bool, device=inst.ridge.device))[1]
