"""All second moments of the nodes' data from a single pass: what the squared loss needs to know, and no more."""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.data.source import NodeSplit, Statistics
from psfit.data.strip import DenseStrip


@dataclass(frozen=True)
class Moments:
    """Weighted sums in float64 about ``reference (p,)``: with ``B = [A - reference, 1]`` for each node

    `gram` is ``B'WB (N, p + 1, p + 1)`` and `cross` is ``B'Wb (N, p + 1, c)``.
    """

    reference: Tensor
    gram: Tensor
    cross: Tensor

    @classmethod
    def of(cls, split: NodeSplit, reference: Tensor) -> "Moments":
        """Read every row once."""
        p, c = split.source.matrix.shape[1], split.source.outputs
        gram = reference.new_zeros(split.nodes, p + 1, p + 1)
        cross = reference.new_zeros(split.nodes, p + 1, c)
        weight, target = split.source.weight.double(), split.source.target.double()
        for node, (matrix, rows) in enumerate(split.parts()):
            for at, strip in matrix.strips(torch.float64):
                here = slice(rows.start + at.start, rows.start + at.stop)
                about = strip.standardised(reference, torch.ones_like(reference), 1.0)
                gram[node] += about.gram(weight[here])
                cross[node] += about.cross([DenseStrip(target[here])], weight[here])
        return cls(reference, gram, cross)

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
        return Statistics(G, cross)
