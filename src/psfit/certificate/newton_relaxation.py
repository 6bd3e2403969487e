"""The relaxation of smooth losses of one output by second-order steps, for many tree nodes at once.

At the points of a batch the losses are replaced by their second-order models, whose relaxations are solved without the
data (`node_models.py`). Their minima are the next points. Where the objective is higher there, the step is halved. The
slopes of the samples at a point prove a bound (`dual.py`), wherever the steps stand. A node is done when the
objective of its relaxation and the dual value differ by little, or when its bound is good enough.
"""

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from psfit.certificate.dual import prove_slopes
from psfit.certificate.newton_cases import STEPS
from psfit.certificate.node_models import ModelMaker, count_own
from psfit.certificate.node_points import Points, Samples
from psfit.certificate.relaxation import Bounds, Fit, Relaxation
from psfit.certificate.removal_costs import estimate_costs
from psfit.certificate.step_models import Kind, Maker
from psfit.certificate.support_models import SupportModelMaker
from psfit.problem import Domain
from psfit.problem.instance import Instance

# Relative gaps of nodes and of fits.
SOLVED, GROUPS_SOLVED, EXACT = 3e-5, 1e-4, 1e-11
# How many tree nodes are explored together, if their predictors are at most so many numbers; the steps of each. The
# predictors of all children may have this share of the memory of a GPU. On a CPU, nodes that share their second
# derivatives are fewer: what suits many of them leaves worse bounds.
WIDTH = {"cpu": 256, "cuda": 8192}
SHARED_WIDTH = 64
MOST_PREDICTORS = 1 << 22
PREDICTOR_SHARE = 1 / 24
CHILD_STEPS = 8
# Models are solved to this share of the gap of their nodes.
MODEL_SHARE = 0.05
# The relative gap of a fit at which another method is tried.
UNPROVED = 1e-8
# What it costs to balance slopes, as a share of what their bound has in reserve, at which a node can be closed.
BALANCED = 1e-3
# New second derivatives follow a step that left more than this share of the gaps, or was shortened.
POOR = 0.25
# The first so many models need few digits, because they belong to points far from the end.
ROUGH_MODELS = 4
# How often a step that raises the objective is halved, and how much a value may rise by rounding.
HALVINGS = 8
ROUNDING = 1e-13
# In the models every curvature is at least a share of the typical one. The share becomes larger after a step that was
# too long, because the loss was flatter at its start than on its way, and smaller after other steps.
LEAST_SHARE, FIRST_SHARE, SHARE_FACTOR = 1e-6, 1e-3, 10.0


class NewtonRelaxation(Relaxation):
    """The relaxation of an instance of one problem.

    A node whose bound cannot become good enough is done when its gap is at most a share `rough` of what it misses.
    Where second-order steps leave a gap on a support, `fit` minimises on it.
    """

    # They know how coefficients and predictors lie in a row.
    samples_kind: ClassVar[type[Samples]] = Samples
    support_maker_kind: ClassVar[type[SupportModelMaker]] = SupportModelMaker
    # Whether a coefficient belongs to one column alone. Then columns can be left out, and equal ones are twins.
    by_columns: ClassVar[bool] = True

    def __init__(self, inst: Instance, rough: float = 0.0, fit: Fit | None = None) -> None:
        self.inst, self.rough, self.fit = inst, rough, fit
        self.root, self.kappa, self.device = inst.domain, inst.problem.kappa[0], inst.ridge.device
        self.child_iterations = CHILD_STEPS
        self.samples = self.samples_kind(inst)
        self.maker = self.make_maker()
        self.width = self._count_nodes()
        self.typical_curvature = inst.problem.loss.typical_curvature(inst.mean_target, 1)

    def make_maker(self) -> Maker[Any]:
        """What makes the models of free items."""
        return ModelMaker(self.samples)

    def _count_nodes(self) -> int:
        """How many tree nodes are explored together."""
        kind, rows = self.device.type, self.inst.sizes.most_rows
        if kind == "cpu":
            alike = max(SHARED_WIDTH, count_own(self.samples))
            return max(1, min(WIDTH[kind], alike, MOST_PREDICTORS // rows))
        # Every node has two children.
        numbers = torch.cuda.get_device_properties(self.device).total_memory / (2 * torch.float64.itemsize)
        return max(1, min(WIDTH[kind], int(PREDICTOR_SHARE * numbers) // rows))

    @property
    def _solved(self) -> float:
        """The relative gap of nodes that are done."""
        return GROUPS_SOLVED if self.inst.items.in_groups else SOLVED

    def restrict(self, features: Tensor) -> "NewtonRelaxation":
        """The relaxation with some of the features, by sorted indices."""
        whole = self.fit

        def fit(support: Tensor) -> tuple[float, Tensor]:
            assert whole is not None
            return whole(torch.zeros_like(self.root.inside[0]).index_copy(0, features, support))

        return type(self)(self.inst.restrict(features), self.rough, None if whole is None else fit)

    def pick_features(self, state: tuple[Tensor, ...], features: Tensor) -> tuple[Tensor, ...]:
        """The state of nodes with some of the features."""
        return (self.inst.pick_rows(state[0].T, features).T,)

    def start(self, Z: Tensor) -> tuple[Tensor, ...]:
        return (Z.T.double(),)

    def restart(self, points: Tensor) -> tuple[Tensor, ...]:
        return (points,)

    def bound(self, domain: Domain, state: tuple[Tensor, ...], enough: Tensor | float, iterations: int) -> Bounds:
        points, models = self.minimise(self.maker, domain, state[0], enough, iterations, self._solved, self.rough)
        found = prove_slopes(self.inst, self.slopes(points.eta), domain, self.samples.multiplied)
        shares = self.samples.shares(domain, points.x)
        lower, scores, shares = self.inst.grid.agree(found.lower, found.scores, shares)
        costs = None
        if self.rough > 0 and self.root.items.width == 1:
            # Only nodes that may be branched on need them.
            x, g = points.x[:, : self.samples.p], points.g[:, : self.samples.p]
            costs = estimate_costs(models.H, models.which, x, g, self.samples.ridge, shares, found.scores, domain)
            (costs,) = self.inst.grid.agree(costs)
        return Bounds(lower, scores, shares, (points.x,), costs, points.value)

    def find_slopes(self, state: tuple[Tensor, ...], enough: float, steps: int, rough: float) -> tuple[Tensor, Tensor]:
        """Predictors of the root whose slopes prove a good bound, and its coefficients; see `minimise`."""
        points = self.minimise(self.maker, self.root, state[0], enough, steps, self._solved, rough)[0]
        return points.eta, points.x

    def bound_children(self, domain: Domain, state: tuple[Tensor, ...], enough: float) -> Bounds:
        """The children of a node start from its point, and share its second derivatives in their first step."""
        return self.bound(domain, state, enough, self.child_iterations)

    def slopes(self, eta: Tensor) -> Tensor:
        """The slopes of the samples ``(m, B)`` at predictors ``(B, m)``."""
        return self.samples.slopes(eta).T

    def minimise(
        self,
        maker: Maker[Kind],
        domain: Domain,
        x: Tensor,
        enough: Tensor | float,
        steps: int,
        solved: float = SOLVED,
        rough: float = 0.0,
    ) -> tuple[Points, Kind]:
        """The points with the best bounds after at most so many steps, and the last models.

        The starts ``x (k, n)`` may be fewer than the rows of the domain: then they are those of all parts of k rows. A
        row is done at a relative gap `solved`, or if its gap is at most a share `rough` of what its bound misses.
        """
        rows = len(domain.left)
        admitted = self.samples.admit(domain, x.repeat(rows // len(x), 1))
        eta = self.samples.predict(admitted)
        damping = torch.full_like(eta[:, :1], LEAST_SHARE * self.typical_curvature)
        models, made = maker.make(self.samples.bend(eta[: len(x)], damping[: len(x)]), rows, rough=True), 1
        point = self.samples.place(domain, admitted, eta, models.corners)
        best = point.without_predictors()
        wanted = torch.as_tensor(enough, dtype=torch.float64, device=self.device).expand(rows)
        poor = False
        for k in range(steps):
            index = self._open(point, best, wanted, solved, rough)
            if not len(index) or (k and self.inst.watch.must_stop()):
                break
            part, some = point.select(index), domain.select(index)
            if poor:
                bend = self.samples.bend(part.eta, damping[index])
                models = models.put(index, maker.make(bend, len(index), index, made < ROUGH_MODELS))
                made += 1
            gap = (part.value - best.bound[index]).clamp(min=0)
            tolerance = MODEL_SHARE * torch.maximum(gap, solved * part.value.abs())
            own = models.select(index)
            ahead = self.inst.grid.agree(own.minimise(self.samples, part, some, tolerance))[0]
            moved, short = self._step(some, part, ahead, own.corners)
            damping[index] = self._damp(damping[index], short)
            point = point.overwrite(index, moved)
            best = best.take_better(point.without_predictors())
            left = (moved.value - best.bound[index]).sum()
            poor = self.inst.grid.follow_first_rank(bool(short.any() | (left > POOR * gap.sum())))
        return replace(best, eta=self.samples.predict(best.x)), models

    def _open(self, point: Points, best: Points, wanted: Tensor, solved: float, rough: float) -> Tensor:
        """The rows of nodes that are not done yet."""
        gap = point.value - best.bound
        missing = rough * (wanted - point.value).clamp(min=0)
        small = gap <= torch.maximum(solved * point.value.abs(), missing.nan_to_num(posinf=0.0))
        # Slopes that are far from balanced prove less than they seem to.
        above = (best.bound >= wanted) & (best.imbalance <= BALANCED * (best.bound - wanted))
        done = small | above | ~point.value.isfinite()
        return self.inst.grid.agree(done)[0].logical_not().nonzero().flatten()

    def _damp(self, damping: Tensor, short: Tensor) -> Tensor:
        """The least curvature ``(B, 1)`` of the next models, after steps of which some were ``short (B,)``."""
        typical = self.typical_curvature
        more = (SHARE_FACTOR * damping).clamp(FIRST_SHARE * typical, typical)
        less = (damping / SHARE_FACTOR).clamp(min=LEAST_SHARE * typical)
        return torch.where(short.unsqueeze(1), more, less)

    def _step(self, domain: Domain, part: Points, ahead: Tensor, corner: Tensor | None) -> tuple[Points, Tensor]:
        """Points on the way to those ahead where the objective is lower, and which steps were shortened ``(B,)``."""
        moved = full = self.samples.place(domain, ahead, self.samples.predict(ahead), corner)
        length, short = 1.0, torch.zeros_like(domain.inside[:, 0])
        most = part.value + ROUNDING * part.value.abs()
        for _ in range(HALVINGS):
            high = self.inst.grid.agree(~(moved.value <= most))[0].nonzero().flatten()
            if not len(high):
                return moved, short
            short[high], length = True, length / 2
            x = part.x[high] + length * (ahead[high] - part.x[high])
            eta = part.eta[high] + length * (full.eta[high] - part.eta[high])
            shorter = self.samples.place(domain.select(high), x, eta, None if corner is None else corner[high])
            moved = moved.put(high, shorter)
        worse = self.inst.grid.agree(~(moved.value <= most))[0].nonzero().flatten()
        return moved.put(worse, part.select(worse)), short

    def optima(self, supports: Tensor, state: tuple[Tensor, ...] | None, enough: float) -> tuple[Tensor, Tensor]:
        """The errors are what the slopes cannot prove. So they are right even if a fit is inaccurate."""
        domain = self.root.decide(supports, ~supports)
        x = self.samples.ridge.new_zeros(len(supports), self.samples.n) if state is None else state[0]
        points = self._fit(supports, domain, x, enough)
        lower = self._prove(points, domain)
        # Bounds that only seemed to be high enough.
        rows = self.inst.grid.agree((points.bound >= enough) & ~(lower >= enough))[0].nonzero().flatten()
        if len(rows):
            some = domain.select(rows)
            again = self._fit(supports[rows], some, points.x[rows], float("inf"))
            points, lower = points.put(rows, again), lower.index_copy(0, rows, self._prove(again, some))
        values = self.inst.grid.agree(self.measure(points))[0]
        unproved = (~(values - lower <= UNPROVED * values.abs()) & ~(lower >= enough)).nonzero().flatten().tolist()
        for row in unproved if self.fit is not None else []:
            if self.inst.watch.must_stop():
                break
            values[row], lower[row] = self._fit_exactly(supports[row], values[row], lower[row])
        return values, (values - lower).clamp(min=0).nan_to_num(nan=torch.inf)

    def measure(self, points: Points) -> Tensor:
        """The objectives ``(B,)`` at points of decided supports."""
        return points.value

    def _fit(self, supports: Tensor, domain: Domain, x: Tensor, enough: float) -> Points:
        """The minimisers on the supports, unless they are proved to be at least `enough`."""
        if not self.samples.fits_dense:
            return self.minimise(self.maker, domain, x, enough, STEPS, EXACT)[0]
        return self.minimise(self.support_maker_kind(self.samples, supports), domain, x, enough, STEPS, EXACT)[0]

    def _prove(self, points: Points, domain: Domain) -> Tensor:
        """The bounds ``(B,)`` that the slopes at the points prove."""
        found = prove_slopes(self.inst, self.slopes(points.eta), domain, self.samples.multiplied)
        return self.inst.grid.agree(found.lower)[0]

    def _fit_exactly(self, support: Tensor, value: Tensor, lower: Tensor) -> tuple[Tensor, Tensor]:
        """A better value and bound of a support by a method for columns that are nearly dependent."""
        assert self.fit is not None
        found, slopes = self.fit(support)
        chosen = support.unsqueeze(0)
        proved = self.inst.grid.agree(prove_slopes(self.inst, slopes, self.root.decide(chosen, ~chosen)).lower)[0]
        return value.clamp(max=found), torch.maximum(lower.nan_to_num(nan=-torch.inf), proved[0])
