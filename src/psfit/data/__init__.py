"""Data: the design matrix, the samples a rank holds, and generated problems."""

from psfit.data.matrix import Affine, Dense, DesignMatrix
from psfit.data.source import NodeSplit, Source
from psfit.data.spread import Spread

__all__ = ["Affine", "Dense", "DesignMatrix", "NodeSplit", "Source", "Spread"]
