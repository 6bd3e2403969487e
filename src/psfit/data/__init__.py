"""Data: the design matrix, the samples a rank holds, files, and generated problems."""

from psfit.data.block_columns import BlockColumns
from psfit.data.file_source import FileSource, Samples
from psfit.data.matrix import Affine, Dense, DesignMatrix
from psfit.data.source import NodeSplit, Source
from psfit.data.sparse import Sparse
from psfit.data.streamed import Streamed
from psfit.data.strip import Strip

__all__ = [
    "Affine",
    "BlockColumns",
    "Dense",
    "DesignMatrix",
    "FileSource",
    "NodeSplit",
    "Samples",
    "Source",
    "Sparse",
    "Streamed",
    "Strip",
]
