"""All second moments of the nodes' data from a single pass: what the squared loss needs to know, and no more."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from psfit.data.integer_gram import integer_moments
from psfit.data.matrix import DesignMatrix
from psfit.data.source import NodeSplit, Statistics
from psfit.data.strip import Strip

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
        everything = torch.zeros(split.source.matrix.shape[0], dtype=torch.long, device=reference.device)
        return cls.of_parts(split, reference, exact, everything, 1)[0]

    @classmethod
    def of_parts(cls, split: NodeSplit, reference: Tensor, exact: bool, part: Tensor, count: int) -> list["Moments"]:
        """The moments of `count` parts of the rows, whose numbers are ``part (m,)``, from the same single pass."""
        matrix = split.source.matrix
        if not exact and matrix.has_integer_products:
            fast = cls._summed(split, reference, True, part, count)
            whole = cls.together(fast)
            spread = whole.squares.clamp(min=torch.finfo(torch.float64).tiny)
            if float((whole.rests / spread).sum()) <= MOST_ROUNDED**2:
                return fast
        return cls._summed(split, reference, False, part, count)

    @classmethod
    def _summed(cls, split: NodeSplit, reference: Tensor, integers: bool, part: Tensor, count: int) -> list["Moments"]:
        weight, target = split.source.weight, split.source.target
        sides = torch.cat([weight * target, weight], dim=1)
        nodes = [
            node_moments(matrix, weight[rows], sides[rows], reference, integers, part[rows], count)
            for matrix, rows in split.parts()
        ]
        grams, crosses, rests = (torch.stack(column, dim=1) for column in zip(*nodes, strict=True))
        feet = torch.stack([_sums_by(part[rows], sides[rows], count) for _, rows in split.parts()], dim=1).unsqueeze(2)
        sums, total = crosses[..., -1:], feet[..., -1:]
        gram = torch.cat([torch.cat([grams, sums], dim=3), torch.cat([sums.mT, total], dim=3)], dim=2)
        cross = torch.cat([crosses[..., :-1], feet[..., :-1]], dim=2)
        return [cls(reference, gram[k], cross[k], rests[k].sum(dim=0)) for k in range(count)]

    @classmethod
    def together(cls, parts: list["Moments"]) -> "Moments":
        """The moments of several parts as one, about the reference that they share."""
        return cls(
            parts[0].reference,
            torch.stack([part.gram for part in parts]).sum(dim=0),
            torch.stack([part.cross for part in parts]).sum(dim=0),
            torch.stack([part.rests for part in parts]).sum(dim=0),
        )

    @property
    def nothing(self) -> "Moments":
        """The moments of no samples."""
        zeros = (torch.zeros_like(part) for part in (self.gram, self.cross, self.rests))
        return Moments(self.reference, *zeros)

    def with_targets_about(self, level: Tensor) -> "Moments":
        """The moments with ``level (c,)`` subtracted from the targets."""
        return replace(self, cross=self.cross - self.gram[:, :, -1:] * level)

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
    matrix: DesignMatrix, weight: Tensor, sides: Tensor, reference: Tensor, integers: bool, part: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """``D'WD (count, p, p)``, ``D' sides (count, p, r)`` and rests ``(count, p)`` for ``D = A - reference``.

    The rows of each part are summed on their own, in one pass over all of them.
    """
    p, r = matrix.shape[1], sides.shape[1]
    gram, cross = reference.new_zeros(count, p, p), reference.new_zeros(count, p, r)
    rests = reference.new_zeros(count, p)
    for at, strip in matrix.strips(None if integers else torch.float64):
        for number, rows, index in _members(strip, part[at], count):
            w, right = weight[at][index], sides[at][index]
            if integers:
                products, sums, rest = integer_moments(rows.dense(), reference, w, right)
                rests[number] += rest
            else:
                about = rows.standardised(reference, torch.ones_like(reference), 0.0)
                products, sums = about.gram(w), about.rmv(right)
            gram[number] += products
            cross[number] += sums
    return gram, cross, rests


def _members(strip: Strip, part: Tensor, count: int) -> Iterator[tuple[int, Strip, Tensor | slice]]:
    """The numbers of the parts that occur in a strip, each with its rows and where they are."""
    if count == 1:
        yield 0, strip, slice(None)
        return
    for number in range(count):
        index = (part == number).nonzero().flatten()
        if len(index):
            yield number, strip.rows(index), index


def _sums_by(part: Tensor, values: Tensor, count: int) -> Tensor:
    """Sums of the rows of each part, ``(count, r)``."""
    return values.new_zeros(count, values.shape[1]).index_add_(0, part, values)
