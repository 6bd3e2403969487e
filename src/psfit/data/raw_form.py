"""The quadratic form of the raw data from a single pass, before anything is known about their columns.

A guess of the means is subtracted from the columns, and a column of ones is added. Such a form can be standardised
without a second pass, and forms of parts of the samples, such as folds, can be added.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.data.integer_gram import integer_moments
from psfit.data.matrix import DesignMatrix
from psfit.data.quadratic_form import QuadraticForm
from psfit.data.source import NodeSplit
from psfit.data.strip import Strip

# Integer products are used if what they round off, over all columns together, is below this share of a column's norm.
# Columns with a few huge entries often fail this test; then the products are made again in float64.
MOST_ROUNDED = 0.05


@dataclass(frozen=True)
class RawForm:
    """The forms of the nodes ``(N, p + 1, p + 1)`` for the columns ``[A - reference, 1]``, with ``reference (p,)``."""

    reference: Tensor
    form: QuadraticForm

    @classmethod
    def of(cls, split: NodeSplit, reference: Tensor, exact: bool) -> "RawForm":
        """Read every row once. Integer products are used if they exist and are accurate enough, unless `exact`."""
        one_part = torch.zeros(split.source.matrix.shape[0], dtype=torch.long, device=reference.device)
        return cls.of_parts(split, reference, exact, one_part, 1)[0]

    @classmethod
    def of_parts(cls, split: NodeSplit, reference: Tensor, exact: bool, part: Tensor, count: int) -> list["RawForm"]:
        """The forms of `count` parts of the rows, whose numbers are ``part (m,)``, from the same single pass."""
        if not exact and split.source.matrix.has_integer_products:
            by_integers = _add_up(split, reference, True, part, count)
            whole = cls(reference, QuadraticForm.sum(by_integers))
            spread = whole.squares.clamp(min=torch.finfo(torch.float64).tiny)
            if float((whole.form.curvature.rounded[:, :-1].sum(dim=0) / spread).sum()) <= MOST_ROUNDED**2:
                return [cls(reference, form) for form in by_integers]
        return [cls(reference, form) for form in _add_up(split, reference, False, part, count)]

    @classmethod
    def sum(cls, parts: Sequence["RawForm"]) -> "RawForm":
        """The form of several parts together; they have the same reference."""
        return cls(parts[0].reference, QuadraticForm.sum([part.form for part in parts]))

    def empty(self) -> "RawForm":
        """The form of no samples."""
        return RawForm(self.reference, self.form.empty())

    @property
    def sums(self) -> Tensor:
        """Weighted sums of the columns minus the reference, ``(p,)``, over the nodes hosted here."""
        return self.form.G[:, :-1, -1].sum(dim=0) / 2

    @property
    def squares(self) -> Tensor:
        """Weighted sums of squares of the columns minus the reference, ``(p,)``."""
        return self.form.curvature.diagonal[:, :-1].sum(dim=0) / 2

    def subtract_level(self, level: Tensor, split: NodeSplit) -> "RawForm":
        """The form for targets less ``level (c,)``; `split` already has these targets."""
        return RawForm(self.reference, self.form.subtract_level(level, split.powers))

    def standardise(self, shift: Tensor, scale: Tensor, constant: float) -> QuadraticForm:
        """The nodes' forms for ``(a_j - shift_j) / scale_j`` and, unless it is zero, a last column `constant`."""
        return self.form.standardise(shift - self.reference, scale, constant)


def _add_up(split: NodeSplit, reference: Tensor, integers: bool, part: Tensor, count: int) -> list[QuadraticForm]:
    """The forms of all parts, each ``(N, p + 1, p + 1)``."""
    weight, target = split.source.weight, split.source.target
    sides = torch.cat([weight * target, weight], dim=1)
    nodes = [
        node_products(matrix, weight[rows], sides[rows], reference, integers, part[rows], count)
        for matrix, rows in split.parts()
    ]
    grams, crosses, rests = (torch.stack(column, dim=1) for column in zip(*nodes, strict=True))
    last = torch.stack([_sums_by(part[rows], sides[rows], count) for _, rows in split.parts()], dim=1).unsqueeze(2)
    squares = weight * target.square()
    constant = torch.stack([_sums_by(part[rows], squares[rows], count) for _, rows in split.parts()], dim=1)
    sums, total = crosses[..., -1:], last[..., -1:]
    gram = torch.cat([torch.cat([grams, sums], dim=3), torch.cat([sums.mT, total], dim=3)], dim=2)
    cross = torch.cat([crosses[..., :-1], last[..., :-1]], dim=2)
    rests = torch.cat([rests, torch.zeros_like(rests[..., :1])], dim=2)
    return [QuadraticForm.of(2 * gram[k], 2 * cross[k], constant[k], rests[k]) for k in range(count)]


def node_products(
    matrix: DesignMatrix, weight: Tensor, sides: Tensor, reference: Tensor, integers: bool, part: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """``D'WD (count, p, p)``, ``D' sides (count, p, r)`` and rests ``(count, p)`` for ``D = A - reference``.

    The rests are the weighted squares of what was rounded off. One pass gives the sums over the rows of each part.
    """
    p, r = matrix.shape[1], sides.shape[1]
    gram, cross = reference.new_zeros(count, p, p), reference.new_zeros(count, p, r)
    rests = reference.new_zeros(count, p)
    for at, strip in matrix.strips(None if integers else torch.float64):
        for number, rows, index in _rows_of_parts(strip, part[at], count):
            w, right = weight[at][index], sides[at][index]
            if integers:
                products, sums, rest = integer_moments(rows.dense(), reference, w, right)
                rests[number] += rest
            else:
                centred = rows.standardise(reference, torch.ones_like(reference), 0.0)
                products, sums = centred.gram(w), centred.rmv(right)
            gram[number] += products
            cross[number] += sums
    return gram, cross, rests


def _rows_of_parts(strip: Strip, part: Tensor, count: int) -> Iterator[tuple[int, Strip, Tensor | slice]]:
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
    if count == 1:
        return values.sum(dim=0, keepdim=True)
    return values.new_zeros(count, values.shape[1]).index_add_(0, part, values)
