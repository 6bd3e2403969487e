"""`FileSource`: samples in files; every rank reads only its own part."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse
import torch

from psfit.comm import Grid, even_bounds
from psfit.data import memory
from psfit.data.io import (
    FILES_DIFFER,
    DataFileError,
    JoinedRows,
    Part,
    Pieces,
    ReadRequest,
    find_files,
    learn_schema,
    open_file,
)
from psfit.data.matrix import DesignMatrix
from psfit.data.schema import Schema, first_duplicate
from psfit.data.sparse import Sparse
from psfit.data.streamed import RowReader, Streamed


@dataclass(frozen=True)
class Samples:
    """Samples of this rank: the features on the solver's device, targets, weights and offsets as the file has them.

    `schema` is how they were read, the same on all ranks.
    """

    matrix: DesignMatrix
    y: np.ndarray | None
    weight: np.ndarray | None
    names: tuple[str, ...] | None
    schema: Schema
    offset: np.ndarray | None = None


@dataclass(frozen=True)
class FileSource:
    """Samples in a file, in the files of a folder, or in several files: pass it to `fit` in place of arrays.

    Under torchrun or mpirun every rank reads its own files if there are at least as many files as ranks, else its own
    range of rows (of bytes, if rows are lines of text). Data that do not fit in memory stay on disk and are read again
    in each pass; text is parsed once.

    Parameters
    ----------
    path : str, Path or sequence of them
        ``.npy``, ``.npz`` (arrays X and y, or SciPy's sparse format), ``.csv``, ``.tsv``, ``.parquet``, ``.feather``,
        ``.arrow``, ``.svm`` / ``.libsvm`` / ``.svmlight``, ``.h5`` / ``.hdf5`` (datasets X and y); or a folder of
        files of one format.
    target : str, int or None
        The target: a column of a table (by default the last), an array of an archive (by default y), a column number
        of a ``.npy`` file, or the name of another ``.npy`` file.
    sample_weight : str or None
        The same for sample weights.
    columns : sequence of str or None
        Use only these features.
    one_hot : bool, default=False
        Turn each column of text into one column for every text in it, named ``column=text``. A column is text if any
        of its cells in any file is; then all its cells are read as text.
    memory : int, str or None
        Bytes (or text such as ``"2GB"``) that the features may take in memory; None means half of what is free.
    offset : str or None
        A column, an array or another ``.npy`` file with a number for each sample that is added to its linear predictor.
    """

    path: str | Path | tuple[str | Path, ...]
    target: str | int | None = None
    sample_weight: str | None = None
    columns: tuple[str, ...] | None = None
    one_hot: bool = False
    memory: int | str | None = None
    offset: str | None = None

    def __post_init__(self) -> None:
        if self.memory is not None:
            memory.parse(self.memory)
        if isinstance(self.columns, str):
            raise TypeError(f"columns={self.columns!r} must be a sequence of names")
        for name in ("path", "columns"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise ValueError(f"columns names {first_duplicate(self.columns)!r} twice; name each feature once")

    def read(
        self,
        grid: Grid,
        names: tuple[str, ...] | None = None,
        labelled: bool = True,
        features: int | None = None,
        *,
        schema: Schema | None = None,
        numeric: bool = False,
    ) -> Samples:
        """Read the samples of this rank to its device.

        For a fitted model, `features` is the number of its features, `names` are the features to read, in order, and
        `schema` is what the fit has learned about the columns. With `numeric`, targets must be numbers. All ranks must
        call this; if it fails on one rank, it fails on all with the reason.
        """
        fitted = features is not None
        known = schema if schema is not None and schema.columns else None
        wanted = ReadRequest(
            target=self.target,
            weight=self.sample_weight,
            columns=names or self.columns,
            one_hot=self.one_hot and not fitted,
            labelled=labelled,
            numeric=numeric,
            schema=known,
            fitted=fitted,
            offset=self.offset,
        )
        budget = memory.budget(torch.device("cpu")) if self.memory is None else memory.parse(self.memory)
        pieces = grid.run_together(lambda: self._pieces(wanted, grid))
        found = _agree_on_schema(pieces, schema, labelled, grid)
        part = grid.run_together(lambda: _join_parts([file.part(a, b, found, budget) for file, a, b in pieces]))
        grid.run_together(lambda: _require_rows(part, grid))
        _require_same(part, grid)
        if not scipy.sparse.issparse(part.features):
            return Samples(self._place(part.features, grid), part.y, part.weight, part.names, found, part.offset)
        first = _first_index(part, grid, found.first_index, features) if part.open_ended else None
        matrix = _make_sparse(part, grid, first, features or 0)
        return Samples(matrix, part.y, part.weight, part.names, replace(found, first_index=first), part.offset)

    def _pieces(self, wanted: ReadRequest, grid: Grid) -> Pieces:
        """The files that have this rank's samples, each with a range.

        If every rank can have its own files, it opens no others: they may be on other machines.
        """
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        ranks, rank = grid.nodes.comm.size, grid.nodes.comm.rank
        if len(paths) < ranks or ranks == 1:
            paths = tuple(find_files(paths))
        if len(paths) >= ranks > 1:
            bounds = even_bounds(len(paths), ranks)
            own = [open_file(path, wanted) for path in find_files(paths[bounds[rank] : bounds[rank + 1]])]
            return [(file, 0, file.length) for file in own]
        files = [open_file(Path(path), wanted) for path in paths]
        mine = grid.rows(sum(file.length for file in files))
        pieces, first = [], 0
        for file in files:
            start, stop = max(mine.start, first), min(mine.stop, first + file.length)
            if start < stop:
                pieces.append((file, start - first, stop - first))
            first += file.length
        return pieces or [(files[0], 0, 0)]

    def _place(self, rows: RowReader, grid: Grid) -> DesignMatrix:
        """The rows in the device's memory if there is room, else a matrix that reads them in every pass."""
        double = grid.world.all_reduce(torch.tensor([float(rows.dtype != np.float32)]), "max")
        dtype = grid.dtype or (torch.float64 if bool(double > 0) else torch.float32)
        room = memory.budget(grid.device) if self.memory is None else memory.parse(self.memory)
        matrix = Streamed(rows, grid.device, dtype, room, transfers=grid.transfers)
        fits = matrix.shape[0] * matrix.shape[1] * dtype.itemsize <= room
        # All ranks must take the same branch, or they would wait for each other at different places.
        if bool(grid.world.all_reduce(torch.tensor([float(not fits)])) > 0):
            return matrix
        return grid.run_together(matrix.load)


def _agree_on_schema(pieces: Pieces, known: Schema | None, labelled: bool, grid: Grid) -> Schema:
    """The schema that the model knows, or else the one learned from all files of all ranks."""
    if known is not None and known.columns and (known.target is not None or not labelled):
        return known
    found = learn_schema(pieces, grid)
    if known is None:
        return found
    return replace(found, columns=known.columns or found.columns, first_index=known.first_index)


def _join_parts(parts: list[Part]) -> Part:
    """Join the parts of several files."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(_outline(part) != _outline(first) for part in parts):
        raise DataFileError(FILES_DIFFER)
    if scipy.sparse.issparse(first.features):
        width = max(part.features.shape[1] for part in parts)
        features = scipy.sparse.vstack([_widen(part.features, width) for part in parts], format="csr")
    else:
        features = JoinedRows([part.features for part in parts])
    y = None if first.y is None else _join_targets([part.y for part in parts if part.y is not None])
    weight, offset = (_join([getattr(part, name) for part in parts]) for name in ("weight", "offset"))
    return Part(features, y, weight, first.names, first.open_ended, offset)


def _join(several: list[np.ndarray | None]) -> np.ndarray | None:
    """Join the weights or the offsets of several files; None if they have none."""
    known = [values for values in several if values is not None]
    return np.concatenate(known) if known else None


def _join_targets(several: list[np.ndarray]) -> np.ndarray:
    """Join the targets of several files. Text and numbers cannot be joined: 1 and 1.0 would be different texts."""
    if len({target.dtype.kind in "biuf" for target in several}) > 1:
        raise DataFileError(
            "path: the targets are text in some files and numbers in others; write all as text or all as numbers"
        )
    return np.concatenate(several)


def _outline(part: Part) -> list[object]:
    """What must be the same in all files."""
    width = None if part.open_ended else part.features.shape[1]
    absent = [getattr(part, name) is None for name in ("y", "weight", "offset")]
    return [width, part.names, scipy.sparse.issparse(part.features), *absent]


def _require_same(part: Part, grid: Grid) -> None:
    """Refuse files that differ from those of another rank."""
    mine = hashlib.sha256(json.dumps(_outline(part)).encode()).digest()
    if len(set(grid.world.all_gather(mine))) > 1:
        raise DataFileError(FILES_DIFFER)


def _require_rows(part: Part, grid: Grid) -> None:
    if part.features.shape[0] < len(grid.nodes.hosted):
        raise DataFileError(
            f"{part.features.shape[0]} row(s) are left for rank {grid.world.rank}, which hosts "
            f"{len(grid.nodes.hosted)} node(s); use fewer ranks or nodes, or more data"
        )


def _first_index(part: Part, grid: Grid, known: int | None, features: int | None) -> int:
    """The number of the first column on all ranks: zero if a zero occurs on some rank, else one.

    A fitted model may know it. If it does not, its last feature must occur, or files that count in another way would
    not be noticed.
    """
    # Double precision holds every number of columns exactly.
    zeros = bool((part.features.indices == 0).any())
    seen = torch.tensor([part.features.shape[1], zeros], dtype=torch.float64)
    width, zero = grid.world.all_reduce(seen, "max").tolist()
    if known is not None:
        return known
    if features is not None and not zero and width <= features:
        raise DataFileError(
            "path: the svmlight files do not show whether their columns count from zero or from one, and the model "
            "was not fitted to such files; read them with sklearn.datasets.load_svmlight_file(path, "
            f"n_features={features}, zero_based=...) and pass the matrix"
        )
    return 0 if zero else 1


def _make_sparse(part: Part, grid: Grid, first_index: int | None, features: int) -> Sparse:
    """The sparse matrix with the same columns on all ranks: as many as the widest part has, or the model."""
    csr = part.features
    if first_index is not None:
        width = int(grid.world.all_reduce(torch.tensor([csr.shape[1]], dtype=torch.float64), "max"))
        csr = _widen(csr, max(width, features + first_index))[:, first_index:]
    if not csr.shape[1]:
        raise DataFileError("path: the files have labels, but no feature; write index:value pairs after them")
    return Sparse.of(csr, grid.device, grid.dtype, grid.transfers)


def _widen(csr: scipy.sparse.csr_matrix, width: int) -> scipy.sparse.csr_matrix:
    return scipy.sparse.csr_matrix((csr.data, csr.indices, csr.indptr), shape=(csr.shape[0], width))
