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
    def of(cls, matrix: DesignMatrix, grid: Grid) -> "ColumnSummary":
        """Read every row once. All ranks must call this, with all columns of the rows they host."""
        few = min(FEW, matrix.shape[0])
        start = np.zeros(matrix.shape[1])
        some, sums, _ = _sums(matrix.rows(0, few), start, grid)
        about = sums / some
        samples, sums, squares = _sums(matrix, about, grid)
        shift = sums / samples
        spreads = np.sqrt(np.maximum(squares / samples - shift**2, 0.0))
        return cls(int(samples), about + shift, spreads)


def _sums(matrix: DesignMatrix, about: np.ndarray, grid: Grid) -> tuple[float, np.ndarray, np.ndarray]:
    """The number of samples of all nodes, sums and sums of squares of the columns about a point."""
    rows, p = matrix.shape
    ones = torch.ones(rows, 1, dtype=torch.float64, device=matrix.device)
    where = torch.from_numpy(about).to(matrix.device)
    local = grid.run_together(lambda: torch.cat(matrix.column_moments(ones, where)).cpu())
    total = grid.nodes.total(torch.cat([local, torch.tensor([float(rows)], dtype=torch.float64)])).cpu().numpy()
    return float(total[-1]), total[:p], total[p:-1]
