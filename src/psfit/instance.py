"""A problem posed on data: the coordinates in which everything below `solve` works.

The limit on nonzeros does not care for the scale of a column, but penalties and tolerances do. So each column is
divided by its norm (relative to the root mean square of all norms, which leaves data of the paper's kind as they
are) and, when an intercept absorbs the means, centred. Both are implicit and exact: the ridge becomes a weight per
coordinate and the objective keeps its value.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from psfit.comm import Grid
from psfit.data import Affine, NodeSplit, Source
from psfit.problem import Layout, Problem


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
        What was subtracted from each column, and what it was divided by then.
    constant : float
        The value of the intercept's column.
    column_norm : float
        The norm that all columns have in these coordinates.
    mean_target : float
        Weighted mean of the targets.
    tall : bool
        Whether some node has as many rows as columns, so that Gram matrices are the cheaper statistics.
    most_rows : int
        The most samples that lie on one rank.
    """

    problem: Problem
    grid: Grid
    source: Source
    layout: Layout
    samples: int
    ridge: Tensor
    shift: Tensor
    scale: Tensor
    constant: float
    column_norm: float
    mean_target: float
    tall: bool
    most_rows: int

    @cached_property
    def split(self) -> NodeSplit:
        """The rows of this rank dealt to the nodes it hosts."""
        return self.source.split(len(self.grid.nodes.hosted))

    @cached_property
    def normal_equations(self) -> tuple[Tensor, Tensor, Tensor]:
        """The squared loss as ``x'Hx / 2 - Q'x + power``: ``H (n, n)``, ``Q (n, c)``, ``power (c,)``, in float64."""
        source = self.source
        H = 2 * self.grid.nodes.total(self.split.gram.sum(dim=0).double())
        H.diagonal().add_(self.ridge[:, 0])
        Q = source.matrix.rmv(2 * source.weight * source.target).double()
        power = (source.weight * source.target.square()).double().sum(dim=0, keepdim=True)
        summed = self.grid.nodes.total(torch.cat([Q, power]))
        return H, summed[:-1], summed[-1]

    @cached_property
    def kappa(self) -> Tensor:
        """The limits, ``(problems, 1)``."""
        return torch.tensor(self.problem.kappa, device=self.source.matrix.device).unsqueeze(1)

    def batched(self, copies: int) -> "Instance":
        """The same problems `copies` times over, as further columns that share the data and its factors."""
        if copies == 1:
            return self
        return replace(
            self,
            problem=replace(self.problem, kappa=self.problem.kappa * copies),
            source=replace(self.source, target=self.source.target.repeat(1, copies)),
            layout=replace(self.layout, outputs=self.layout.outputs * copies),
        )

    def single(self, problem: int) -> "Instance":
        """One of the problems as an instance of its own."""
        outputs = self.layout.outputs_of(problem)
        if len(outputs) == self.layout.outputs:
            return self
        return replace(
            self,
            problem=replace(self.problem, kappa=self.problem.kappa[problem : problem + 1]),
            source=replace(self.source, target=self.source.target[:, outputs]),
            layout=replace(self.layout, outputs=len(outputs)),
        )

    def objective(self, Z: Tensor) -> Tensor:
        """Objective of each problem ``(problems,)`` at coefficients ``Z (n, c)``, one pass over the data."""
        source = self.source
        eta = source.matrix.mv(Z.to(source.matrix.dtype))
        fit = (source.weight * self.problem.loss.value(eta, source.target)).double().sum(dim=0)
        penalty = 0.5 * (self.ridge * Z.double().square()).sum(dim=0)
        return self.per_problem(self.grid.nodes.total(fit)) + self.per_problem(penalty)

    def per_problem(self, by_output: Tensor) -> Tensor:
        """Sums over outputs ``(c,)`` gathered to the problems they belong to."""
        return by_output if self.layout.kind == "columns" else by_output.sum().unsqueeze(0)

    def to_user(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients ``(p, c)`` and intercepts ``(c,)`` in the units of the caller's columns."""
        coef = Z[: self.layout.features].double() / self.scale.unsqueeze(1)
        intercept = self.constant * Z[self.layout.features :].double().sum(dim=0) - (
            self.shift.unsqueeze(1) * coef
        ).sum(dim=0)
        return coef, intercept

    def from_user(self, coef: Tensor, intercept: Tensor) -> Tensor:
        """The inverse of `to_user`."""
        moved = (intercept + (self.shift.unsqueeze(1) * coef).sum(dim=0)).unsqueeze(0)
        Z = torch.cat([coef * self.scale.unsqueeze(1), moved[: self.layout.free] / self.constant])
        return Z.to(self.source.matrix.dtype)


def pose(problem: Problem, source: Source, grid: Grid) -> Instance:
    """Standardise the columns over all nodes (sums only) and set up the coordinates."""
    matrix, weight = source.matrix, source.weight.double()
    p, c = matrix.shape[1], source.outputs
    layout = problem.layout(p, c)
    if len(problem.kappa) != layout.problems or not all(1 <= k <= layout.size for k in problem.kappa):
        raise ValueError(f"kappa={problem.kappa} must hold {layout.problems} number(s) from 1 to {layout.size}")
    heights = grid.together(lambda: source.split(len(grid.nodes.hosted)).heights)
    highest, most_rows = grid.nodes.most(torch.tensor([max(heights), sum(heights)])).tolist()
    sums = torch.cat([matrix.column_sums(weight), weight.sum(dim=0), (weight * source.target).sum(dim=0)])
    sums = torch.cat([sums, sums.new_tensor([float(matrix.shape[0])])])
    sums = grid.nodes.total(sums)
    total_weight = sums[p]
    mean = sums[:p] / total_weight
    shift = mean if problem.fit_intercept else torch.zeros_like(mean)
    norms = grid.nodes.total(matrix.squared_norms(weight, shift)).sqrt()
    if not bool(norms.isfinite().all()):
        worst = int((~norms.isfinite()).nonzero()[0, 0])
        raise ValueError(f"X: column {worst} is so large that its squares overflow; rescale it")
    # A column that is constant up to rounding cannot help; left unscaled, it stays a column of (nearly) zeros.
    rounding = 1e2 * torch.finfo(matrix.dtype).eps * total_weight.sqrt() * mean.abs()
    useful = norms > rounding if problem.fit_intercept else norms > 0
    common = float(norms[useful].square().mean().sqrt()) if bool(useful.any()) else 1.0
    scale = torch.where(useful, norms / common, 1.0)
    ridge = (1 / (problem.gamma * scale.square())).unsqueeze(1)
    ridge = torch.cat([ridge, ridge.new_zeros(int(problem.fit_intercept), 1)])
    # The intercept's column gets the same norm, so that its unit follows that of the data.
    constant = common / float(total_weight.sqrt())
    standard = Affine(matrix, shift, scale, constant if problem.fit_intercept else 0.0)
    return Instance(
        problem=problem,
        grid=grid,
        source=Source(standard, source.target, source.weight, source.bounds),
        layout=layout,
        samples=int(sums[-1]),
        ridge=ridge,
        shift=shift,
        scale=scale,
        constant=constant,
        column_norm=common,
        mean_target=float(sums[p + 1 : -1].sum() / (total_weight * c)),
        tall=highest >= p + layout.free,
        most_rows=most_rows,
    )
