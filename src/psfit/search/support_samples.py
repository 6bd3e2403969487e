"""Samples of one output with the columns of each support: losses, derivatives and Hessians by products of batches."""

from dataclasses import dataclass

import torch
from torch import Tensor

from psfit.data import DesignMatrix, Source
from psfit.losses import Loss


@dataclass(frozen=True)
class SupportSamples:
    """Samples of each support: columns ``(B, K, d)``, targets and weights ``(B, K)``; some weights may be zero."""

    columns: Tensor
    target: Tensor
    weight: Tensor

    def sum_losses(self, loss: Loss, x: Tensor, index: Tensor | slice) -> Tensor:
        """The losses of the supports in `index` at their variables ``x (k, d)`` and the derivatives, ``(k, 1 + d)``."""
        columns, target, weight = self.columns[index], self.target[index], self.weight[index]
        eta = torch.bmm(columns, x.unsqueeze(2)).squeeze(2)
        slope = weight * loss.gradient(eta, target)
        sums = torch.bmm(slope.unsqueeze(1), columns).squeeze(1)
        return torch.cat([(weight * loss.value(eta, target)).sum(dim=1, keepdim=True), sums], dim=1)

    def sum_curvatures(self, loss: Loss, x: Tensor, index: Tensor | slice) -> Tensor:
        """The second derivatives ``(k, d, d)`` of the losses."""
        columns = self.columns[index]
        eta = torch.bmm(columns, x.unsqueeze(2)).squeeze(2)
        curvature = self.weight[index] * loss.curvature(eta, self.target[index])
        return torch.bmm((curvature.unsqueeze(2) * columns).mT, columns)


def copy_samples(matrix: DesignMatrix, place: Tensor, source: Source, output: int) -> SupportSamples:
    """All samples with the columns ``place (B, d)`` of a matrix for each support."""
    columns = matrix.chunk(0, matrix.shape[0], torch.float64).T[place].mT.contiguous()
    weight = source.weight.expand(-1, source.outputs)
    target, weight = (part[:, output].expand(len(place), -1) for part in (source.target, weight))
    return SupportSamples(columns, target, weight)
