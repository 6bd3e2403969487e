"""Which columns of a table are features, target, weights, offsets and ids, and how each of them is read."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pyarrow as pa

from psfit.common.names import list_names, suggest_name
from psfit.data.io.base import CellError, DataFileError, PossibleKinds, ReadRequest
from psfit.data.io.cell_reader import CellReader, plain_cells
from psfit.data.io.cells import is_date, is_text, kinds_of_type
from psfit.data.io.free_text import NUMBER, is_text_file, suggest_meaning
from psfit.data.io.number_signs import OTHER, WORDS
from psfit.data.schema import Column, Feature, Kind, Schema, first_duplicate
from psfit.data.table_rules import option, split_offset


@dataclass(frozen=True)
class TablePlan(CellReader):
    """How the columns of one table are used.

    `types` are those of the file, or those that its first rows suggest. `sources` are the columns that give features;
    `asked` are the features or columns that were asked for, or None for all. The offset is the column `offset`, or its
    logarithm with `log_offset`.
    """

    path: Path
    types: pa.Schema
    wanted: ReadRequest
    target: str | None
    weight: str | None
    ids: tuple[str, ...]
    sources: tuple[str, ...]
    asked: tuple[str, ...] | None
    offset: str | None = None
    log_offset: bool = False

    @classmethod
    def of(cls, path: Path, types: pa.Schema, wanted: ReadRequest) -> "TablePlan":
        """Check the request against the columns of the table."""
        names = types.names
        if not names:
            raise DataFileError(f"{path}: the table has no columns")
        if len(set(names)) < len(names):
            raise DataFileError(f"{path}: column {first_duplicate(names)!r} occurs twice; rename one of them")
        rules = wanted.rules
        # A fitted model knows which columns it uses.
        excluded = () if wanted.fitted else match_names(path, names, "exclude", rules.exclude)
        ids = match_names(path, names, "ids", _asked_ids(names, wanted))
        target = None
        if wanted.labelled:
            usable = [name for name in names if name not in {*excluded, *ids}]
            asked = _default_target(usable or names, wanted) if wanted.target is None else wanted.target
            target = _require_column(path, names, "target", asked)
        weight = None if wanted.weight is None else _require_column(path, names, "sample_weight", wanted.weight)
        offset, log_offset = (None, False) if wanted.offset is None else _offset_column(path, names, wanted.offset)
        _require_distinct(path, target, weight, offset)
        # A target that is not read is not a feature either.
        others = [name for name in names if name not in {target, weight, offset, wanted.target, *excluded, *ids}]
        asked_columns, sources = _source_columns(path, names, others, wanted)
        if not sources:
            raise DataFileError(f"{path}: there is no column left for features besides {target!r}")
        if target in sources:
            raise DataFileError(f"{path}: column {target!r} is the target; leave it out of columns, or name another")
        if offset in sources:
            raise DataFileError(f"{path}: column {offset!r} is the offset; leave it out of columns")
        return cls(path, types, wanted, target, weight, ids, sources, asked_columns, offset, log_offset)

    def possible_kinds(self) -> PossibleKinds:
        """The kinds that the types of the columns allow; none for a column that cannot be used.

        Features that a fitted model knows are left out.
        """
        unknown = self.sources if self.wanted.schema is None else ()
        rules = self.wanted.rules
        columns = {name: self._allowed_kinds(name, bool(rules.categories), bool(rules.dates)) for name in unknown}
        target = None if self.target is None else self._allowed_kinds(self.target, not self.wanted.numeric, False)
        unused: dict[str, Kind] = {name: "id" if name in self.ids else "ignored" for name in self.unused}
        return PossibleKinds(columns, target, self.target, unused if self.wanted.schema is None else {})

    def _allowed_kinds(self, name: str, texts: bool, dates: bool) -> tuple[Kind, ...]:
        barred = [kind for kind, allowed in (("category", texts), ("date", dates)) if not allowed]
        return tuple(kind for kind in kinds_of_type(self.types.field(name).type) if kind not in barred)

    def refuse(self, name: str, batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Raise the error of a column that cannot be used; `batches` of it show where its first text is."""
        kind = self.types.field(name).type
        if is_text(kind):
            for first, batch in batches:
                self._cells(batch, Column(name, "number", missing="fill"), first)
        what, use = str(kind), "turn it into numbers or leave it out (columns)"
        if is_date(kind):
            what, use = "dates", f"use {option('dates', 'year,month,weekday,trend')}, or {option('exclude', name)}"
        if name == self.target:
            use = "use numbers or text"
        raise DataFileError(f"{self.path}: column {name!r} holds {what}; {use}")

    @property
    def drops_rows(self) -> bool:
        """Whether rows without a target are left out."""
        return self.target is not None and self.wanted.rules.missing_target == "drop"

    def present(self, batch: pa.RecordBatch) -> np.ndarray | None:
        if not self.drops_rows:
            return None
        return np.asarray(plain_cells(batch, str(self.target), True).is_valid().to_numpy(zero_copy_only=False))

    def with_target(self, names: Iterable[str]) -> list[str]:
        """Some columns, and the target if rows without it are left out."""
        return list(dict.fromkeys([*names, *([str(self.target)] if self.drops_rows else [])]))

    def features(self, schema: Schema) -> list[Feature]:
        """The features to read, in the order of the request."""
        return schema.features(self.asked, exact=self.wanted.fitted)

    def columns(self, schema: Schema) -> dict[str, Column]:
        """How every column is read, by name: those of the features, of the target, of weights and of offsets."""
        known = {column.name: column for column in schema.columns}
        found = {name: known[name] for name in self.sources}
        if self.target is not None:
            missing = "fill" if self.drops_rows else "refuse"
            found[self.target] = Column(self.target, schema.target or "number", missing=missing)
        for name in (self.weight, self.offset):
            if name is not None:
                boolean = pa.types.is_boolean(self.types.field(name).type)
                found[name] = Column(name, "boolean" if boolean else "number")
        return found

    def values(self, batch: pa.RecordBatch, column: Column, first: int) -> np.ndarray:
        found = super().values(batch, column, first)
        if not self.log_offset or column.name != self.offset:
            return found
        if not (found > 0).all():
            row = int(np.argmin(found > 0))
            remedy = "the logarithm of an offset needs positive numbers; correct such cells or drop their rows"
            raise CellError(self.path, column.name, first + row, f"holds {found[row]:g}", remedy)
        return np.asarray(np.log(found.astype(np.float64)))

    def category(self, name: str) -> Column:
        """A column of text whose levels are not known yet."""
        return Column(name, "category", missing=self.wanted.rules.missing)

    @property
    def other_columns(self) -> list[str]:
        """The columns that are not features: target, weights and offsets."""
        return [name for name in (self.target, self.weight, self.offset) if name is not None]

    @property
    def unused(self) -> list[str]:
        """The columns that are neither features nor target, weights or offsets."""
        return [name for name in self.types.names if name not in {*self.sources, *self.other_columns}]

    @property
    def dtype(self) -> np.dtype:
        """Single precision if no column has more."""
        kinds = [self.types.field(name).type for name in self.sources]
        single = all(pa.types.is_float32(kind) or pa.types.is_float16(kind) for kind in kinds)
        return np.dtype(np.float32 if single else np.float64)

    def takes_dates(self, kind: Kind) -> bool:
        return is_text_file(self.path) and (kind == "date" or not self.wanted.fitted)

    def suggest_remedy(self, name: str) -> str:
        if name == self.weight:
            return "sample weights must be numbers"
        if name == self.offset:
            return "offsets must be numbers"
        if self.wanted.fitted:
            return "correct such cells or drop their rows"
        if name == self.target and self.wanted.numeric:
            return "correct such cells; for classes use --loss logistic (SparseLogisticRegression)"
        if name == self.target:
            return "write all labels as numbers, or all as text"
        if self.wanted.rules.categories:
            return "write the column in the same way in all rows and files"
        return f"correct such cells, use {option('exclude', name)} or {option('categories', 'group')}"

    def suggest_meaning(self, text: str) -> str | None:
        known = None if self.wanted.schema is None else self.wanted.schema.text.decimal
        if known is None or self.wanted.rules.decimal is not None or not NUMBER.fullmatch(text):
            return suggest_meaning(self.path, text)
        other = OTHER[known]
        return (
            f"the files of the fit had a decimal {WORDS[known]}; if this one has a {WORDS[other]}, use --csv "
            f"decimal={WORDS[other]} (decimal={other!r})"
        )

    def suggest_fill(self, name: str) -> str:
        if name == self.target:
            return f"correct such rows, or use {option('missing_target', 'drop')} to leave them out"
        if name in self.other_columns:
            return "drop such rows"
        if self.wanted.fitted:
            return "the model refuses missing values; correct or drop such rows, or fit it with --missing fill"
        return f"use {option('missing', 'fill')}, or drop such rows"


def _require_distinct(path: Path, target: str | None, weight: str | None, offset: str | None) -> None:
    """Target, weights and offsets must be different columns."""
    if target is not None and target == weight:
        raise DataFileError(
            f"{path}: column {target!r} cannot be both the target and the sample weights; name the target "
            "(by default it is the last column)"
        )
    if offset is not None and offset in (target, weight):
        raise DataFileError(
            f"{path}: column {offset!r} cannot be the offset and also the target or the sample weights; name the "
            "target (by default it is the last column)"
        )


def _offset_column(path: Path, names: list[str], asked: str) -> tuple[str, bool]:
    """The column of the offset, and whether its logarithm is meant."""
    name, is_logarithm = split_offset(asked)
    if is_logarithm and asked in names:
        raise DataFileError(
            f"{path}: offset={asked!r} means the logarithm of a column, but a column has this name; rename it"
        )
    return _require_column(path, names, "offset", name, asked), is_logarithm


def _asked_ids(names: list[str], wanted: ReadRequest) -> tuple[str, ...]:
    """The columns to pass through: those asked for, or those of the fit that the table has."""
    if wanted.rules.ids or wanted.schema is None:
        return wanted.rules.ids
    return tuple(name for name in wanted.schema.ids if name in names)


def _default_target(names: list[str], wanted: ReadRequest) -> str:
    """The target if none is named: the target of the fit, or the last column."""
    known = None if wanted.schema is None else wanted.schema.target_name
    return names[-1] if known is None else known


def _source_columns(
    path: Path, names: list[str], others: list[str], wanted: ReadRequest
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """What is asked for, with patterns replaced by names, and the columns that give it."""
    if wanted.columns is None:
        return None, tuple(others)
    if wanted.schema is not None:
        found = [feature.column for feature in wanted.schema.features(wanted.columns, exact=wanted.fitted)]
        return wanted.columns, _require_columns_of_fit(path, names, list(dict.fromkeys(found)))
    asked: list[str] = []
    for name in wanted.columns:
        if name in names or _source_column(names, name) in names or not _is_pattern(name):
            asked.append(name)
        else:
            asked += match_names(path, others, "columns", (name,))
    asked = list(dict.fromkeys(asked))
    made = [_source_column(names, name) for name in asked] if wanted.rules.categories or wanted.rules.dates else asked
    needed = list(dict.fromkeys(made))
    if wanted.fitted:
        return tuple(asked), _require_columns_of_fit(path, names, needed)
    return tuple(asked), tuple(_require_column(path, names, "columns", name) for name in needed)


def _require_columns_of_fit(path: Path, names: list[str], needed: list[str]) -> tuple[str, ...]:
    """The columns that a fitted model needs; all that are not there are named at once."""
    absent = [name for name in needed if name not in names]
    if absent:
        said = list_names(f"{name!r}{suggest_name(name, names)}" for name in absent)
        known = list_names(map(repr, names))
        raise DataFileError(
            f"{path}: the model needs {len(absent)} column(s) that are not there: {said}; add or rename them, or fit "
            f"again with {option('exclude', absent[0])}; its columns are {known}"
        )
    return tuple(needed)


def match_names(path: Path, names: list[str], argument: str, asked: Iterable[str]) -> tuple[str, ...]:
    """The names that are asked for, in their order in the table; a name that matches nothing is an error."""
    found: set[str] = set()
    for name in asked:
        matches = {name} if name in names else {one for one in names if _is_pattern(name) and fnmatchcase(one, name)}
        found |= matches or {_require_column(path, names, argument, name)}
    return tuple(name for name in names if name in found)


def _is_pattern(name: str) -> bool:
    return any(letter in name for letter in "*?[")


def _source_column(names: list[str], name: str) -> str:
    """The column of a feature: ``colour=red`` comes from ``colour``, ``when:year`` from ``when``."""
    cuts = (at for at, letter in enumerate(name) if letter in "=:")
    return name if name in names else next((name[:cut] for cut in cuts if name[:cut] in names), name)


def _require_column(path: Path, names: list[str], argument: str, name: str | int, asked: str | None = None) -> str:
    """A column that must be there; `asked` is the value of the argument, where it is not only the name."""
    if name not in names:
        meant, known = suggest_name(name, names), list_names(map(repr, names))
        raise DataFileError(
            f"{path}: {argument}={asked or name!r}: there is no such column{meant}; its columns are {known}"
        )
    return str(name)
