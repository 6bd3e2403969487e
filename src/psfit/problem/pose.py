"""Pose a problem on data: measure the columns over all nodes, and set up the instance in its coordinates.

The limit on nonzeros does not depend on the scale of a column, but penalties and tolerances do. So each column is
divided by its standard deviation (about zero without an intercept). With an intercept it is centred, too. Then nothing
depends on the units of the columns, except the ridge if `standardize` is off. The data are not changed, and the
objective keeps its value: the ridge becomes a weight for each coordinate. Offsets, and targets of a loss of
residuals, are centred as well. Else a large mean would use up the digits in which they differ.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.comm import Grid
from psfit.comm.watch import Watch
from psfit.data import Affine, DesignMatrix, Source
from psfit.data.deviations import separate_deviations
from psfit.data.ranges import products_lose_digits, require_moderate_columns, require_moderate_samples
from psfit.data.raw_form import RawForm
from psfit.losses import plain_targets
from psfit.problem.constrained_domain import count_extra, most_counted, require_feasible, scale_box
from psfit.problem.coordinates import Coordinates
from psfit.problem.costs import Sizes, form_suffices, prefers_raw_form
from psfit.problem.instance import Instance
from psfit.problem.items import Items
from psfit.problem.problem import Problem

REFERENCE_ROWS = 256
# Standard deviations that may be subtracted from products instead of entries. A number that most samples have is at
# most one from the mean.
MOST_LATE = 4.0


def pose(
    problem: Problem,
    source: Source,
    grid: Grid,
    exact: bool = False,
    raw: RawForm | None = None,
    watch: Watch | None = None,
) -> Instance:
    """Standardise the columns over all nodes (sums only) and set up the instance.

    All products are made in floating point if they must be `exact`; else a GPU may use integer products. A known `raw`
    form of the source saves a pass.
    """
    items = _check_limits(problem, source)
    extra = count_extra(items, problem.constraints)
    # From here on a limit counts all items of a support.
    problem = replace(problem, kappa=tuple(kappa + extra for kappa in problem.kappa))
    require_moderate_samples(source.target, source.weight, grid)
    totals = _count(source, grid)
    level, target = _centre_targets(problem, source, totals)
    source = replace(source, target=target)
    if raw is not None:
        raw = raw.subtract_level(level, source.split(len(grid.nodes.hosted)))
    elif _reads_raw_form(problem, source, grid, exact, totals):
        reference = reference_point(problem, source, grid)
        raw = grid.run_together(lambda: RawForm.of(source.split(len(grid.nodes.hosted)), reference, exact))
    columns = _measure(problem, source, grid, raw, totals.weight)
    matrix, left = source.matrix, columns.shift
    if products_lose_digits(columns.norms, columns.shift, columns.useful, float(totals.weight), matrix.dtype):
        matrix, left = matrix.refine(columns.shift)
    elif _makes_many_products(problem, grid):
        matrix, left = separate_deviations(matrix, columns.shift, _most_left(columns, totals.weight))
    scales = _choose_scales(problem, items, columns, totals.weight)
    coordinates = _set_coordinates(problem, matrix, columns, scales, left, level, totals.weight, raw)
    standard = Affine(matrix, left, coordinates.scale, coordinates.constant, integers=not exact)
    posed = Source(standard, source.target, source.weight, source.bounds)
    if raw is not None:
        posed = posed.with_forms(raw.standardise(columns.shift, coordinates.scale, coordinates.constant))
    room = -int(grid.world.all_reduce(torch.tensor([-matrix.column_room]), "max"))
    return Instance(
        problem=problem,
        grid=grid,
        source=posed,
        items=items,
        unit_ridge=_set_unit_ridge(problem, scales),
        coordinates=coordinates,
        sizes=Sizes(totals.samples, totals.node_rows, totals.most_rows, room),
        mean_target=float(totals.mean_targets.mean()),
        watch=watch or Watch(grid),
        box=scale_box(problem.constraints, coordinates.scale, source.outputs),
        extra=extra,
    )


def _check_limits(problem: Problem, source: Source) -> Items:
    items = problem.items(source.matrix.shape[1], source.outputs)
    most = most_counted(items, problem.constraints)
    if len(problem.kappa) != items.problems or not all(1 <= k <= most for k in problem.kappa):
        raise ValueError(f"kappa={problem.kappa} must hold {items.problems} number(s) from 1 to {most}")
    if items.weights is not None and min(problem.kappa) < int(items.weights.min()):
        raise ValueError(f"kappa={problem.kappa} is less than the {int(items.weights.min())} features of every group")
    require_feasible(items, min(problem.kappa) + count_extra(items, problem.constraints), problem.constraints)
    return items


@dataclass(frozen=True)
class _Totals:
    """Sums over all samples: their weights (a scalar tensor), weighted means of the targets and of their offsets
    ``(c,)``, and counts.
    """

    weight: Tensor
    mean_targets: Tensor
    mean_offsets: Tensor
    samples: int
    node_rows: int
    most_rows: int


def _count(source: Source, grid: Grid) -> _Totals:
    weight = source.weight
    heights = grid.run_together(lambda: source.split(len(grid.nodes.hosted)).heights)
    highest, most_rows = grid.nodes.maximum(torch.tensor([max(heights), sum(heights)])).tolist()
    rows = weight.new_tensor([source.matrix.shape[0]])
    targets = plain_targets(source.target)
    offsets = source.target.imag if source.target.is_complex() else torch.zeros_like(targets)
    sums = [(weight * values).sum(dim=0) for values in (targets, offsets)]
    totals = grid.nodes.total(torch.cat([weight.sum(dim=0), *sums, rows]))
    means = (totals[1:-1] / totals[0]).view(2, -1)
    return _Totals(totals[0], means[0], means[1], int(totals[-1]), highest, most_rows)


def _centre_targets(problem: Problem, source: Source, totals: _Totals) -> tuple[Tensor, Tensor]:
    """The part ``(c,)`` of the intercepts that is taken out of the samples, and their targets without it.

    The intercept takes over the mean of the targets where the loss depends on residuals, and that of the offsets.
    """
    if not problem.fit_intercept:
        return torch.zeros_like(totals.mean_targets), source.target
    if source.target.is_complex():
        return -totals.mean_offsets, source.target - 1j * totals.mean_offsets
    if not problem.loss.of_residual:
        return torch.zeros_like(totals.mean_targets), source.target
    return totals.mean_targets, source.target - totals.mean_targets


def _reads_raw_form(problem: Problem, source: Source, grid: Grid, exact: bool, totals: _Totals) -> bool:
    """Whether the pass that measures the columns also makes the whole quadratic form."""
    tall_nodes = totals.node_rows >= source.matrix.shape[1] + problem.fit_intercept
    return form_suffices(problem, source, grid) and prefers_raw_form(source.matrix, exact, tall_nodes)


@dataclass(frozen=True)
class _Columns:
    """Facts about the columns of all nodes, ``(p,)`` each: what to subtract, norms after that, which are useful.

    Means and squares were computed about `reference`.
    """

    reference: Tensor
    shift: Tensor
    norms: Tensor
    useful: Tensor


def _measure(problem: Problem, source: Source, grid: Grid, raw: RawForm | None, total_weight: Tensor) -> _Columns:
    """Measure the columns over all nodes; refuse columns that are out of range."""
    matrix = source.matrix
    if raw is None:
        reference = reference_point(problem, source, grid)
        local = torch.stack(grid.run_together(lambda: matrix.column_moments(source.weight, reference)))
    else:
        reference, local = raw.reference, torch.stack([raw.sums, raw.squares])
    sums, squares = grid.nodes.total(local)
    # Where the reference is subtracted from the entries themselves, these sums do not cancel.
    offset = sums / total_weight
    mean = reference + offset
    shift = mean if problem.fit_intercept else torch.zeros_like(mean)
    norms = (squares - (total_weight * offset.square() if problem.fit_intercept else 0.0)).clamp(min=0).sqrt()
    # With an intercept, a column that is constant up to rounding is useless. Sums are made in float64. Where means are
    # subtracted only from the sums, half the digits of a spread are lost.
    share = 1e2 * torch.finfo(torch.float64).eps
    rounding = (share if matrix.centres_entries else share**0.5) * total_weight.sqrt() * mean.abs()
    useful = ~(norms <= rounding) if problem.fit_intercept else norms != 0
    require_moderate_columns(norms, mean, useful, float(total_weight))
    return _Columns(reference, shift, norms, useful)


def _makes_many_products(problem: Problem, grid: Grid) -> bool:
    """Whether it pays to look for sparse deviations: a loss of one output, whose search makes many weighted products.

    All ranks must store their samples in the same way, and one alone need not ask the others.
    """
    return problem.loss.smooth and not problem.loss.quadratic and not problem.loss.joint and grid.world.size == 1


def _most_left(columns: _Columns, total_weight: Tensor) -> Tensor:
    """How much of the shift ``(p,)`` products may subtract after their sums are made; any of a useless column."""
    return torch.where(columns.useful, MOST_LATE * columns.norms / total_weight.sqrt(), torch.inf)


def _set_coordinates(
    problem: Problem,
    matrix: DesignMatrix,
    columns: _Columns,
    scales: Tensor,
    left: Tensor,
    level: Tensor,
    total_weight: Tensor,
    raw: RawForm | None,
) -> Coordinates:
    """Give all columns the same norm; `left` is what must still be subtracted from the columns of the matrix."""
    # The norm of a column whose standard deviation is one. The intercept's column of ones has it, too.
    common = float(total_weight.sqrt())
    # A useless column is divided by infinity, so that its entries and its coefficient are zero.
    scale = torch.where(columns.useful, scales, torch.inf)
    # What is subtracted only after the sums are made: the whole mean, or its distance from the reference.
    late = torch.zeros_like(left) if raw is None else columns.shift - columns.reference
    late = late if matrix.centres_entries else left
    rounding_norm = (columns.norms / scale).clamp(min=common) + 2 * total_weight.sqrt() * late.abs() / scale
    free = rounding_norm.new_full((int(problem.fit_intercept),), common)
    return Coordinates(
        shift=columns.shift,
        scale=scale,
        level=level,
        constant=1.0 if problem.fit_intercept else 0.0,
        column_norm=common,
        rounding_norm=torch.cat([rounding_norm, free]).unsqueeze(1),
    )


def _choose_scales(problem: Problem, items: Items, columns: _Columns, total_weight: Tensor) -> Tensor:
    """The standard deviations of the columns ``(p,)``, zero for useless ones; or those of groups, by mean squares.

    A relaxation gives the coefficients of an item one share of the limit, so all of them must have the same ridge.
    Where it depends on the scales, the columns of a group have the same one.
    """
    scales = torch.where(columns.useful, columns.norms, 0.0) / total_weight.sqrt()
    if problem.standardize or not items.in_groups:
        return scales
    useful = items.sum_rows(columns.useful.to(scales)).clamp(min=1)
    return items.spread_rows((items.sum_rows(scales.square()) / useful).sqrt())


def _set_unit_ridge(problem: Problem, scales: Tensor) -> Tensor:
    """The weights ``(n, 1)`` of the coefficients' squares at a gamma of one; zero for an intercept."""
    ridge = torch.ones_like(scales)
    if not problem.standardize:
        ridge = torch.where(scales > 0, ridge / scales.square(), ridge)
    return torch.cat([ridge, ridge.new_zeros(int(problem.fit_intercept))]).unsqueeze(1)


def reference_point(problem: Problem, source: Source, grid: Grid) -> Tensor:
    """A guess of the column means from the first rows of every node, so that sums about it do not cancel."""
    few = min(source.matrix.shape[0], REFERENCE_ROWS)
    zero = torch.zeros(source.matrix.shape[1], dtype=torch.float64, device=source.matrix.device)
    if not problem.fit_intercept:
        return zero
    weight = torch.ones(few, 1, dtype=torch.float64, device=zero.device)
    sums, _ = grid.run_together(lambda: source.matrix.rows(0, few).column_moments(weight, zero))
    summed = grid.nodes.total(torch.cat([sums, sums.new_tensor([float(few)])]))
    return summed[:-1] / summed[-1]
