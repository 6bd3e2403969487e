"""Makes the quadratic forms of some samples, each product only once: for the squared loss they are the most work."""

from itertools import pairwise

import torch
from torch import Tensor

from psfit.comm import Axis
from psfit.data.form_elimination import eliminate
from psfit.data.matrix import DesignMatrix
from psfit.data.quadratic_form import QuadraticForm
from psfit.data.shared_products import SharedProducts


class FormMaker:
    """The forms of one matrix with its weights and targets.

    Copies of a source with some of the targets share it, and so do all limits and ridges. Products are kept.

    Parameters
    ----------
    matrix : DesignMatrix (m, n)
    target : Tensor (m, c), float64
    weight : Tensor (m, 1), float64
    known : QuadraticForm, optional
        The forms of the nodes, where they were made while the data were read.
    choice : tuple, optional
        Where the matrix has some columns of another one: the products of that one's choices, and these columns.

    Attributes
    ----------
    choices : SharedProducts
        Products of choices of columns of this matrix.
    """

    def __init__(
        self,
        matrix: DesignMatrix,
        target: Tensor,
        weight: Tensor,
        known: QuadraticForm | None = None,
        choice: tuple[SharedProducts, Tensor] | None = None,
    ) -> None:
        self.matrix, self.target, self.weight, self.known, self.choice = matrix, target, weight, known, choice
        self.choices = SharedProducts()
        self._curvatures: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = {}
        self._pooled: dict[torch.dtype, QuadraticForm] = {}
        self._without_last: QuadraticForm | None = None

    def curvatures(self, bounds: tuple[int, ...], dtype: torch.dtype, from_double: bool) -> Tensor:
        """``2 A_i'W_i A_i (N, n, n)`` of the nodes with these bounds of rows, from products in precision `dtype`.

        With `from_double` they are copies of the products in float64, which are then needed anyway.
        """
        if (bounds, dtype) not in self._curvatures:
            if self.known is not None:
                made = self.known.G.to(dtype)
            elif from_double and dtype != torch.float64:
                made = self.curvatures(bounds, torch.float64, True).to(dtype)
            elif self.choice is not None:
                shared, columns = self.choice
                made = 2 * shared.multiply(self.matrix, columns, self.weight.to(dtype), bounds)
            else:
                weight = self.weight.to(dtype)
                made = torch.stack([self.matrix.rows(a, b).gram(weight[a:b], dtype) for a, b in pairwise(bounds)])
                made.mul_(2)
            self._curvatures[bounds, dtype] = made
        return self._curvatures[bounds, dtype]

    def pool(
        self, bounds: tuple[int, ...], dtype: torch.dtype, from_double: bool, nodes: Axis, samples: int, norm: float
    ) -> QuadraticForm:
        """The form of all nodes together, for all targets, from products in precision `dtype`.

        In float64 it has bounds on its errors, for `samples` on all nodes and columns of at most this `norm`.
        """
        if dtype not in self._pooled:
            parts = self.curvatures(bounds, dtype, from_double)
            G = nodes.total((parts[0] if len(parts) == 1 else parts.sum(dim=0)).double())
            form = self._add_sides((G + G.T).div_(2), dtype, nodes)
            self._pooled[dtype] = form.bound_errors(samples, norm) if dtype == torch.float64 else form
        return self._pooled[dtype]

    def _add_sides(self, G: Tensor, dtype: torch.dtype, nodes: Axis) -> QuadraticForm:
        """The form of all nodes from their matrix: its linear terms and constants are added."""
        rounded = torch.zeros_like(G[:, :1])
        if self.known is not None:
            Q, constant = self.known.Q.sum(dim=0), self.known.constant.sum(dim=0)
            rounded = self.known.curvature.rounded.sum(dim=0).unsqueeze(1)
        else:
            Q = 2 * self._cross(dtype).double()
            constant = (self.weight * self.target.square()).sum(dim=0)
        last = torch.cat([constant, constant.new_zeros(1)]).unsqueeze(0)
        summed = nodes.total(torch.cat([torch.cat([Q, rounded], dim=1), last]))
        return QuadraticForm.of(G, summed[:-1, :-1], summed[-1, :-1], summed[:-1, -1])

    def _cross(self, dtype: torch.dtype) -> Tensor:
        """``A'Wb (n, c)`` of this rank.

        In float64 it comes from standardised strips: a product with the raw columns would lose digits where their means
        are large, and the bounds on errors would not hold.
        """
        sides = self.weight * self.target
        if dtype != torch.float64:
            return self.matrix.rmv(sides.to(dtype))
        cross = sides.new_zeros(self.matrix.shape[1], sides.shape[1])
        for at, strip in self.matrix.strips(torch.float64):
            cross += strip.rmv(sides[at])
        return cross

    def without_last(self, form: QuadraticForm) -> QuadraticForm:
        """The pooled form in float64, minimised over its last variable, the intercept, which has no ridge."""
        if self._without_last is None:
            last = torch.arange(form.size, device=form.G.device) == form.size - 1
            self._without_last = eliminate(form, last, torch.zeros_like(last))
        return self._without_last
