"""Second-order models of the losses at the points of many tree nodes, and the minima of their relaxations.

With the gradient ``g`` and second derivatives ``H = A' diag(bend) A`` at ``x``, the model of a node is

    g'd + 1/2 d'Hd + (the least ridge of x + d over shares of the limit).

The intercept takes its best value, which leaves a model of the features alone. The second derivatives of a batch are
one product of the bends ``(B, m)`` with the products of all pairs of columns, where these are few and fit in memory.
Otherwise all nodes of a batch share one matrix, that of their mean bend. Models need not be exact: steps towards their
minima are shortened until they lower the objective.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.certificate.node_points import Points, Samples
from psfit.certificate.relaxation import RHO_SHARE
from psfit.problem import Domain

# Every node has its own matrix up to this many columns, if the products of their pairs are at most so many numbers.
OWN_COLUMNS = {"cpu": 64, "cuda": 256}
MOST_PAIRS = {"cpu": 1 << 26, "cuda": 1 << 31}
# Shared second derivatives come from some of the rows where all of them would take more operations than this, but from
# at least so many rows for each column. Every column then has at least a share of the typical curvature.
MOST_WORK = {"cpu": 4e9, "cuda": 4e12}
ROWS_PER_COLUMN = 10
LEAST_SHARE = 0.1
# Rounds of the compiled loops, and iterations of the alternating direction method on a GPU.
ROUNDS = 60
ITERATIONS = 60


@dataclass(frozen=True)
class Models:
    """Second derivatives of the features ``H (k, p, p)`` with the best intercept; row b of a batch has ``which[b]``.

    The intercept has the second derivative ``corner (k, 1)`` and ``edge (k, p)``; both are None if there is none.
    """

    H: Tensor
    which: Tensor
    edge: Tensor | None
    corner: Tensor | None

    @property
    def corners(self) -> Tensor | None:
        """The second derivatives of the intercept in all rows, ``(B, 1)``."""
        return None if self.corner is None else self.corner[self.which]

    def select(self, rows: Tensor) -> "Models":
        """The models of some rows of the batch."""
        return replace(self, which=self.which[rows])

    def put(self, rows: Tensor, other: "Models") -> "Models":
        """The other models, which are those of some rows; no other row is asked for its model any more."""
        return replace(other, which=torch.zeros_like(self.which).index_copy(0, rows, other.which))


class ModelMaker:
    """Makes models from samples. What they share, such as products of pairs of columns, is made once."""

    def __init__(self, samples: Samples) -> None:
        self.samples, inst, n = samples, samples.inst, samples.n
        kind, numbers = samples.matrix.device.type, n * (n + 1) // 2
        few = n <= OWN_COLUMNS[kind] and inst.sizes.most_rows * numbers <= MOST_PAIRS[kind]
        self.own = samples.dense is not None and few and not inst.problem.loss.quadratic
        self.step = max(1, int(min(2.0 * inst.samples * n * n / MOST_WORK[kind], inst.samples / (ROWS_PER_COLUMN * n))))
        self.pairs: Tensor | None = None

    def make(self, bend: Tensor, rows: int) -> Models:
        """Models of a batch of `rows` from their bends ``(k, m)``, where ``k`` is `rows` or divides it."""
        which, p = torch.arange(rows, device=bend.device), self.samples.p
        if self.own and len(bend) > 1:
            H, which = self.samples.inst.grid.nodes.total(self._multiply_pairs(bend)), which % len(bend)
        else:
            H, which = self._make_shared(bend).unsqueeze(0), torch.zeros_like(which)
        if p == self.samples.n:
            return Models(H, which, None, None)
        edge, corner = H[:, p, :p], H[:, p:, p].clamp(min=torch.finfo(H.dtype).tiny)
        inner = H[:, :p, :p] - edge.unsqueeze(2) * (edge / corner).unsqueeze(1)
        return Models(inner.contiguous(), which, edge, corner)

    def _make_shared(self, bend: Tensor) -> Tensor:
        """The second derivatives at the mean bend; those of the squared loss are known where the search needs them."""
        inst = self.samples.inst
        if inst.problem.loss.quadratic and inst.costs.searches_by_form:
            return inst.form.G.double()
        bend = bend.mean(dim=0)
        if self.step == 1:
            return inst.grid.nodes.total(self.samples.gram(bend, 1))
        # Rows that are left out may be all that a rare column has.
        sums = torch.cat([self.samples.gram(bend, self.step), bend.sum().expand(1, self.samples.n)])
        H, least = inst.grid.nodes.total(sums).split([self.samples.n, 1])
        H.diagonal().clamp_(min=LEAST_SHARE * float(least[0, 0]))
        return H

    def _multiply_pairs(self, bend: Tensor) -> Tensor:
        first, second = torch.triu_indices(self.samples.n, self.samples.n, device=bend.device)
        if self.pairs is None:
            assert self.samples.dense is not None
            self.pairs = self.samples.dense.values[:, first] * self.samples.dense.values[:, second]
        half = bend @ self.pairs
        H = half.new_empty(len(bend), self.samples.n, self.samples.n)
        H[:, first, second] = half
        H[:, second, first] = half
        return H


def minimise_models(
    samples: Samples, models: Models, points: Points, domain: Domain, tolerance: Tensor
) -> tuple[Tensor, Tensor]:
    """The minimisers ``(B, n)`` of the models at the points, and the shares ``(B, p)`` of the items in them.

    Their duality gaps are at most ``tolerance (B,)``, unless that takes too long.
    """
    p = samples.p
    x, g = points.x[:, :p], points.g[:, :p]
    if models.edge is not None and models.corner is not None:
        edge, corner = models.edge[models.which], models.corner[models.which]
        g = g - edge * (points.g[:, p:] / corner)
    Hx = torch.einsum("bi,bij->bj", x, models.H[models.which]) if len(models.H) > 1 else x @ models.H[0]
    solve = _by_loops if x.device.type == "cpu" else _by_splitting
    found, shares = solve(samples, models, Hx - g, domain, x, tolerance)
    ahead = points.x.clone()
    ahead[:, :p] = found
    if models.edge is not None and models.corner is not None:
        lean = (edge * (found - x)).sum(dim=1, keepdim=True)
        ahead[:, p:] -= (points.g[:, p:] + lean) / corner
    return ahead, shares


def _by_loops(
    samples: Samples, models: Models, Q: Tensor, domain: Domain, x: Tensor, tolerance: Tensor
) -> tuple[Tensor, Tensor]:
    from psfit.kernels.cpu.node_models import minimise_models as minimise

    found, shares = x.clone(memory_format=torch.contiguous_format), torch.empty_like(Q)
    kind = domain.inside.to(torch.int8) - domain.outside.to(torch.int8)
    left = domain.left.flatten().long()
    arrays = (models.H, models.which, Q.contiguous(), samples.ridge, kind, left, tolerance.double())
    minimise(*(part.numpy() for part in arrays), ROUNDS, found.numpy(), shares.numpy())
    return found, shares


def _by_splitting(
    samples: Samples, models: Models, Q: Tensor, domain: Domain, x: Tensor, tolerance: Tensor
) -> tuple[Tensor, Tensor]:
    """The alternating direction method of `QuadraticRelaxation`, with a factor for each matrix."""
    rho = RHO_SHARE * models.H.diagonal(dim1=1, dim2=2).mean(dim=1, keepdim=True) + samples.ridge.min()
    shifted = models.H + torch.diag_embed(rho.expand(-1, samples.p))
    inverse, rho = torch.cholesky_inverse(torch.linalg.cholesky_ex(shifted).L), rho[models.which]
    product = (lambda v: v @ inverse[0]) if len(inverse) == 1 else (lambda v: _multiply(v, inverse, models.which))
    pull = Q - (torch.einsum("bi,bij->bj", x, models.H[models.which]) if len(models.H) > 1 else x @ models.H[0])
    z, u = x, pull / rho
    for _ in range(ITERATIONS):
        w = product(Q + rho * (z - u)) + u
        factor, shares = domain.shrink(w.abs(), samples.ridge, rho)
        z = factor * w
        u = w - z
    return z, shares


def _multiply(v: Tensor, matrices: Tensor, which: Tensor) -> Tensor:
    return torch.einsum("bi,bij->bj", v, matrices[which])
