"""Means and spreads of the columns over all nodes, from sums alone."""

from dataclasses import dataclass

import numpy as np
import torch

from psfit.comm import Grid
from psfit.data.matrix import DesignMatrix

# Rows of each node that give a first mean; squares about this mean do not lose digits.
FEW = 1000
# A spread below this share of the mean is rounding: the column is constant.
CONSTANT = 1e-13


@dataclass(frozen=True)
class ColumnSummary:
    """The number of samples of all nodes, and for each column ``(p,)`` its mean and standard deviation."""

    samples: int
    means: np.ndarray
    spreads: np.ndarray

    @property
    def constant(self) -> np.ndarray:
        """Which columns have the same value in every sample."""
        return np.asarray(self.spreads <= CONSTANT * np.abs(self.means))

    @classmethod
    def of(cls, matrix: DesignMatrix, grid: Grid, weights: np.ndarray | None = None) -> "ColumnSummary":
        """Read every row once; `weights` are those of the samples, ones if there are none.

        All ranks must call this, with all columns of the rows they host.
        """
        rows, p = matrix.shape
        own = np.ones(rows) if weights is None else weights
        few = min(FEW, rows)
        # The first mean only has to be near: it takes all samples as equal.
        some, sums, _ = _sums(matrix.rows(0, few), np.ones(few), np.zeros(p), grid)
        about = sums / some
        weight, sums, squares = _sums(matrix, own, about, grid)
        shift = sums / weight
        spreads = np.sqrt(np.maximum(squares / weight - shift**2, 0.0))
        samples = int(grid.nodes.total(torch.tensor([float(rows)], dtype=torch.float64)))
        return cls(samples, about + shift, spreads)


def _sums(
    matrix: DesignMatrix, weights: np.ndarray, about: np.ndarray, grid: Grid
) -> tuple[float, np.ndarray, np.ndarray]:
    """The weight of all nodes, weighted sums and sums of squares of the columns about a point."""
    p = matrix.shape[1]
    own = torch.from_numpy(weights.astype(float)).reshape(-1, 1).to(matrix.device)
    where = torch.from_numpy(about).to(matrix.device)
    local = grid.run_together(lambda: torch.cat(matrix.column_moments(own, where)).cpu())
    total = grid.nodes.total(torch.cat([local, own.sum().reshape(1).cpu()])).cpu().numpy()
    return float(total[-1]), total[:p], total[p:-1]
