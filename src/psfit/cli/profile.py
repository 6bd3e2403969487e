"""The profile of a table as `psfit inspect` shows it."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psfit.common.names import suggest_name

if TYPE_CHECKING:
    from psfit.data.io import DataFile

# Columns and levels that are printed, and letters of a name.
MOST_COLUMNS, MOST_LEVELS, LONGEST = 60, 4, 32


def profile_facts(
    files: "list[DataFile]", target: str | None, columns: tuple[str, ...] | None, exclude: tuple[str, ...] | None
) -> dict[str, Any]:
    """The profile of the files of one table, of all its columns or of some."""
    from psfit.data.io.profile import profile_table

    facts = profile_table(files, target).facts()
    named = [row["name"] for row in facts["columns"]]
    if target is not None and target not in named:
        meant = suggest_name(target, named)
        facts["problem"] = f"there is no column {target!r}{meant}; its columns are {', '.join(map(repr, named))}"
    facts["columns"] = [row for row in facts["columns"] if _is_wanted(row["name"], columns, exclude)]
    return facts


def _is_wanted(name: str, columns: tuple[str, ...] | None, exclude: tuple[str, ...] | None) -> bool:
    def matches(patterns: tuple[str, ...]) -> bool:
        return name in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

    return (columns is None or matches(columns)) and not (exclude is not None and matches(exclude))


def profile_lines(file: Path, facts: dict[str, Any]) -> list[str]:
    """A profile as lines of text."""
    rows = facts["columns"]
    target = f", target {facts['target']!r}" if facts["target"] is not None else ""
    lines = [f"{file}: {facts['samples']:,} rows x {len(rows):,} columns{target}"]
    lines += [f"  {facts['problem']}"] if "problem" in facts else []
    if facts.get("separator", ",") != ",":
        lines.append(f"  written with {facts['separator']!r} between cells")
    lines += [f"  note       {note}" for note in facts.get("notes", [])]
    if facts.get("ragged_rows"):
        lines.append(
            f"  {facts['ragged_rows']:,} row(s) have another number of cells than the header; they are left out"
        )
    table = [["column", "kind", "missing", "values", "content", "warnings"]]
    table += [_row(row, facts["samples"]) for row in rows[:MOST_COLUMNS]]
    widths = [max(len(row[k]) for row in table) for k in range(5)]
    for name, kind, missing, values, content, warnings in table:
        line = f"  {name:<{widths[0]}}  {kind:<{widths[1]}}  {missing:>{widths[2]}}  {values:>{widths[3]}}  "
        lines.append(f"{line}{content:<{widths[4]}}  {warnings}".rstrip())
    if len(rows) > MOST_COLUMNS:
        lines.append(f"  {len(rows) - MOST_COLUMNS:,} more columns are not shown; --json has them")
    return lines


def _row(row: dict[str, Any], samples: int) -> list[str]:
    share = f"{row['missing']:,} ({row['missing'] / samples:.0%})" if row["missing"] else "0"
    values = "many" if row["values"] is None else f"{row['values']:,}"
    return [_shorten(row["name"]), row["kind"], share, values, _content(row), ", ".join(row["warnings"])]


def _content(row: dict[str, Any]) -> str:
    if "mean" in row:
        return f"{_number(row['least'])} to {_number(row['most'])}, mean {_number(row['mean'])}"
    if "first" in row:
        return f"{row['first']} to {row['last']}"
    levels = list(row.get("levels", {}).items())
    more = f" and {row['values'] - MOST_LEVELS:,} more" if len(levels) > MOST_LEVELS else ""
    return ", ".join(f"{_shorten(level)} ({count:,})" for level, count in levels[:MOST_LEVELS]) + more


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _number(value: float) -> str:
    """A number without an exponent where that is readable."""
    return f"{value:,.0f}" if 1e5 <= abs(value) < 1e15 else f"{value:.6g}"
