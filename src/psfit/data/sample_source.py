"""Samples from tables and other files: what is read, and how the parts of several files and ranks fit together."""

import hashlib
import json
import warnings
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse
import torch

from psfit.comm import Grid
from psfit.data import memory
from psfit.data.fills import FilledRows, Gaps, learn_fills
from psfit.data.io import FILES_DIFFER, DataFileError, JoinedRows, Part, Pieces, ReadRequest, learn_schema
from psfit.data.io.base import ReadingWarning
from psfit.data.matrix import DesignMatrix
from psfit.data.schema import Schema, first_duplicate
from psfit.data.sparse import Sparse
from psfit.data.streamed import RowReader, Streamed
from psfit.data.table_rules import TEXT_RULES, TableRules


@dataclass(frozen=True)
class Samples:
    """Samples of this rank: the features on the solver's device, targets, weights and offsets as the file has them.

    `schema` is how they were read, the same on all ranks. `gaps` is where values are missing, for samples to fit whose
    missing values are filled. `ids` are the columns that are passed through to predictions.
    """

    matrix: DesignMatrix
    y: np.ndarray | None
    weight: np.ndarray | None
    names: tuple[str, ...] | None
    schema: Schema
    gaps: Gaps | None = None
    ids: dict[str, np.ndarray] = field(default_factory=dict)
    offset: np.ndarray | None = None


class SampleSource(TableRules):
    """Samples that are read with rules for the columns of tables; `pieces` says where they are.

    The classes that say it are dataclasses with these fields.
    """

    target: str | int | None
    sample_weight: str | None
    columns: tuple[str, ...] | None
    one_hot: bool
    memory: int | str | None
    offset: str | None

    def __post_init__(self) -> None:
        if self.one_hot and self.categories is None:
            object.__setattr__(self, "categories", "group")
        super().__post_init__()
        if self.memory is not None:
            memory.parse(self.memory)
        if isinstance(self.columns, str):
            raise TypeError(f"columns={self.columns!r} must be a sequence of names")
        if isinstance(self.columns, list):
            object.__setattr__(self, "columns", tuple(self.columns))
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise ValueError(f"columns names {first_duplicate(self.columns)!r} twice; name each feature once")

    @property
    def place(self) -> str:
        """What messages about a column begin with: the file, where there is one."""
        return ""

    def name_column(self, column: str | int | None, argument: str) -> str:
        """What messages call a column; without one, the `argument`."""
        return argument if column is None else f"{self.place}column {column!r}"

    @abstractmethod
    def pieces(self, wanted: ReadRequest, grid: Grid) -> Pieces:
        """The tables or files that have this rank's samples, each with a range."""

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
            rules=self._rules(fitted),
            labelled=labelled,
            numeric=numeric,
            schema=known,
            fitted=fitted,
            offset=self.offset,
        )
        budget = memory.budget(torch.device("cpu")) if self.memory is None else memory.parse(self.memory)
        pieces = grid.run_together(lambda: self.pieces(wanted, grid))
        if grid.world.rank == 0:
            for note in dict.fromkeys(note for file, _, _ in pieces for note in file.notes):
                warnings.warn(note, ReadingWarning, stacklevel=2)
        try:
            return self._read_pieces(pieces, schema, wanted, features, budget, grid)
        except DataFileError as error:
            from psfit.data.io.problems import explain

            # The file that the error names may have more problems.
            named = [file for file, _, _ in pieces if str(error).startswith(f"{file.path}:")]
            raise (explain(named[0], error) if named else error) from error.__cause__

    def _read_pieces(
        self,
        pieces: Pieces,
        schema: Schema | None,
        wanted: ReadRequest,
        features: int | None,
        budget: int,
        grid: Grid,
    ) -> Samples:
        """Agree on the schema, read the parts and join them."""
        found = _agree_on_schema(pieces, schema, wanted.labelled, grid, self.rules)
        part = grid.run_together(lambda: _join_parts([file.part(a, b, found, budget) for file, a, b in pieces]))
        grid.run_together(lambda: _require_rows(part, grid))
        _require_same(part, grid)
        if not scipy.sparse.issparse(part.features):
            rows, found, gaps = _fill(part, found, wanted.fitted, budget, grid)
            matrix = self._place(rows, grid)
            return Samples(matrix, part.y, part.weight, part.names, found, gaps, part.ids, part.offset)
        first = _first_index(part, grid, found.first_index, features) if part.open_ended else None
        sparse, found = _make_sparse(part, grid, first, features or 0), replace(found, first_index=first)
        return Samples(sparse, part.y, part.weight, part.names, found, offset=part.offset)

    def change(self, **fields: Any) -> "SampleSource":
        """The same source with other fields."""
        return replace(self, **fields)

    def _rules(self, fitted: bool) -> TableRules:
        """The rules that apply: a fitted model has its own for everything but the text of files."""
        if not fitted:
            return self.rules
        return TableRules(ids=self.ids, **{name: getattr(self, name) for name in TEXT_RULES})

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


def _fill(part: Part, schema: Schema, fitted: bool, budget: int, grid: Grid) -> tuple[RowReader, Schema, Gaps | None]:
    """The rows with missing values filled; for samples to fit, the values that fill them are learned first."""
    names, gaps = part.names or (), None
    if all(column.missing == "refuse" for column in schema.columns):
        return part.features, schema, None
    if not fitted:
        schema, gaps = learn_fills(part.features, schema, names, budget, grid)
    return FilledRows(part.features, np.array(schema.fills(names))), schema, gaps


def _agree_on_schema(pieces: Pieces, known: Schema | None, labelled: bool, grid: Grid, rules: TableRules) -> Schema:
    """The schema that the model knows, or else the one learned from all files of all ranks."""
    if known is not None and known.columns and (known.target is not None or not labelled):
        return known
    found = learn_schema(pieces, grid, rules)
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
    ids = {name: np.concatenate([part.ids[name] for part in parts]) for name in first.ids}
    return Part(features, y, weight, first.names, first.open_ended, ids, offset)


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
    kind = scipy.sparse.issparse(part.features)
    absent = [getattr(part, name) is None for name in ("y", "weight", "offset")]
    return [width, part.names, kind, *absent, list(part.ids)]


def _require_same(part: Part, grid: Grid) -> None:
    """Refuse files that differ from those of another rank."""
    mine = hashlib.sha256(json.dumps(_outline(part)).encode()).digest()
    if len(set(grid.world.all_gather(mine))) > 1:
        raise DataFileError(FILES_DIFFER)


def _require_rows(part: Part, grid: Grid) -> None:
    if part.features.shape[0] == 0 and grid.world.size == grid.nodes.size == 1:
        raise DataFileError("the data have no rows; at least one is needed")
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
