"""A problem posed on data: the coordinates in which everything below `solve` works.

The limit on nonzeros does not care for the scale of a column, but penalties and tolerances do. So each column is
divided by its standard deviation (about zero without an intercept) and, when an intercept absorbs the means, centred.
No number below depends on the units of the columns then, except the ridge of those who want it to. Both are implicit
and exact: the ridge becomes a weight per coordinate and the objective keeps its value. Targets of a loss of residuals
are centred as well, so that a large mean does not use up the digits in which they differ.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from psfit.comm import Grid
from psfit.comm.watch import Watch
from psfit.data import Affine, DesignMatrix, NodeSplit, Source, Spread
from psfit.data.quadratic_form import QuadraticForm
from psfit.data.ranges import products_lose_digits, require_moderate_columns, require_moderate_samples
from psfit.data.raw_form import RawForm
from psfit.problem.domain import Domain
from psfit.problem.items import Items
from psfit.problem.problem import Problem

# Numbers that a rank's square matrices over columns (or samples) may hold: 1 GiB in float64.
MOST_NUMBERS = 1 << 27
REFERENCE_ROWS = 256
# With so many columns for each row a Gram matrix is still no larger than a few copies of the data. A search for a
# support makes at least so many models, n / kappa of which cost as much as a Gram matrix if they are made by passes.
MOST_WIDE = 4
SEARCH_MODELS = 25
# Compute capabilities of the GPUs made for double precision: A100, H100 and H200, B200.
FAST_DOUBLE = ((8, 0), (9, 0), (10, 0))


@dataclass(frozen=True)
class Instance:
    """A `Problem` on a `Source` over a `Grid`, in internal coordinates.

    Parameters
    ----------
    source : Source
        This rank's samples; the matrix is standardised and ends with the intercept's constant column, if any.
    samples : int
        Samples on all nodes together.
    ridge : Tensor (n, 1), float64
        Weight of ``x_j^2 / 2`` in the objective; zero for the intercept.
    shift, scale : Tensor (p,), float64
        What was subtracted from each column, and what it was divided by then: infinity if it is constant.
    level : Tensor (c,), float64
        What was subtracted from the targets of each output.
    constant : float
        The value of the intercept's column.
    column_norm : float
        The norm that all columns have in these coordinates.
    mean_target : float
        Weighted mean of the targets.
    rounding_norm : Tensor (n, 1), float64
        The norms of the numbers that sums over samples are made of: those of the columns, and more where means are
        taken out of sums instead of entries.
    node_rows, most_rows : int
        The most samples of one node, and the most that lie on one rank.
    column_room : int
        How many columns every rank could hold in memory.
    watch : Watch
        The clock of the fit, requests to stop it, and reports of its progress.
    """

    problem: Problem
    grid: Grid
    source: Source
    items: Items
    samples: int
    ridge: Tensor
    shift: Tensor
    scale: Tensor
    level: Tensor
    constant: float
    column_norm: float
    mean_target: float
    rounding_norm: Tensor
    node_rows: int
    most_rows: int
    column_room: int
    watch: Watch

    @property
    def resolution(self) -> float:
        """What objectives can resolve: smaller relative differences are rounding of the data's own precision."""
        return 100 * torch.finfo(self.source.matrix.dtype).eps

    @property
    def tall(self) -> bool:
        """Whether all nodes together have as many rows as columns: the sum of their Gram matrices can be regular."""
        return self.samples >= self.source.matrix.shape[1]

    @property
    def tall_nodes(self) -> bool:
        """Whether some node alone has as many rows as columns."""
        return self.node_rows >= self.source.matrix.shape[1]

    @property
    def squares_fit(self) -> bool:
        """Whether a rank can hold square matrices over the columns, one for each of its nodes."""
        return _squares_fit(self.grid, self.source.matrix.shape[1])

    @property
    def pooled(self) -> bool:
        """Whether the problem is known by its normal equations, which are sums over all nodes.

        Tall nodes have Gram matrices of their own anyway; of others only the sum is made.
        """
        if self.source.forms.known is not None:
            return True
        if not self.tall or self.source.matrix.streamed or not self._can_pool:
            return False
        return self.squares_fit if self.tall_nodes else True

    @property
    def gram_at_hand(self) -> bool:
        """Whether the nodes' own steps need Gram matrices, so that nothing is lost by asking for their sum."""
        return self.pooled and (self.source.forms.known is not None or self.tall_nodes)

    @property
    def pooled_for_search(self) -> bool:
        """Whether the search for a good support goes by the normal equations.

        With more columns than rows they prove nothing, but with a large limit they cost less than the search's models
        by passes over the data.
        """
        most = min(MOST_WIDE * self.samples, SEARCH_MODELS * max(self.problem.kappa))
        pays = not self.source.matrix.streamed and self.source.matrix.shape[1] <= most
        return self.pooled or (pays and self._can_pool)

    @property
    def _can_pool(self) -> bool:
        quadratic = self.problem.loss.quadratic and self.grid.blocks.size == 1
        return quadratic and self.source.matrix.shape[1] ** 2 <= MOST_NUMBERS

    @property
    def dear(self) -> bool:
        """Whether an iteration on all columns is out of reach: they lie far away, or their factors are too large."""
        short = min(self.source.matrix.shape[1], self.node_rows)
        return not self.pooled and (self.source.matrix.streamed or not _squares_fit(self.grid, short))

    @property
    def first_candidates(self) -> int:
        """How many features deserve a close look when they cannot all have it."""
        return min(self.items.features, self.column_room, 4 * sum(self.problem.kappa) + 50)

    @property
    def selective(self) -> bool:
        """Whether a few candidate columns stand for all of them: these are out of reach, and the few fit in memory."""
        enough = 2 * sum(self.problem.kappa) <= self.first_candidates
        return self.dear and enough and self.first_candidates <= min(self.items.features // 2, self.column_room)

    def restricted(self, features: Tensor) -> "Instance":
        """The same problem with some of the features, by sorted indices, in the same coordinates."""
        keep = self._with_free(features)
        matrix: DesignMatrix = self.source.matrix.columns(keep)
        if self.grid.blocks.comm.size > 1:
            matrix = self._spread(matrix, len(features))
        return replace(
            self,
            source=Source(matrix, self.source.target, self.source.weight, self.source.bounds),
            items=replace(self.items, features=len(features)),
            ridge=self.ridge[keep],
            rounding_norm=self.rounding_norm[keep],
            shift=self.shift[features],
            scale=self.scale[features],
        )

    def _spread(self, matrix: DesignMatrix, features: int) -> DesignMatrix:
        """Columns that all ranks of a node hold, dealt to them again."""
        assert isinstance(matrix, Affine)
        columns = self.grid.columns(matrix.shape[1])
        at = slice(min(columns.start, features), min(columns.stop, features))
        part = Spread(matrix.base.columns(at), at, features, self.grid.blocks)
        return Affine(part, matrix.shift, matrix.scale, matrix.constant)

    def part_of(self, Z: Tensor, features: Tensor) -> Tensor:
        """Coefficients of `restricted` from those of all features."""
        return Z[self._with_free(features)]

    def whole_of(self, Z: Tensor, features: Tensor) -> Tensor:
        """Coefficients of all features from those of `restricted`."""
        whole = Z.new_zeros(self.source.matrix.shape[1], Z.shape[1])
        whole[self._with_free(features)] = Z
        return whole

    def _with_free(self, features: Tensor) -> Tensor:
        n = self.source.matrix.shape[1]
        return torch.cat([features, torch.arange(self.items.features, n, device=features.device)])

    @cached_property
    def split(self) -> NodeSplit:
        """The rows of this rank dealt to the nodes it hosts."""
        return self.source.split(len(self.grid.nodes.hosted), self._precise)

    @property
    def _precise(self) -> bool:
        """Whether the proof's Gram matrix, in float64, serves everyone: on a host it is not dear."""
        return self.pooled and self.source.matrix.device.type == "cpu"

    @cached_property
    def form(self) -> QuadraticForm:
        """The squared loss of all nodes together and the ridge, for fits and the search.

        It comes from products in float64 where these are made anyway, else from those in the data's precision.
        """
        exact = self.source.forms.known is not None or self._precise
        form = self._pooled_form(torch.float64 if exact else self.source.matrix.dtype)
        return form.with_outputs(self.source.picked).with_ridge(self.ridge[:, 0])

    @cached_property
    def proof_form(self) -> QuadraticForm:
        """The same for the features alone, minimised over the intercept, with bounds on all errors."""
        form = self._pooled_form(torch.float64)
        if self.items.free:
            form = self.source.forms.without_last(form)
        return form.with_outputs(self.source.picked).with_ridge(self.ridge[: self.items.features, 0])

    def _pooled_form(self, dtype: torch.dtype) -> QuadraticForm:
        """The form of all targets from products in some precision; made once for all problems and ridges.

        Nodes that are not tall have no use for a matrix of their own; then only the sum is made.
        """
        bounds = self.split.bounds if self.split.tall else (0, self.source.matrix.shape[0])
        norm = float(self.rounding_norm.max())
        return self.source.forms.pooled(bounds, dtype, self._precise, self.grid.nodes, self.samples, norm)

    def slope_at_zero(self) -> Tensor:
        """The gradient ``(n, c)`` of this rank's losses at coefficients of zero."""
        source, loss = self.source, self.problem.loss
        if source.forms.known is not None:
            return -self.split.Q.sum(dim=0)
        slope = source.weight * loss.gradient(torch.zeros_like(source.target), source.target)
        return source.matrix.rmv(slope.to(source.matrix.dtype))

    @cached_property
    def kappa(self) -> Tensor:
        """The limits, ``(problems, 1)``."""
        return torch.tensor(self.problem.kappa, device=self.source.matrix.device).unsqueeze(1)

    @cached_property
    def domain(self) -> Domain:
        """The supports allowed to each problem: nothing is decided yet."""
        return Domain.of(self.items, self.kappa, self.ridge.device)

    def domain_of(self, problem: int) -> Domain:
        """The supports allowed to one of the problems, whose items are those of its outputs alone."""
        own = replace(self.items, outputs=len(self.items.outputs_of(problem)))
        return Domain.of(own, self.problem.kappa[problem], self.ridge.device)

    def batched(self, copies: int) -> "Instance":
        """The same problems `copies` times over, as further columns that share the data and its factors."""
        return self if copies == 1 else self.repeated(self.problem.kappa * copies)

    def repeated(self, kappa: tuple[int, ...]) -> "Instance":
        """The same problems, as often as needed to have a limit each of the given ones."""
        copies = len(kappa) // self.items.problems
        return replace(
            self,
            problem=replace(self.problem, kappa=kappa),
            source=self.source.with_outputs(list(range(self.source.outputs)) * copies),
            items=replace(self.items, outputs=self.items.outputs * copies),
            level=self.level.repeat(copies),
        )

    def at_gamma(self, gamma: float) -> "Instance":
        """The same problems with another ridge; the data and what is known about them are shared."""
        ridge = self.ridge * (self.problem.gamma / gamma)
        return replace(self, problem=replace(self.problem, gamma=gamma), ridge=ridge)

    def single(self, problem: int) -> "Instance":
        """One of the problems as an instance of its own."""
        outputs = self.items.outputs_of(problem)
        if len(outputs) == self.items.outputs:
            return self
        return replace(
            self,
            problem=replace(self.problem, kappa=self.problem.kappa[problem : problem + 1]),
            source=self.source.with_outputs(outputs),
            items=replace(self.items, outputs=len(outputs)),
            level=self.level[outputs],
        )

    def objective(self, Z: Tensor) -> Tensor:
        """Objective of each problem ``(problems,)`` at coefficients ``Z (n, c)``, one pass over the data."""
        source = self.source
        eta = source.matrix.mv(Z.to(source.matrix.dtype))
        fit = (source.weight * self.problem.loss.value(eta.double(), source.target)).sum(dim=0)
        penalty = 0.5 * (self.ridge * Z.double().square()).sum(dim=0)
        return self.items.sum_outputs(self.grid.nodes.total(fit)) + self.items.sum_outputs(penalty)

    def to_user(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients ``(p, c)`` and intercepts ``(c,)`` in the units of the caller's columns."""
        coef = Z[: self.items.features].double() / self.scale.unsqueeze(1)
        moved = (self.shift.unsqueeze(1) * coef).sum(dim=0)
        return coef, self.level + self.constant * Z[self.items.features :].double().sum(dim=0) - moved

    def from_user(self, coef: Tensor, intercept: Tensor) -> Tensor:
        """The inverse of `to_user`."""
        moved = (intercept - self.level + (self.shift.unsqueeze(1) * coef).sum(dim=0)).unsqueeze(0)
        scaled = torch.where(self.scale.isinf().unsqueeze(1), 0.0, coef * self.scale.unsqueeze(1))
        Z = torch.cat([scaled, moved[: self.items.free] / self.constant])
        return Z.to(self.source.matrix.dtype)


def pose(
    problem: Problem,
    source: Source,
    grid: Grid,
    exact: bool = False,
    raw: RawForm | None = None,
    watch: Watch | None = None,
) -> Instance:
    """Standardise the columns over all nodes (sums only) and set up the coordinates.

    All products are made in floating point if they must be `exact`; else integer ones may do on a GPU. The `raw` form
    of the source, if it is known already, spares a pass.
    """
    matrix, weight = source.matrix, source.weight
    p, c = matrix.shape[1], source.outputs
    items = problem.items(p, c)
    if len(problem.kappa) != items.problems or not all(1 <= k <= items.size for k in problem.kappa):
        raise ValueError(f"kappa={problem.kappa} must hold {items.problems} number(s) from 1 to {items.size}")
    require_moderate_samples(source.target, source.weight, grid)
    heights = grid.together(lambda: source.split(len(grid.nodes.hosted)).heights)
    highest, most_rows = grid.nodes.most(torch.tensor([max(heights), sum(heights)])).tolist()
    totals = torch.cat([weight.sum(dim=0), (weight * source.target).sum(dim=0), weight.new_tensor([matrix.shape[0]])])
    totals = grid.nodes.total(totals)
    total_weight, mean_targets, samples = totals[0], totals[1:-1] / totals[0], int(totals[-1])
    level = mean_targets if problem.fit_intercept and problem.loss.of_residual else torch.zeros_like(mean_targets)
    source = replace(source, target=source.target - level)
    if raw is not None:
        raw = raw.subtract_level(level, source.split(len(grid.nodes.hosted)))
    reference = reference_point(problem, source, grid) if raw is None else raw.reference
    tall_nodes = highest >= p + problem.fit_intercept
    if raw is None and known_by_squares(problem, source, grid) and _prefers_form(matrix, exact, tall_nodes):
        raw = grid.together(lambda: RawForm.of(source.split(len(grid.nodes.hosted)), reference, exact))
    if raw is None:
        local = torch.stack(grid.together(lambda: matrix.column_moments(weight, reference)))
    else:
        local = torch.stack([raw.sums, raw.squares])
    sums, squares = grid.nodes.total(local)
    # Where the entries are centred themselves, the mean is as close to the reference as the data allow.
    offset = sums / total_weight
    mean = reference + offset
    shift = mean if problem.fit_intercept else torch.zeros_like(mean)
    norms = (squares - (total_weight * offset.square() if problem.fit_intercept else 0.0)).clamp(min=0).sqrt()
    # A column that is constant up to rounding cannot help beside an intercept. Sums are made in float64; where means
    # leave them only afterwards, half the digits of a spread are lost.
    share = 1e2 * torch.finfo(torch.float64).eps
    rounding = (share if matrix.centres_entries else share**0.5) * total_weight.sqrt() * mean.abs()
    useful = ~(norms <= rounding) if problem.fit_intercept else norms != 0
    require_moderate_columns(norms, mean, useful, float(total_weight))
    left = shift
    if products_lose_digits(norms, shift, useful, float(total_weight), matrix.dtype):
        matrix, left = matrix.refined(shift)
    # The norm of a column whose standard deviation is one, such as the intercept's column of ones.
    common, constant = float(total_weight.sqrt()), 1.0
    # A column without use is divided by infinity, so that its entries and its coefficient are zero.
    scale = torch.where(useful, norms / common, torch.inf)
    ridge = torch.ones_like(scale) / problem.gamma
    if not problem.standardize:
        ridge = torch.where(useful, ridge / scale.square(), ridge)
    free = ridge.new_zeros(items.free)
    standard = Affine(matrix, left, scale, constant if problem.fit_intercept else 0.0, integers=not exact)
    # What sums over samples leave to be corrected afterwards: all of the mean, or what the reference missed.
    late = torch.zeros_like(shift) if raw is None else shift - reference
    late = late if matrix.centres_entries else left
    rounding_norm = common + 2 * total_weight.sqrt() * late.abs() / scale
    posed = Source(standard, source.target, source.weight, source.bounds)
    if raw is not None:
        posed = posed.with_forms(raw.standardise(shift, scale, standard.constant))
    return Instance(
        problem=problem,
        grid=grid,
        source=posed,
        items=items,
        samples=samples,
        ridge=torch.cat([ridge, free]).unsqueeze(1),
        shift=shift,
        scale=scale,
        level=level,
        constant=constant,
        column_norm=common,
        mean_target=float(mean_targets.mean()),
        rounding_norm=torch.cat([rounding_norm, free + common]).unsqueeze(1),
        node_rows=highest,
        most_rows=most_rows,
        column_room=-int(grid.world.all_reduce(torch.tensor([-matrix.column_room]), "max")),
        watch=watch or Watch(grid),
    )


def known_by_squares(problem: Problem, source: Source, grid: Grid, copies: int = 1) -> bool:
    """Whether second moments say all there is to know, and every rank has room for so many `copies` of its own."""
    n = source.matrix.shape[1] + problem.fit_intercept
    if not problem.loss.quadratic or grid.blocks.size > 1 or not _squares_fit(grid, n, copies):
        return False
    return int(grid.nodes.total(torch.tensor([source.matrix.shape[0]]))) >= n


def _squares_fit(grid: Grid, side: int, copies: int = 1) -> bool:
    """Whether every rank has room for some square matrices for each of its nodes."""
    hosted = -(-grid.nodes.size // grid.nodes.comm.size)
    return copies * hosted * side**2 <= MOST_NUMBERS


def _prefers_form(matrix: DesignMatrix, exact: bool, tall_nodes: bool) -> bool:
    """Whether all second moments at once, in float64, are cheaper than what is needed of them one by one.

    They are where every pass is dear, and on GPUs that multiply integers, or numbers of float64 at the speed of
    float32: there the proof needs that Gram matrix anyway, and if nodes are tall it serves the iteration, too.
    """
    if matrix.streamed or matrix.device.type != "cuda" or not tall_nodes:
        return matrix.streamed
    if not exact and matrix.has_integer_products:
        return True
    return torch.cuda.get_device_capability(matrix.device) in FAST_DOUBLE


def reference_point(problem: Problem, source: Source, grid: Grid) -> Tensor:
    """A guess of the column means from the first rows of every node, so that sums about it do not cancel."""
    few = min(source.matrix.shape[0], REFERENCE_ROWS)
    zero = torch.zeros(source.matrix.shape[1], dtype=torch.float64, device=source.matrix.device)
    if not problem.fit_intercept:
        return zero
    weight = torch.ones(few, 1, dtype=torch.float64, device=zero.device)
    sums, _ = grid.together(lambda: source.matrix.rows(0, few).column_moments(weight, zero))
    summed = grid.nodes.total(torch.cat([sums, sums.new_tensor([float(few)])]))
    return summed[:-1] / summed[-1]
