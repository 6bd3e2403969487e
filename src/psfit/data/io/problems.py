"""All problems of a table at once, worst first, where a fit or a prediction refuses the table."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from psfit.data.io.base import CellError, ColumnError, DataFile, DataFileError, MissingError, ReadRequest
from psfit.data.io.column_profile import ColumnProfile
from psfit.data.io.free_text import Texts, explain_no_category, suggest_marks
from psfit.data.io.profile import TableProfile, profile_table
from psfit.data.io.table_plan import TablePlan
from psfit.data.schema import Kind
from psfit.data.table_rules import option

# The most problems that a message lists, and letters of a cell that it shows.
MOST_PROBLEMS, LONGEST = 12, 60


@dataclass(frozen=True)
class Problem:
    """What is wrong with one column or line, and in how many rows; problems of the target come first."""

    rows: int
    said: str
    of_target: bool = False


def list_problems(file: DataFile) -> list[Problem]:
    """All that a reader of this file would refuse, worst first; empty if the file is no table."""
    from psfit.data.io import open_file
    from psfit.data.io.tables import MemoryTable

    plan: TablePlan | None = getattr(file, "plan", None)
    if plan is None:
        return []
    rules = plan.wanted.rules
    if file.numbers is not None:
        rules = replace(rules, decimal=file.numbers.decimal, thousands=file.numbers.thousands)
    request = ReadRequest(labelled=False, rules=rules, lenient=True)
    again = file if isinstance(file, MemoryTable) else open_file(file.path, request)
    found = profile_table([again], plan.target or "")
    return sorted(_Finder(found, plan, file).find(), key=lambda problem: (not problem.of_target, -problem.rows))


def explain(file: DataFile, error: DataFileError) -> DataFileError:
    """An error that lists all problems of the file, if there is more than the one that was met first."""
    from psfit.data.io.text import TextFile

    of_target = isinstance(error, MissingError)
    if isinstance(error, CellError):
        error = error.with_line(file.find_line(error.row))
    try:
        found = list_problems(file)
    except (ValueError, OSError):
        return error
    if len(found) == 1 and (isinstance(error, ColumnError) or (of_target and found[0].of_target)):
        # The list says how many cells there are, and where the first is.
        return DataFileError(f"{file.path}: {found[0].said}")
    if len(found) < 2:
        return error
    shown = [f"  {problem.said}" for problem in found[:MOST_PROBLEMS]]
    more = len(found) - MOST_PROBLEMS
    rest = [f"  and {more} more; psfit inspect shows all columns"] if more > 0 else []
    counted = "rows are counted from 0"
    counted += ", from the line below the names" if isinstance(file, TextFile) else ""
    return DataFileError("\n".join([f"{file.path}: {len(found)} problems, worst first ({counted}):", *shown, *rest]))


def explain_text(path: Path, wanted: ReadRequest, error: DataFileError) -> DataFileError:
    """The same for a text file that cannot be opened because of a damaged line."""
    from psfit.data.io.text import TextFile

    try:
        file = TextFile(path, replace(wanted, lenient=True))
    except DataFileError:
        return error
    return explain(file, error)


class _Finder:
    """Finds what is wrong with a table, from its profile and from what is asked of it."""

    def __init__(self, found: TableProfile, plan: TablePlan, file: DataFile) -> None:
        self.found, self.plan, self.file = found, plan, file
        schema = plan.wanted.schema
        self.known = {} if schema is None else {column.name: column for column in schema.columns}

    def find(self) -> Iterator[Problem]:
        """All problems, in the order of the columns."""
        found, plan = self.found, self.plan
        if found.ragged:
            number, cells = found.ragged[0]
            place = "" if number is None else f", first {self.file.name_row(number - 1)}"
            yield Problem(
                len(found.ragged),
                f"{len(found.ragged):,} row(s) have another number of cells than the header ({cells} in place of "
                f"{len(found.columns)}{place}); correct or drop them (rows below are counted without them)",
            )
        for name in [*plan.sources, *plan.other_columns]:
            if name in found.columns:
                for problem in self._problems_of(found.columns[name]):
                    yield replace(problem, of_target=name == plan.target)

    def _place(self, row: int | None) -> str:
        """A row, and its line in a text file that has one line for each row."""
        line = None if row is None or self.found.ragged else self.file.find_line(row)
        return f"row {row}" if line is None else f"row {row} (line {line})"

    def _problems_of(self, column: ColumnProfile) -> Iterator[Problem]:
        """The problems of one column."""
        plan, name, feature = self.plan, column.name, column.name in self.plan.sources
        known = self.known.get(name) if feature else None
        roles = {plan.weight: "sample weight", plan.offset: "offset", plan.target: "target"}
        said = f"column {name!r}" if feature else f"the {roles[name]} {name!r}"
        missing = plan.wanted.rules.missing if known is None else known.missing
        if not column.present and feature and known is None:
            yield Problem(column.missing, f"{said} has no value at all; use {option('exclude', name)}")
        elif column.missing and (missing == "refuse" if feature else name != plan.target or not plan.drops_rows):
            share = f" ({column.missing / column.rows:.0%})" if column.missing >= 0.01 * column.rows else ""
            yield Problem(
                column.missing,
                f"{said} has {column.missing:,} missing value(s){share}, first in {self._place(column.first_missing)}; "
                f"{plan.suggest_fill(name)}",
            )
        if column.infinite:
            place = f"first in {self._place(column.first_infinite)}"
            yield Problem(
                column.infinite, f"{said} has {column.infinite:,} infinite value(s), {place}; correct or drop them"
            )
        if feature:
            yield from self._problems_of_kind(column, None if known is None else known.kind, said)
        elif plan.wanted.numeric and column.kind in ("category", "text", "date") and column.first_text is not None:
            row, text = column.first_text
            others = column.present - column.numbers
            # If all cells are text, they are no mistakes.
            classes = name == plan.target and not column.numbers
            remedy = "for classes use --loss logistic (SparseLogisticRegression)"
            remedy = remedy if classes else _suggest(column, text, "number", plan)
            yield Problem(
                others, f"{said} holds text in {others:,} row(s), first {text!r} in {self._place(row)}; {remedy}"
            )

    def _problems_of_kind(self, column: ColumnProfile, wanted: Kind | None, said: str) -> Iterator[Problem]:
        """Cells of a feature that are not of the kind that is wanted; None is a kind that the rules allow."""
        plan, rules, kind = self.plan, self.plan.wanted.rules, column.kind
        if kind == "date" and wanted is None and not rules.dates:
            use = f"use {option('dates', 'year,month,weekday,trend')} or {option('exclude', column.name)}"
            yield Problem(column.present, f"{said} holds dates; {use}")
        if kind not in ("category", "text") or column.first_text is None:
            return
        row, text = column.first_text
        others, texts = column.present - column.numbers, Texts.of(column.values)
        place = f"first {text[:LONGEST]!r} in {self._place(row)}"
        if wanted is None and rules.categories and not column.uncounted and (kind == "text" or texts.is_mistaken):
            yield Problem(others, explain_no_category(plan.path, column.name, texts, place))
        elif wanted == "number" or (wanted is None and (kind == "text" or not rules.categories)):
            levels = "" if column.is_mixed or column.uncounted else f" ({len(column.values):,} different)"
            remedy = _suggest(column, text, wanted, plan)
            yield Problem(others, f"{said} holds text{levels} in {others:,} row(s), {place}; {remedy}")


def _suggest(column: ColumnProfile, text: str, wanted: Kind | None, plan: TablePlan) -> str:
    """What to do about a column of which `text` is the first cell that is no number."""
    meaning = plan.suggest_meaning(text)
    if wanted is not None or column.is_mixed:
        remedy = plan.suggest_remedy(column.name)
        marks = [] if column.uncounted else Texts.of(column.values).marks
        meaning = suggest_marks(plan.path, marks) if marks and column.is_mixed else meaning
        return remedy if meaning is None else f"{meaning}; {remedy}"
    first = option("ids", column.name) if column.kind == "text" else option("categories", "group")
    remedy = f"use {first} or {option('exclude', column.name)}"
    if column.suggested_dates is not None:
        meaning = f"if these are dates, use {column.suggested_dates}"
    return remedy if meaning is None else f"{meaning}; else {remedy}"
