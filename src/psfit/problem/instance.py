"""A problem posed on data, in internal coordinates: the input of the iteration, search and proof. `pose` makes it."""

from dataclasses import dataclass, replace
from functools import cached_property
from math import isinf

import torch
from torch import Tensor

from psfit.comm import Grid
from psfit.comm.watch import Watch
from psfit.data import Affine, BlockColumns, DesignMatrix, NodeSplit, Source
from psfit.data.quadratic_form import QuadraticForm
from psfit.problem.box import CoefficientBox
from psfit.problem.coordinates import Coordinates
from psfit.problem.costs import Costs, Sizes
from psfit.problem.domain import Domain
from psfit.problem.items import Items
from psfit.problem.problem import Problem

# The ridge of a coordinate at an infinite gamma, as a share of the curvature of the loss in it.
LEAST_RIDGE = 1e-12


@dataclass(frozen=True)
class Instance:
    """A `Problem` on a `Source` over a `Grid`, in internal coordinates.

    Parameters
    ----------
    source : Source
        This rank's samples; the matrix is standardised and ends with the intercept's constant column, if any.
    unit_ridge : Tensor (n, 1), float64
        Weight of ``x_j^2 / 2`` in the objective at a gamma of one; zero for the intercept.
    mean_target : float
        Weighted mean of the targets.
    watch : Watch
        The clock of the fit, requests to stop it, and reports of its progress.
    kept : Tensor (p,) of integers, optional
        The numbers of these features among all, if some were left out; and how many there were in `all_features`.
    box : CoefficientBox, optional
        Bounds on the coefficients of all outputs.
    extra : int
        How many items are in every support without being counted by the user's limit; the limits here count all items.
    seed : int
        Of the random numbers of searches.
    """

    problem: Problem
    grid: Grid
    source: Source
    items: Items
    unit_ridge: Tensor
    coordinates: Coordinates
    sizes: Sizes
    mean_target: float
    watch: Watch
    kept: Tensor | None = None
    all_features: int = 0
    box: CoefficientBox | None = None
    extra: int = 0
    seed: int = 0

    @cached_property
    def ridge(self) -> Tensor:
        """Weight ``(n, 1)`` of ``x_j^2 / 2`` in the objective; zero for the intercept.

        An infinite gamma leaves a tiny share of the curvature that the loss has in one coordinate. Without it, columns
        that depend on each other would have coefficients that rounding alone decides, and no bound could be proved. A
        finite gamma is the user's, however large it is; its ridge is only kept from being zero.
        """
        least = torch.finfo(torch.float64).tiny
        if isinf(self.problem.gamma):
            curvature = self.problem.loss.typical_curvature(self.mean_target, self.source.outputs)
            least = LEAST_RIDGE * curvature * self.coordinates.column_norm**2
        return torch.where(self.unit_ridge > 0, (self.unit_ridge / self.problem.gamma).clamp(min=least), 0.0)

    @property
    def samples(self) -> int:
        """Samples on all nodes together."""
        return self.sizes.samples

    @property
    def resolution(self) -> float:
        """The relative accuracy of objectives: smaller differences are rounding in the precision of the data."""
        return 100 * torch.finfo(self.source.matrix.dtype).eps

    @cached_property
    def kappa(self) -> Tensor:
        """The limits, ``(problems, 1)``."""
        return torch.tensor(self.problem.kappa, device=self.source.matrix.device).unsqueeze(1)

    @cached_property
    def item_counts(self) -> Tensor:
        """About how many items the limits allow, ``(problems, 1)``."""
        counts = [self.items.count_within(limit) for limit in self.problem.kappa]
        return torch.tensor(counts, device=self.source.matrix.device).unsqueeze(1)

    @cached_property
    def domain(self) -> Domain:
        """The supports allowed to each problem, before any item is decided."""
        return self._make_domain(self.items, self.kappa)

    def domain_of(self, problem: int) -> Domain:
        """The supports allowed to one of the problems; its items are those of its own outputs."""
        outputs = self.items.outputs_of(problem)
        own = replace(self.items, outputs=len(outputs))
        domain = self._make_domain(own, self.problem.kappa[problem])
        return replace(domain, box=None if self.box is None else self.box.select_outputs(outputs))

    def domain_at(self, limits: Tensor) -> Domain:
        """The supports allowed to an instance of one problem for each of the limits ``(B, 1)``."""
        return self._make_domain(self.items, limits)

    def _make_domain(self, items: Items, limit: Tensor | int) -> Domain:
        """The problem's domain; without the features that were left out."""
        if self.kept is None:
            return replace(self.problem.domain(items, limit, self.ridge.device), box=self.box)
        whole = self.problem.items(self.all_features, items.outputs)
        domain = self.problem.domain(whole, limit, self.ridge.device)
        return replace(domain.restrict(whole.items_of(self.kept)), items=items, box=self.box)

    @cached_property
    def costs(self) -> Costs:
        """What fits in memory, and which way costs less."""
        source, known = self.source, self.source.forms.known is not None
        return Costs(
            self.problem,
            self.grid,
            source.matrix,
            self.items.features,
            self.sizes,
            known,
            len(self.items.outputs_of(0)),
            max(1, round(1 / self.items.per_feature)),
            int(self.domain.weigh(self.domain.inside).max()),
        )

    @cached_property
    def split(self) -> NodeSplit:
        """The rows of this rank dealt to the nodes it hosts."""
        return self.source.split(len(self.grid.nodes.hosted), self.costs.products_in_double)

    @cached_property
    def form(self) -> QuadraticForm:
        """The squared loss of all nodes together and the ridge, for fits and the search.

        It comes from products in float64 where these are made anyway, else from products in the data's precision.
        """
        exact = self.costs.form_known or self.costs.products_in_double
        form = self._pool_forms(torch.float64 if exact else self.source.matrix.dtype)
        return form.with_outputs(self.source.picked).with_ridge(self.ridge[:, 0])

    @cached_property
    def search_form(self) -> QuadraticForm:
        """The same with its whole Hessian, which all problems share."""
        return self.form.with_hessian()

    @cached_property
    def proof_form(self) -> QuadraticForm:
        """The same for the features alone, minimised over the intercept, with bounds on all errors."""
        form = self._pool_forms(torch.float64)
        if self.items.free:
            form = self.source.forms.without_last(form)
        return form.with_outputs(self.source.picked).with_ridge(self.ridge[: self.items.features, 0])

    def _pool_forms(self, dtype: torch.dtype) -> QuadraticForm:
        """The form of all targets from products in some precision; made once for all problems and ridges.

        Nodes that are not tall need no matrix of their own. Then only the sum is made.
        """
        bounds = self.split.bounds if self.split.tall else (0, self.source.matrix.shape[0])
        norm = float(self.coordinates.rounding_norm.max())
        in_double = self.costs.products_in_double
        return self.source.forms.pool(bounds, dtype, in_double, self.grid.nodes, self.samples, norm)

    def to_user(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients ``(p, c)`` and intercepts ``(c,)`` in the user's units, exactly between the user's bounds."""
        (coef, intercept), constraints = self.coordinates.to_user(Z), self.problem.constraints
        for given, clip in ((constraints.lower, torch.maximum), (constraints.upper, torch.minimum)):
            if given is not None:
                coef = clip(coef, torch.as_tensor(given, dtype=coef.dtype, device=coef.device))
        return coef, intercept

    def objective(self, Z: Tensor) -> Tensor:
        """Objective of each problem ``(problems,)`` at coefficients ``Z (n, c)``, one pass over the data."""
        source = self.source
        eta = source.matrix.mv(Z.to(source.matrix.dtype))
        fit = (source.weight * self.problem.loss.value(eta.double(), source.target)).sum(dim=0)
        penalty = 0.5 * (self.ridge * Z.double().square()).sum(dim=0)
        return self.items.sum_outputs(self.grid.nodes.total(fit)) + self.items.sum_outputs(penalty)

    def slope_at_zero(self) -> Tensor:
        """The gradient ``(n, c)`` of this rank's losses at coefficients of zero."""
        source, loss = self.source, self.problem.loss
        if self.costs.form_known:
            return -self.split.Q.sum(dim=0)
        slope = source.weight * loss.gradient(source.weight.new_zeros(source.target.shape), source.target)
        return source.matrix.rmv(slope.to(source.matrix.dtype))

    def restrict(self, features: Tensor) -> "Instance":
        """The same problem with some of the features, by sorted indices, in the same coordinates."""
        keep = self._with_free(features)
        matrix: DesignMatrix = self.source.matrix.columns(keep)
        if self.grid.blocks.comm.size > 1:
            matrix = self._deal_columns(matrix, len(features))
        return replace(
            self,
            source=self.source.choose_columns(matrix, keep),
            items=self.items.restrict(features),
            unit_ridge=self.unit_ridge[keep],
            coordinates=self.coordinates.restrict(features, keep),
            kept=features if self.kept is None else self.kept[features],
            all_features=self.all_features if self.kept is not None else self.items.features,
            box=None if self.box is None else self.box.select_rows(features),
        )

    def _deal_columns(self, matrix: DesignMatrix, features: int) -> DesignMatrix:
        """Deal the columns of a restricted matrix to the ranks of the node again."""
        assert isinstance(matrix, Affine)
        columns = self.grid.columns(matrix.shape[1])
        at = slice(min(columns.start, features), min(columns.stop, features))
        part = BlockColumns(matrix.base.columns(at), at, features, self.grid.blocks)
        return Affine(part, matrix.shift, matrix.scale, matrix.constant)

    def pick_rows(self, Z: Tensor, features: Tensor) -> Tensor:
        """Coefficients of some features, and of the intercept, from those of all features."""
        return Z[self._with_free(features)]

    def fill_rows(self, Z: Tensor, features: Tensor) -> Tensor:
        """Coefficients of all features from those of some; the others are zero."""
        whole = Z.new_zeros(self.source.matrix.shape[1], Z.shape[1])
        whole[self._with_free(features)] = Z
        return whole

    def _with_free(self, features: Tensor) -> Tensor:
        n = self.source.matrix.shape[1]
        return torch.cat([features, torch.arange(self.items.features, n, device=features.device)])

    def copy_problems(self, copies: int) -> "Instance":
        """The same problems `copies` times, as further columns that share the data and its factors."""
        return self if copies == 1 else self.with_limits(self.problem.kappa * copies)

    def with_limits(self, kappa: tuple[int, ...]) -> "Instance":
        """Copies of the same problems, one for each of the given limits."""
        copies = len(kappa) // self.items.problems
        return self._with_outputs(list(range(self.source.outputs)) * copies, kappa)

    def single(self, problem: int) -> "Instance":
        """One of the problems as an instance of its own."""
        outputs = self.items.outputs_of(problem)
        if len(outputs) == self.items.outputs:
            return self
        return self._with_outputs(outputs, self.problem.kappa[problem : problem + 1])

    def _with_outputs(self, outputs: list[int], kappa: tuple[int, ...]) -> "Instance":
        """Some of the targets, or copies of them, with these limits."""
        return replace(
            self,
            problem=replace(self.problem, kappa=kappa),
            source=self.source.with_outputs(outputs),
            items=replace(self.items, outputs=len(outputs)),
            coordinates=self.coordinates.with_outputs(outputs),
            box=None if self.box is None else self.box.select_outputs(outputs),
        )

    def at_gamma(self, gamma: float) -> "Instance":
        """The same problems with another ridge; the data, and the forms made from them, are shared."""
        return replace(self, problem=replace(self.problem, gamma=gamma))
