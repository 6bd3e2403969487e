"""The relaxation of a loss with kinks by second-order steps on smooth losses that come closer and closer to it.

The slopes of the smooth loss are slopes of the loss itself, so what they prove holds for it. A parabola of some width
stands in place of every kink. It takes at most half its width, times the weight of a sample, from the bound.
"""

from dataclasses import replace

import torch
from torch import Tensor

from psfit.certificate.newton_relaxation import NewtonRelaxation
from psfit.certificate.node_points import Points
from psfit.certificate.relaxation import Bounds, Fit
from psfit.problem import Domain
from psfit.problem.instance import Instance

# The first and the least width, and the factor from one to the next.
FIRST_WIDTH, LEAST_WIDTH, NARROWER = 1.0, 1e-6, 0.25
# The relaxation is solved at this relative gap.
SOLVED = 1e-4
# Every width may take a share of the steps. A few widths in a row that bring next to nothing are the last.
STAGES, LEAST_STEPS = 2, 8
STALLED, PATIENCE = 0.01, 2


class KinkRelaxation(NewtonRelaxation):
    """The relaxation of an instance of one problem whose loss has an envelope."""

    def __init__(self, inst: Instance, rough: float = 0.0, fit: Fit | None = None, width: float = FIRST_WIDTH) -> None:
        super().__init__(inst, rough, fit)
        self.set_width(width)

    def set_width(self, width: float) -> None:
        """Make further steps with parabolas of this width."""
        smooth = self.inst.problem.loss.envelope(width)
        assert smooth is not None
        self.envelope_width, self.samples.loss = width, smooth
        self.typical_curvature = smooth.typical_curvature(self.inst.mean_target, 1)

    def restrict(self, features: Tensor) -> "KinkRelaxation":
        part = super().restrict(features)
        assert isinstance(part, KinkRelaxation)
        part.set_width(self.envelope_width)
        return part

    def bound(self, domain: Domain, state: tuple[Tensor, ...], enough: Tensor | float, iterations: int) -> Bounds:
        """Narrower and narrower parabolas, until the objective itself is close to the bound, or nothing is gained."""
        steps, idle = max(LEAST_STEPS, iterations // STAGES), 0
        best = super().bound(domain, state, enough, steps)
        while True:
            value = self._relax(domain, best.state[0])
            missing = value - best.lower
            done = (missing <= SOLVED * value.abs()) | (best.lower >= torch.as_tensor(enough, device=self.device))
            over = bool(done.all()) or self.envelope_width <= LEAST_WIDTH or idle > PATIENCE
            if self.inst.grid.follow_first_rank(over) or self.inst.watch.must_stop():
                return replace(best, value=value)
            self.set_width(NARROWER * self.envelope_width)
            found = super().bound(domain, best.state, enough, steps)
            gain = (found.lower - best.lower).clamp(min=0)
            idle = idle + 1 if bool((gain <= STALLED * missing).all()) else 0
            best = found.take_better(best)

    def find_slopes(self, state: tuple[Tensor, ...], enough: float, steps: int, rough: float) -> tuple[Tensor, Tensor]:
        (x,) = self.bound(self.root, state, enough, steps).state
        return self.samples.predict(x), x

    def bound_children(self, domain: Domain, state: tuple[Tensor, ...], enough: float) -> Bounds:
        return super().bound(domain, state, enough, self.child_iterations)

    def _relax(self, domain: Domain, x: Tensor) -> Tensor:
        """The objective ``(B,)`` of the relaxation at coefficients ``x (B, n)``."""
        eta = self.samples.predict(x)
        losses = self.samples.weigh(self.inst.problem.loss.value(eta, self.samples.target)).sum(dim=1)
        return self.inst.grid.nodes.total(losses) + self.samples.perspective(domain, x)

    def measure(self, points: Points) -> Tensor:
        x = points.x[:, : self.samples.p]
        eta = self.samples.predict(points.x)
        losses = self.samples.weigh(self.inst.problem.loss.value(eta, self.samples.target)).sum(dim=1)
        return self.inst.grid.nodes.total(losses) + 0.5 * (self.samples.ridge * x.square()).sum(dim=1)
