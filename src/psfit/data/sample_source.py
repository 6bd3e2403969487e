"""Samples from tables and other files: what is read, and how the parts of several files and ranks fit together."""

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
from psfit.data.io import DataFileError, Part, Pieces, ReadRequest, learn_schema
from psfit.data.io.base import DataWarning, ReadingWarning
from psfit.data.io.common_dialect import common_format, find_missed_sign, gather_dialects
from psfit.data.matrix import DesignMatrix
from psfit.data.parts import count_left_out, drop_rows_without_target, join_parts, require_rows, require_same, widen
from psfit.data.schema import Schema, TextFormat, first_duplicate
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
            rules=self.choose_rules(known, fitted),
            labelled=labelled,
            numeric=numeric,
            schema=known,
            fitted=fitted,
            offset=self.offset,
        )
        budget = memory.budget(torch.device("cpu")) if self.memory is None else memory.parse(self.memory)
        pieces, text = self._open_pieces(wanted, grid)
        if grid.world.rank == 0:
            for note in dict.fromkeys(note for file, _, _ in pieces for note in file.notes):
                warnings.warn(note, ReadingWarning, stacklevel=2)
            for doubt in () if fitted else dict.fromkeys(doubt for file, _, _ in pieces for doubt in file.doubts):
                warnings.warn(doubt, DataWarning, stacklevel=2)
        try:
            return self._read_pieces(pieces, schema, text, wanted, features, budget, grid)
        except DataFileError as error:
            from psfit.data.io.problems import explain

            # The file that the error names may have more problems.
            named = [file for file, _, _ in pieces if str(error).startswith(f"{file.path}:")]
            raise (explain(named[0], error) if named else error) from error.__cause__

    def _open_pieces(self, wanted: ReadRequest, grid: Grid) -> tuple[Pieces, TextFormat]:
        """The parts of this rank, and how the text files of all ranks are written.

        Files that do not show what begins decimals are opened again if others do.
        """
        pieces = grid.run_together(lambda: self.pieces(wanted, grid))
        found = gather_dialects(pieces, grid)
        missed = find_missed_sign(found)
        if missed is not None:
            again = replace(wanted, rules=replace(wanted.rules, decimal=missed))
            pieces = grid.run_together(lambda: self.pieces(again, grid))
            found = gather_dialects(pieces, grid)
        return pieces, common_format(found, wanted.rules)

    def _read_pieces(
        self,
        pieces: Pieces,
        schema: Schema | None,
        text: TextFormat,
        wanted: ReadRequest,
        features: int | None,
        budget: int,
        grid: Grid,
    ) -> Samples:
        """Agree on the schema, read the parts and join them."""
        found = _agree_on_schema(pieces, schema, text, wanted.labelled, grid, self.rules)
        parts = grid.run_together(lambda: [file.part(a, b, found, budget) for file, a, b in pieces])
        if wanted.rules.missing_target == "drop":
            found = replace(found, left_out=_note_left_out(count_left_out(parts, grid), grid))
        part = grid.run_together(lambda: join_parts([drop_rows_without_target(one) for one in parts]))
        grid.run_together(lambda: require_rows(part, grid))
        require_same(part, grid)
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

    def choose_rules(self, known: Schema | None, fitted: bool) -> TableRules:
        """The rules that apply: a fitted model has its own for everything but the text of files.

        It knows dates and missing values as the files of its fit had them; what the source says comes first.
        """
        if not fitted:
            return self.rules
        given = {name: getattr(self, name) for name in TEXT_RULES}
        if known is not None:
            given["missing_marks"] = tuple(dict.fromkeys((*self.missing_marks, *known.text.missing_marks)))
            given["date_format"] = self.date_format or known.text.date_format
        return TableRules(ids=self.ids, missing_target=self.missing_target, **given)

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


def _note_left_out(rows: int, grid: Grid) -> int:
    """Say how many rows have no target."""
    if rows and grid.world.rank == 0:
        warnings.warn(f"{rows:,} row(s) without a target are left out", ReadingWarning, stacklevel=2)
    return rows


def _fill(part: Part, schema: Schema, fitted: bool, budget: int, grid: Grid) -> tuple[RowReader, Schema, Gaps | None]:
    """The rows with missing values filled; for samples to fit, the values that fill them are learned first."""
    names, gaps = part.names or (), None
    if all(column.missing == "refuse" for column in schema.columns):
        return part.features, schema, None
    if not fitted:
        schema, gaps = learn_fills(part.features, schema, names, budget, grid)
    return FilledRows(part.features, np.array(schema.fills(names))), schema, gaps


def _agree_on_schema(
    pieces: Pieces, known: Schema | None, text: TextFormat, labelled: bool, grid: Grid, rules: TableRules
) -> Schema:
    """The schema that the model knows, or else the one learned from all files of all ranks."""
    if known is not None and known.columns and (known.target is not None or not labelled):
        return known
    found = learn_schema(pieces, grid, rules)
    if known is None:
        return replace(found, text=text) if found.columns else found
    return replace(found, columns=known.columns or found.columns, first_index=known.first_index)


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
        csr = widen(csr, max(width, features + first_index))[:, first_index:]
    if not csr.shape[1]:
        raise DataFileError("path: the files have labels, but no feature; write index:value pairs after them")
    return Sparse.of(csr, grid.device, grid.dtype, grid.transfers)
