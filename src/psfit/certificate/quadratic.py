"""The squared loss as a quadratic form, with bounds on its rounding errors.

    1/2 tr(X'GX) - tr(Q'X) + constant + 1/2 sum_j r_j ||x_j||^2,      at most kappa rows x_j of X (n, c) nonzero

Everything a proof needs about the data is in ``G`` and ``Q``, sums over all nodes. Variables that are decided can be
taken out: those outside by dropping them, those inside by minimising over them, which leaves a smaller problem of the
same form.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.kernels.linalg import cholesky
from psfit.problem.instance import Instance

EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True)
class Quadratic:
    """The form above in float64; the `*_error` numbers bound what rounding did to any entry. On top of that `G` may
    belong to rounded columns, and differ by `spectral_error` in the spectral norm.

    `index` tells which items of the problem the rows are; `kappa` how many of them may be nonzero. The rank of `G`
    without its errors is at most `rank`.
    """

    G: Tensor
    Q: Tensor
    constant: float
    ridge: Tensor
    kappa: int
    index: Tensor
    rank: int
    gram_error: float
    linear_error: float
    constant_error: float
    spectral_error: float = 0.0

    @property
    def size(self) -> int:
        """The number n of items."""
        return self.G.shape[0]

    def optimum(self, support: Tensor) -> tuple[float, float]:
        """The minimum over the rows in ``support (k,)``, and by how much rounding may have raised it."""
        H = self.G[support.unsqueeze(1), support] + torch.diag(self.ridge[support])
        x = torch.cholesky_solve(self.Q[support], cholesky(H))
        total, gained = float(x.abs().sum()), 0.5 * float((self.Q[support] * x).sum())
        error = self.constant_error + self.linear_error * total + 0.5 * self.gram_error * total * total
        error += 8 * (len(support) + 4) * EPS * (abs(self.constant) + abs(gained))
        return self.constant - gained, error

    def singles(self) -> Tensor:
        """Lower bounds ``(n,)`` of what each item reaches as the only one, with all rounding counted against them.

        Where one place is left they are all there is to know: the least of them bounds the problem.
        """
        H = self.G.diagonal() + self.ridge
        H = H - 2 * EPS * H.abs() - self.gram_error - self.spectral_error
        gained = 0.5 * (self.Q.abs() + self.linear_error).square().sum(dim=1) / H
        rounding = 8 * (self.Q.shape[1] + 4) * EPS * (abs(self.constant) + gained)
        return torch.where(H > 0, self.constant - self.constant_error - gained - rounding, -torch.inf)

    def completed(self, inside: Tensor, free: Tensor, x: Tensor) -> Tensor:
        """All rows ``(n, c)`` from those that are `free`: the ones inside minimise, the others are zero."""
        X = torch.zeros_like(self.Q)
        X[free] = x
        gone = inside.nonzero().flatten()
        factor = cholesky(self.G[gone.unsqueeze(1), gone] + torch.diag(self.ridge[gone]))
        X[gone] = torch.cholesky_solve(self.Q[gone] - self.G[gone] @ X, factor)
        return X

    def reduced(self, inside: Tensor, outside: Tensor) -> "Quadratic":
        """The problem in the items that are in neither of the masks ``(n,)``."""
        keep, gone = (~(inside | outside)).nonzero().flatten(), inside.nonzero().flatten()
        rest = replace(
            self,
            G=self.G[keep.unsqueeze(1), keep],
            Q=self.Q[keep],
            ridge=self.ridge[keep],
            kappa=self.kappa - len(gone),
            index=self.index[keep],
        )
        if not len(gone):
            return rest
        factor = cholesky(self.G[gone.unsqueeze(1), gone] + torch.diag(self.ridge[gone]))
        cross = self.G[gone.unsqueeze(1), keep]
        moved = torch.cholesky_solve(cross, factor)
        fitted = torch.cholesky_solve(self.Q[gone], factor)
        # The items taken out follow the others as fitted - moved X, and carry the errors of their entries along. A
        # triangular solve is exact for a matrix that differs by a few roundings of its largest entries.
        reach = 1 + float(moved.abs().sum(dim=0).max()) if len(keep) else 1.0
        shift = float(fitted.abs().sum())
        e = self.gram_error + 8 * len(gone) * EPS * float(self.G.diagonal().max())
        return replace(
            rest,
            G=rest.G - cross.T @ moved,
            Q=rest.Q - cross.T @ fitted,
            constant=self.constant - 0.5 * float((self.Q[gone] * fitted).sum()),
            gram_error=e * reach * reach,
            spectral_error=self._carried(gone, moved),
            linear_error=(self.linear_error + e * shift) * reach,
            constant_error=self.constant_error + self.linear_error * shift + 0.5 * e * shift * shift,
        )

    def _carried(self, gone: Tensor, moved: Tensor) -> float:
        """The spectral error after the variables `gone` have followed the others as ``-moved X``.

        The true minimum over them is at least that of the form with the error taken off the diagonal. If their own part
        is at least twice the error, its inverse grows by no more than a factor of two.
        """
        e = self.spectral_error
        H = self.G[gone.unsqueeze(1), gone] + torch.diag(self.ridge[gone] - 2 * e)
        if e and int(torch.linalg.cholesky_ex(H).info):
            return float("inf")
        return e * (1 + 2 * float(moved.square().sum()))


def pooled(inst: Instance) -> Quadratic:
    """The quadratic form of an instance of one problem with the squared loss, summed over the nodes in float64."""
    G, Q, power = _statistics(inst)
    constant = float(power.sum())
    # A sum of m products is off by at most m roundings of the sum of their sizes; standardising adds a few more.
    rounding = 2 * (inst.samples + 16) * EPS
    norm = float(inst.rounding_norm.max())
    form = Quadratic(
        G=(G + G.T) / 2,
        Q=Q,
        constant=constant,
        ridge=inst.ridge[:, 0],
        kappa=inst.problem.kappa[0],
        index=torch.arange(len(Q), device=Q.device),
        rank=inst.samples,
        gram_error=rounding * norm * norm,
        linear_error=rounding * norm * constant**0.5,
        constant_error=rounding * constant,
        spectral_error=_moved(inst, G),
    )
    if not inst.items.free:
        return form
    # The intercept pays nothing and is always inside.
    intercept = form.index == inst.items.features
    return replace(form.reduced(intercept, torch.zeros_like(intercept)), kappa=form.kappa)


def _moved(inst: Instance, G: Tensor) -> float:
    """By how much, in the spectral norm, ``2 A'WA`` can differ from ``G`` if the latter is that of rounded columns."""
    known = inst.source.statistics
    local = G.new_tensor([0.0 if known is None else known.rounded])
    length = (2 * float(inst.grid.nodes.total(local))) ** 0.5
    largest = float(G.abs().sum(dim=1).max()) ** 0.5
    return (2 * largest + length) * length


def _statistics(inst: Instance) -> tuple[Tensor, Tensor, Tensor]:
    """``2 A'WA``, ``2 A'W b`` and ``sum w b^2`` in float64 arithmetic, whatever the precision of the data.

    The products come from standardised strips: a product with the raw columns would lose digits where their means are
    large, and the error bounds would not hold.
    """
    source, nodes = inst.source, inst.grid.nodes
    weight, target = source.weight, source.target
    power = (weight * target.square()).sum(dim=0, keepdim=True)
    if source.statistics is not None:
        cross = source.statistics.cross.sum(dim=0)
    else:
        cross = weight.new_zeros(source.matrix.shape[1], source.outputs)
        for at, strip in source.matrix.strips(torch.float64):
            cross += strip.rmv(weight[at] * target[at])
    summed = nodes.total(torch.cat([cross, power]))
    return 2 * inst.pooled_gram(torch.float64), 2 * summed[:-1], summed[-1]
