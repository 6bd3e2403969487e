"""Data: the design matrix, the samples a rank holds, files, and generated problems."""

from psfit.data.block_columns import BlockColumns
from psfit.data.file_source import FileSource
from psfit.data.io.base import DataWarning, ReadingWarning
from psfit.data.matrix import Affine, Dense, DesignMatrix
from psfit.data.sample_source import Samples, SampleSource
from psfit.data.source import NodeSplit, Source
from psfit.data.sparse import Sparse
from psfit.data.streamed import Streamed
from psfit.data.strip import DenseStrip, Strip
from psfit.data.table_source import TableSource

__all__ = [
    "Affine",
    "BlockColumns",
    "DataWarning",
    "Dense",
    "DenseStrip",
    "DesignMatrix",
    "FileSource",
    "NodeSplit",
    "ReadingWarning",
    "SampleSource",
    "Samples",
    "Source",
    "Sparse",
    "Streamed",
    "Strip",
    "TableSource",
]
