"""The samples a rank holds, and their division among the nodes it hosts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from psfit.comm import even_bounds
from psfit.data.form_maker import FormMaker
from psfit.data.matrix import DesignMatrix
from psfit.data.quadratic_form import QuadraticForm
from psfit.losses import convert_targets


@dataclass(frozen=True)
class Source:
    """The samples of this rank.

    Parameters
    ----------
    matrix : DesignMatrix (m, n)
        The features, such as ``Dense(tensor)``.
    target : Tensor (m, c), float64 or complex128
        Targets in the form that the loss needs, on the matrix's device: with offsets they are complex (see
        `losses/offset.py`). Refit and proof need all their digits, so they have these even if the matrix does not.
    weight : Tensor (m, 1), float64
        Weights of the samples' losses.
    bounds : tuple of int or None
        The first row of each node, and the number of rows; None divides the rows evenly.

    Attributes
    ----------
    forms : FormMaker
        Makes and keeps the quadratic forms of the samples; copies with some of the targets share it.
    picked : list of int
        The numbers of these targets among those of `forms`.
    """

    matrix: DesignMatrix
    target: Tensor
    weight: Tensor
    bounds: tuple[int, ...] | None = None
    forms: FormMaker = field(init=False, repr=False, compare=False)
    picked: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", convert_targets(self.target, torch.float64))
        object.__setattr__(self, "weight", self.weight.double())
        self._share(FormMaker(self.matrix, self.target, self.weight), list(range(self.outputs)))

    def _share(self, forms: FormMaker, picked: list[int]) -> "Source":
        object.__setattr__(self, "forms", forms)
        object.__setattr__(self, "picked", picked)
        return self

    @cached_property
    def working_target(self) -> Tensor:
        """The targets in the matrix's precision, for the iteration."""
        return convert_targets(self.target, self.matrix.dtype)

    @cached_property
    def working_weight(self) -> Tensor:
        """The weights in the matrix's precision, for the iteration."""
        return self.weight.to(self.matrix.dtype)

    @property
    def outputs(self) -> int:
        """The number c of outputs."""
        return self.target.shape[1]

    def with_outputs(self, outputs: list[int]) -> "Source":
        """The same samples with some of the targets, or with copies of them."""
        part = replace(self, target=self.target[:, outputs])
        return part._share(self.forms, [self.picked[k] for k in outputs])

    def choose_columns(self, matrix: DesignMatrix, columns: Tensor) -> "Source":
        """The same samples with some ``columns``, by sorted numbers, which are in `matrix`."""
        part = replace(self, matrix=matrix)
        choice = None if self.matrix.streamed else (self.forms.choices, columns)
        return part._share(FormMaker(matrix, self.target, self.weight, None, choice), list(range(self.outputs)))

    def with_forms(self, known: QuadraticForm) -> "Source":
        """The same samples with known forms of the nodes, which were made while the data were read."""
        forms = FormMaker(self.matrix, self.target, self.weight, known)
        return replace(self)._share(forms, list(range(self.outputs)))

    def split(self, nodes: int, in_double: bool = False) -> "NodeSplit":
        """Deal the rows to `nodes` nodes."""
        bounds = self.bounds or tuple(even_bounds(self.matrix.shape[0], nodes))
        if len(bounds) != nodes + 1 or bounds[0] != 0 or bounds[-1] != self.matrix.shape[0]:
            raise ValueError(f"bounds={bounds} must hold {nodes + 1} row numbers from 0 to {self.matrix.shape[0]}")
        if any(b <= a for a, b in pairwise(bounds)):
            raise ValueError(f"nodes={nodes} is more than {self.matrix.shape[0]} samples allow: every node needs a row")
        return NodeSplit(self, bounds, in_double)


@dataclass(frozen=True)
class NodeSplit:
    """Rows dealt to nodes: node ``i`` has the rows ``bounds[i]`` to ``bounds[i + 1] - 1``.

    Coefficients have a leading axis of nodes, ``(N, n, c)``. Predictors do not, ``(m, c)``, since the rows of all nodes
    follow one another. So operations on samples work on all nodes at once, also if their numbers of rows differ.

    With `in_double`, matrices `G` in the data's precision are copies of those in float64, which a proof needs anyway.
    """

    source: Source
    bounds: tuple[int, ...]
    in_double: bool = False

    @property
    def nodes(self) -> int:
        """The number N of nodes hosted here."""
        return len(self.bounds) - 1

    @cached_property
    def _matrices(self) -> list[DesignMatrix]:
        return [self.source.matrix.rows(a, b) for a, b in self._ranges]

    @property
    def _ranges(self) -> list[tuple[int, int]]:
        return list(pairwise(self.bounds))

    @property
    def heights(self) -> list[int]:
        """Rows of each node."""
        return [b - a for a, b in self._ranges]

    @property
    def tall(self) -> bool:
        """Whether a node hosted here has as many rows as columns, so that its Gram matrix is smaller than its rows."""
        return max(self.heights) >= self.source.matrix.shape[1]

    def mv(self, X: Tensor) -> Tensor:
        """``A_i X_i`` of every node: ``(N, n, c) -> (m, c)``."""
        parts = [A.mv(X[i]) for i, A in enumerate(self._matrices)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def rmv(self, R: Tensor) -> Tensor:
        """``A_i' R_i`` of every node: ``(m, c) -> (N, n, c)``."""
        parts = [A.rmv(R[a:b]) for A, (a, b) in zip(self._matrices, self._ranges, strict=True)]
        return parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)

    def weighted_gram(self, weights: Tensor) -> Tensor:
        """``A_i' diag(weights_i) A_i`` of every node, ``(N, n, n)``, in the precision of the weights."""
        parts = zip(self._matrices, self._ranges, strict=True)
        return torch.stack([A.gram(weights[a:b], weights.dtype) for A, (a, b) in parts])

    @property
    def G(self) -> Tensor:
        """``2 A_i'W_i A_i (N, n, n)`` of every node, in the data's precision; made only once."""
        return self.source.forms.curvatures(self.bounds, self.source.matrix.dtype, self.in_double)

    @property
    def Q(self) -> Tensor:
        """``2 A_i'W_i b_i (N, n, c)`` of every node, in the data's precision."""
        source = self.source
        if source.forms.known is not None:
            return source.forms.known.Q[:, :, source.picked].to(source.matrix.dtype)
        return 2 * self.rmv((source.weight * source.target).to(source.matrix.dtype))

    @property
    def powers(self) -> Tensor:
        """Weighted squares of every node's targets, ``(N, c)``."""
        return self.sum_rows(self.source.weight * self.source.target.square())

    def sum_rows(self, V: Tensor) -> Tensor:
        """Sums over each node's rows: ``(m, k) -> (N, k)``."""
        return torch.stack([V[a:b].sum(dim=0) for a, b in self._ranges])

    def parts(self) -> Iterator[tuple[DesignMatrix, slice]]:
        """Every node's matrix and the range of its rows."""
        return ((A, slice(a, b)) for A, (a, b) in zip(self._matrices, self._ranges, strict=True))

    def per_node(self, apply: Callable[[DesignMatrix, slice], Tensor]) -> list[Tensor]:
        """``apply(matrix_i, rows_i)`` for every node."""
        return [apply(A, rows) for A, rows in self.parts()]

    def columns(self, index: slice) -> "NodeSplit":
        """The same rows and nodes, some of the columns."""
        source = self.source
        if index.indices(source.matrix.shape[1]) == (0, source.matrix.shape[1], 1):
            return self
        return NodeSplit(Source(source.matrix.columns(index), source.target, source.weight), self.bounds)
