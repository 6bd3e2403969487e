"""All second moments of the nodes' data from a single pass: what the squared loss needs to know, and no more."""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.data.integer_gram import integer_moments
from psfit.data.matrix import DesignMatrix
from psfit.data.source import NodeSplit, Statistics

# Integer products are kept if what they round off is shorter, over all columns together, than this share of a column.
# Many columns that live from a few huge entries do not pass; they are made again in float64.
MOST_ROUNDED = 0.05


@dataclass(frozen=True)
class Moments:
    """Weighted sums in float64 about ``reference (p,)``: with ``B = [A - reference, 1]`` for each node

    `gram` is ``B'WB (N, p + 1, p + 1)`` and `cross` is ``B'Wb (N, p + 1, c)``. The first p rows and columns of `gram`
    may belong to rounded columns; then ``rests (p,)`` holds the squared lengths of what was rounded off.
    """

    reference: Tensor
    gram: Tensor
    cross: Tensor
    rests: Tensor

    @classmethod
    def of(cls, split: NodeSplit, reference: Tensor, exact: bool) -> "Moments":
        """Read every row once; by integer products where they are to be had and good enough, unless `exact`."""
        matrix = split.source.matrix
        if not exact and matrix.has_integer_products:
            fast = cls._summed(split, reference, integers=True)
            spread = fast.squares.clamp(min=torch.finfo(torch.float64).tiny)
            if float((fast.rests / spread).sum()) <= MOST_ROUNDED**2:
                return fast
        return cls._summed(split, reference, integers=False)

    @classmethod
    def _summed(cls, split: NodeSplit, reference: Tensor, integers: bool) -> "Moments":
        weight, target = split.source.weight.double(), split.source.target.double()
        sides = torch.cat([weight * target, weight], dim=1)
        parts = [node_moments(matrix, weight[rows], sides[rows], reference, integers) for matrix, rows in split.parts()]
        grams, crosses, rests = (torch.stack(column) for column in zip(*parts, strict=True))
        total = torch.stack([weight[rows].sum() for _, rows in split.parts()]).view(-1, 1, 1)
        foot = torch.stack([sides[rows, :-1].sum(dim=0, keepdim=True) for _, rows in split.parts()])
        sums = crosses[:, :, -1:]
        gram = torch.cat([torch.cat([grams, sums], dim=2), torch.cat([sums.mT, total], dim=2)], dim=1)
        return cls(reference, gram, torch.cat([crosses[:, :, :-1], foot], dim=1), rests.sum(dim=0))

    @property
    def sums(self) -> Tensor:
        """Sums of the columns about the reference, ``(p,)``, over the nodes hosted here."""
        return self.gram[:, :-1, -1].sum(dim=0)

    @property
    def squares(self) -> Tensor:
        """Sums of squares of the columns about the reference, ``(p,)``."""
        return self.gram.diagonal(dim1=1, dim2=2)[:, :-1].sum(dim=0)

    def standardised(self, shift: Tensor, scale: Tensor, constant: float) -> Statistics:
        """The same for columns ``(a_j - shift_j) / scale_j`` and, unless it is zero, a last column `constant`."""
        moved, p = shift - self.reference, len(shift)
        G, s, total = self.gram[:, :p, :p], self.gram[:, :p, p:], self.gram[:, p:, p:]
        d = moved.unsqueeze(1)
        G = (G - s @ d.T - d @ s.mT + total * (d @ d.T)) / (scale * scale.unsqueeze(1))
        edge = (s - total * d) / scale.unsqueeze(1)
        cross = (self.cross[:, :p] - d * self.cross[:, p:]) / scale.unsqueeze(1)
        if constant:
            rim = torch.cat([edge.mT, constant * total], dim=2)
            G = torch.cat([torch.cat([G, constant * edge], dim=2), constant * rim], dim=1)
            cross = torch.cat([cross, constant * self.cross[:, p:]], dim=1)
        return Statistics(G, cross, float((self.rests / scale.square()).sum()))


def node_moments(
    matrix: DesignMatrix, weight: Tensor, sides: Tensor, reference: Tensor, integers: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """``D'WD (p, p)``, ``D' sides (p, r)`` and rests ``(p,)`` for ``D = A - reference``, from one pass over rows."""
    p, r = matrix.shape[1], sides.shape[1]
    gram, cross = reference.new_zeros(p, p), reference.new_zeros(p, r)
    rests = torch.zeros_like(reference)
    for at, strip in matrix.strips(None if integers else torch.float64):
        if integers:
            products, sums, rest = integer_moments(strip.dense(), reference, weight[at], sides[at])
            rests += rest
        else:
            about = strip.standardised(reference, torch.ones_like(reference), 0.0)
            products, sums = about.gram(weight[at]), about.rmv(sides[at])
        gram += products
        cross += sums
    return gram, cross, rests
