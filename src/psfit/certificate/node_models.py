"""Second-order models of the losses at the points of many tree nodes, and the minima of their relaxations.

With the gradient ``g`` and second derivatives ``H = A' diag(bend) A`` at ``x``, the model of a node is

    g'd + 1/2 d'Hd + (the least ridge of x + d over shares of the limit).

The intercept takes its best value, which leaves a model of the features alone. The second derivatives of a batch are
one product of the bends ``(B, m)`` with the products of all pairs of columns, where these are few and fit in memory.
Otherwise all nodes of a batch share one matrix, that of their mean bend. Models need not be exact: steps towards their
minima are shortened until they lower the objective.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from psfit.certificate.group_models import minimise_by_shares
from psfit.certificate.node_points import Points, Samples
from psfit.certificate.relaxation import RHO_SHARE
from psfit.data import half_gram
from psfit.kernels import kernel
from psfit.kernels.blocks import invert
from psfit.kernels.linalg import cholesky
from psfit.problem import Domain

# Every node of a batch has its own matrix up to this many columns, if these matrices take at most so many operations.
OWN_COLUMNS = 256
OWN_WORK = {"cpu": 5e9, "cuda": 2e12}
# Rough second derivatives come from some of the rows where all of them would take more operations than this, but from
# at least so many rows for each column. Every column then has at least a share of the typical curvature. Later ones
# come from all rows, because steps with others do not end; with more columns than WHOLE_COLUMNS that costs too much.
MOST_WORK = {"cpu": 4e9, "cuda": 4e12}
ROWS_PER_COLUMN = 10
WHOLE_COLUMNS = 1025
LEAST_SHARE = 0.1
# Shared second derivatives of between so many operations may be made in half precision: where few digits are needed, or
# they would come from some of the rows.
HALF_WORK = (1e11, 4e13)
# So many features that are inside in all rows are worth an elimination.
LEAST_ELIMINATED = 8
# Rounds of the compiled loops, and iterations of the alternating direction method on a GPU.
ROUNDS = 60
ITERATIONS = 60


@dataclass(frozen=True)
class Reduced:
    """A matrix of `whole` without the features `gone`, which take their best values: ``H (1, k, k)``.

    The values move by ``-moves (g, k)`` times the other coefficients; `factor` is that of their own second derivatives.
    """

    whole: Tensor
    gone: Tensor
    H: Tensor
    factor: Tensor
    moves: Tensor


@dataclass(frozen=True)
class Models:
    """Second derivatives of the features ``H (k, p, p)`` with the best intercept; row b of a batch has ``which[b]``.

    The intercept has the second derivative ``corner (k, 1)`` and ``edge (k, p)``; both are None if there is none.
    `reduced` and `inverses` keep what the models of all rows share.
    """

    H: Tensor
    which: Tensor
    edge: Tensor | None
    corner: Tensor | None
    reduced: dict[int, "Reduced"] = field(default_factory=dict)
    inverses: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def corners(self) -> Tensor | None:
        """The second derivatives of the intercept in all rows, ``(B, 1)``."""
        return None if self.corner is None else self.corner[self.which]

    def minimise(self, samples: Samples, points: Points, domain: Domain, tolerance: Tensor) -> Tensor:
        """The minimisers ``(B, n)`` of the models at the points.

        Their duality gaps are at most ``tolerance (B,)``, unless that takes too long.
        """
        p = samples.p
        x, g = points.x[:, :p], points.g[:, :p]
        if self.edge is not None and self.corner is not None:
            edge, corner = self.edge[self.which], self.corner[self.which]
            g = g - edge * (points.g[:, p:] / corner)
        Q = self.multiply(x) - g
        minimise = _by_loops if x.device.type == "cpu" else _by_splitting
        minimise = _by_shares if samples.inst.items.in_groups else minimise
        found = minimise(samples, self, Q, domain, x, tolerance)
        ahead = points.x.clone()
        ahead[:, :p] = found
        if self.edge is not None and self.corner is not None:
            lean = (edge * (found - x)).sum(dim=1, keepdim=True)
            ahead[:, p:] -= (points.g[:, p:] + lean) / corner
        return ahead

    def multiply(self, x: Tensor) -> Tensor:
        """``H x (B, p)`` for the rows ``x (B, p)``."""
        if len(self.H) == 1:
            return x @ self.H[0]
        return torch.bmm(x.unsqueeze(1), self.spread().H).squeeze(1)

    def spread(self) -> "Models":
        """The same with a matrix for each row, unless all rows have the same."""
        every = torch.arange(len(self.which), device=self.H.device)
        if len(self.H) == 1 or (len(self.H) == len(every) and torch.equal(self.which, every)):
            return self
        return replace(self, H=self.H[self.which], which=every)

    def eliminate(self, gone: Tensor, kept: Tensor, ridge: Tensor) -> "Reduced":
        """The only matrix, minimised over some features with their ridge; it is kept for further steps."""
        known = self.reduced.get(id(self.H))
        if known is None or not torch.equal(known.gone, gone):
            H = self.H[0]
            factor = cholesky(H[gone.unsqueeze(1), gone] + torch.diag(ridge[gone]))
            across = H[gone.unsqueeze(1), kept]
            moves = torch.cholesky_solve(across, factor)
            inner = torch.addmm(H[kept.unsqueeze(1), kept], across.T, moves, alpha=-1).unsqueeze(0)
            known = Reduced(self.H, gone, inner, factor, moves)
            self.reduced.clear()
            self.reduced[id(self.H)] = known
        return known

    def invert_shifted(self, rho: Tensor) -> Tensor:
        """``(H + rho)^-1 (k, p, p)`` for ``rho (k, 1)``, which depends on `H` alone; a single one is kept."""
        whole, inverse = self.inverses.get(id(self.H), (None, None))
        if whole is None or inverse is None:
            shifted = self.H + torch.diag_embed(rho.expand(-1, self.H.shape[2]))
            whole, inverse = self.H, invert(torch.linalg.cholesky_ex(shifted).L)
            self.inverses.clear()
            if len(whole) == 1:
                self.inverses[id(whole)] = whole, inverse
        return inverse

    def drop_unused(self) -> "Models":
        """The same without the matrices that no row has."""
        used, which = self.which.unique(return_inverse=True)
        return replace(self, H=self.H[used], which=which) if len(used) < len(self.H) else self

    def select(self, rows: Tensor) -> "Models":
        """The models of some rows of the batch."""
        return replace(self, which=self.which[rows])

    def put(self, rows: Tensor, other: "Models") -> "Models":
        """The same with other models of some rows; one matrix for all of them is that of the other rows, too."""
        if len(other.H) < len(rows):
            return replace(other, which=torch.zeros_like(self.which))
        every = torch.arange(len(self.which), device=rows.device)
        H = self.H[self.which].index_copy(0, rows, other.H)
        if self.edge is None or self.corner is None or other.edge is None or other.corner is None:
            return Models(H, every, None, None)
        edge = self.edge[self.which].index_copy(0, rows, other.edge)
        return Models(H, every, edge, self.corner[self.which].index_copy(0, rows, other.corner))


def count_own(samples: Samples) -> int:
    """How many nodes of a batch can have matrices of their own."""
    inst, n = samples.inst, samples.n
    can = samples.fits_dense and n <= OWN_COLUMNS and not inst.problem.loss.quadratic
    return int(OWN_WORK[samples.matrix.device.type] / (inst.sizes.most_rows * n * n)) if can else 0


class ModelMaker:
    """Makes models from samples. What they share, such as products of pairs of columns, is made once."""

    def __init__(self, samples: Samples) -> None:
        self.samples, inst, n = samples, samples.inst, samples.n
        self.most_own = count_own(samples)
        work = 2.0 * inst.samples * n * n
        self.halves = HALF_WORK[0] <= work <= HALF_WORK[1] and half_gram.available(samples.matrix)
        self.step = max(1, int(min(work / MOST_WORK[samples.matrix.device.type], inst.samples / (ROWS_PER_COLUMN * n))))

    def make(self, bend: Tensor, rows: int, at: Tensor | None = None, rough: bool = False) -> Models:
        """Models of a batch of `rows` from their bends ``(k, m)``, where ``k`` is `rows` or divides it.

        They are the rows `at` of a larger batch, which does not matter here. A `rough` model has fewer digits if that
        takes less time.
        """
        which, p = torch.arange(rows, device=bend.device), self.samples.p
        if 1 < len(bend) <= self.most_own:
            H, which = self.samples.inst.grid.nodes.total(self.samples.grams(bend)), which % len(bend)
        else:
            H, which = self._make_shared(bend, rough).unsqueeze(0), torch.zeros_like(which)
        if p == self.samples.n:
            return Models(H, which, None, None)
        edge, corner = H[:, p, :p], H[:, p:, p].clamp(min=torch.finfo(H.dtype).tiny)
        inner = H[:, :p, :p] - edge.unsqueeze(2) * (edge / corner).unsqueeze(1)
        return Models(inner.contiguous(), which, edge, corner)

    def _make_shared(self, bend: Tensor, rough: bool) -> Tensor:
        """The second derivatives at the mean bend; those of the squared loss are known where the search needs them."""
        inst = self.samples.inst
        if inst.problem.loss.quadratic and inst.costs.searches_by_form:
            return inst.form.G.double()
        bend = bend.mean(dim=0)
        if self.halves and (rough or self.step > 1):
            return inst.grid.nodes.total(half_gram.half_hessian(self.samples.matrix, bend.unsqueeze(1))[:, 0, :, 0])
        if self.step == 1 or (not rough and self.samples.n <= WHOLE_COLUMNS):
            return inst.grid.nodes.total(self.samples.gram(bend, 1, rough))
        # Rows that are left out may be all that a rare column has.
        sums = torch.cat([self.samples.gram(bend, self.step), bend.sum().expand(1, self.samples.n)])
        H, least = inst.grid.nodes.total(sums).split([self.samples.n, 1])
        H.diagonal().clamp_(min=LEAST_SHARE * float(least[0, 0]))
        return H


def _by_loops(samples: Samples, models: Models, Q: Tensor, domain: Domain, x: Tensor, tolerance: Tensor) -> Tensor:
    """The minima by compiled loops; items that are inside in all rows are eliminated before, if they are many."""
    always = domain.inside.all(dim=0) & (samples.sign == 0) & ~samples.closed
    if len(models.H) > 1 or int(always.sum()) < LEAST_ELIMINATED:
        return _run_loops(models, Q, samples.ridge, samples.sign, _kinds(samples, domain), domain, x, tolerance)
    gone, kept = always.nonzero().flatten(), (~always).nonzero().flatten()
    reduced = models.eliminate(gone, kept, samples.ridge)
    left = replace(models, H=reduced.H)
    rest = Q[:, kept] - Q[:, gone] @ reduced.moves
    kind, ridge, sign = _kinds(samples, domain)[:, kept], samples.ridge[kept], samples.sign[kept]
    found = x.clone(memory_format=torch.contiguous_format)
    found[:, kept] = _run_loops(left, rest, ridge, sign, kind, domain, x[:, kept], tolerance)
    right = Q[:, gone] - found[:, kept] @ models.H[0][kept.unsqueeze(1), gone]
    found[:, gone] = torch.cholesky_solve(right.T, reduced.factor).T
    return found


def _kinds(samples: Samples, domain: Domain) -> Tensor:
    """1 for items inside, -1 for items outside or without a use, else 0, ``(B, p)``."""
    kind = domain.inside.to(torch.int8) - domain.outside.to(torch.int8)
    return torch.where(samples.closed, kind.new_tensor(-1), kind)


def _run_loops(
    models: Models,
    Q: Tensor,
    ridge: Tensor,
    sign: Tensor,
    kind: Tensor,
    domain: Domain,
    x: Tensor,
    tolerance: Tensor,
) -> Tensor:
    from psfit.kernels.cpu.node_models import minimise_models as minimise

    found, shares = x.clone(memory_format=torch.contiguous_format), torch.empty_like(Q)
    left, tolerance = domain.left.flatten().long(), tolerance.double().contiguous()
    arrays = (models.H, models.which, Q.contiguous(), ridge, sign, kind.contiguous(), left, tolerance)
    minimise(*(part.numpy() for part in arrays), ROUNDS, found.numpy(), shares.numpy())
    return found


def _by_shares(samples: Samples, models: Models, Q: Tensor, domain: Domain, x: Tensor, tolerance: Tensor) -> Tensor:
    """The minima of groups, one row after the other."""
    numbers = torch.arange(len(Q), device=Q.device).split(1)
    rows = zip(numbers, models.which.tolist(), Q, x, tolerance.tolist(), strict=True)
    items, ridge, H = samples.inst.items, samples.ridge, models.H
    return torch.stack([minimise_by_shares(items, ridge, H[k], q, domain.select(b), y, e) for b, k, q, y, e in rows])


def _by_splitting(samples: Samples, models: Models, Q: Tensor, domain: Domain, x: Tensor, tolerance: Tensor) -> Tensor:
    """The alternating direction method of `QuadraticRelaxation`, with a factor for each matrix.

    It makes a fixed number of iterations, whatever the tolerance: to measure gaps would take as long.
    """
    models = models.drop_unused()
    rho = RHO_SHARE * models.H.diagonal(dim1=1, dim2=2).mean(dim=1, keepdim=True) + samples.ridge.min()
    inverse = replace(models, H=models.invert_shifted(rho)).spread().H
    pull, rho = Q - models.multiply(x), rho[models.which]
    z, u = x.clone(memory_format=torch.contiguous_format), pull / rho
    right, fused = Q + rho * (z - u), kernel("split_rows", x.device) if samples.box is None else None
    kind, theta = domain.inside.to(torch.int8) - domain.outside.to(torch.int8), torch.zeros_like(x[:, 0])
    for _ in range(ITERATIONS):
        v = right @ inverse[0] if len(inverse) == 1 else torch.bmm(right.unsqueeze(1), inverse).squeeze(1)
        if fused is not None:
            right = fused(v, u, z, Q, samples.ridge, rho, kind, domain.left, theta)
            continue
        w = v + u
        allowed = samples.clip(w)
        factor, _ = domain.shrink(allowed.abs(), samples.ridge, rho)
        z = factor * allowed
        u = w - z
        right = Q + rho * (z - u)
    return z
