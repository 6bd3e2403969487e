"""The samples a rank holds, and their division among the nodes it hosts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from psfit.comm import even_bounds
from psfit.data.matrix import DesignMatrix


@dataclass(frozen=True)
class Statistics:
    """What the squared loss needs to know of each node, in float64: ``A'WA (N, n, n)`` and ``A'Wb (N, n, c)``.

    The Gram matrices may belong to rounded columns; `rounded` is then the squared length of all that was rounded off.
    """

    gram: Tensor
    cross: Tensor
    rounded: float


@dataclass(frozen=True)
class Source:
    """The samples of this rank.

    Parameters
    ----------
    matrix : DesignMatrix (m, n)
        The features, such as ``Dense(tensor)``.
    target : Tensor (m, c), float64
        Targets as the loss wants them, on the matrix's device. Refit and proof need all their digits, so they are kept
        in float64 whatever the precision of the matrix.
    weight : Tensor (m, 1), float64
        Weights of the samples' losses.
    bounds : tuple of int or None
        Where one node's rows end and the next one's begin; None deals them out evenly.
    grams : dict
        Gram matrices by bounds and precision, kept here once they are made; copies with other targets share them.
    statistics : Statistics or None
        Gathered while the data were read, where another look at them would be dear.
    """

    matrix: DesignMatrix
    target: Tensor
    weight: Tensor
    bounds: tuple[int, ...] | None = None
    grams: dict[tuple[tuple[int, ...], torch.dtype], Tensor] = field(default_factory=dict, repr=False, compare=False)
    statistics: Statistics | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", self.target.double())
        object.__setattr__(self, "weight", self.weight.double())

    @cached_property
    def working_target(self) -> Tensor:
        """The targets in the matrix's precision, for the iteration."""
        return self.target.to(self.matrix.dtype)

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
        known = self.statistics
        if known is not None:
            known = replace(known, cross=known.cross[:, :, outputs])
        return replace(self, target=self.target[:, outputs], statistics=known)

    def split(self, nodes: int, precise: bool = False) -> "NodeSplit":
        """Deal the rows to `nodes` nodes."""
        bounds = self.bounds or tuple(even_bounds(self.matrix.shape[0], nodes))
        if len(bounds) != nodes + 1 or bounds[0] != 0 or bounds[-1] != self.matrix.shape[0]:
            raise ValueError(f"bounds={bounds} must hold {nodes + 1} row numbers from 0 to {self.matrix.shape[0]}")
        if any(b <= a for a, b in pairwise(bounds)):
            raise ValueError(f"nodes={nodes} is more than {self.matrix.shape[0]} samples allow: every node needs a row")
        return NodeSplit(self, bounds, precise)


@dataclass(frozen=True)
class NodeSplit:
    """Rows dealt to nodes: node ``i`` has the rows ``bounds[i]`` to ``bounds[i + 1] - 1``.

    Coefficients carry a leading axis of nodes, ``(N, n, c)``; predictors do not, ``(m, c)``, since the rows of all
    nodes lie one after the other. So whatever works on samples works on all nodes at once, however uneven they are.

    With `precise`, Gram matrices in the data's precision are copies of those in float64, which a proof needs anyway.
    """

    source: Source
    bounds: tuple[int, ...]
    precise: bool = False

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
        """Whether a node hosted here has as many rows as columns, so that its Gram matrix is the cheaper statistic."""
        return max(self.heights) >= self.source.matrix.shape[1]

    def mv(self, X: Tensor) -> Tensor:
        """``A_i X_i`` of every node: ``(N, n, c) -> (m, c)``."""
        return torch.cat([A.mv(X[i]) for i, A in enumerate(self._matrices)])

    def rmv(self, R: Tensor) -> Tensor:
        """``A_i' R_i`` of every node: ``(m, c) -> (N, n, c)``."""
        parts = zip(self._matrices, self._ranges, strict=True)
        return torch.stack([A.rmv(R[a:b]) for A, (a, b) in parts])

    def weighted_gram(self, weights: Tensor) -> Tensor:
        """``A_i' diag(weights_i) A_i`` of every node, ``(N, n, n)``, in the precision of the weights."""
        parts = zip(self._matrices, self._ranges, strict=True)
        return torch.stack([A.gram(weights[a:b], weights.dtype) for A, (a, b) in parts])

    @property
    def gram(self) -> Tensor:
        """The nodes' Gram matrices under the sample weights, in the data's precision."""
        return self.gram_in(self.source.matrix.dtype)

    def gram_in(self, dtype: torch.dtype) -> Tensor:
        """The same in another precision; made once and shared by all who ask."""
        known, statistics = self.source.grams, self.source.statistics
        if (self.bounds, dtype) not in known:
            if statistics is not None:
                made = statistics.gram.to(dtype)
            elif self.precise and dtype != torch.float64:
                made = self.gram_in(torch.float64).to(dtype)
            else:
                made = self.weighted_gram(self.source.weight.to(dtype))
            known[self.bounds, dtype] = made
        return known[self.bounds, dtype]

    @property
    def cross(self) -> Tensor:
        """``A_i'D_i b_i`` of every node, ``(N, n, c)``."""
        source = self.source
        if source.statistics is not None:
            return source.statistics.cross.to(source.matrix.dtype)
        return self.rmv((source.weight * source.target).to(source.matrix.dtype))

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
