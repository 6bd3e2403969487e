"""How a text file is written: what separates its cells, its decimals and its thousands."""

import csv
import io
import re
from collections import Counter
from dataclasses import dataclass

from psfit.data.table_rules import TableRules

SEPARATORS = (",", ";", "\t", "|")
# Lines that decide.
MOST_LINES = 200
# Marks between thousands: a point or a comma, a space of any kind, an apostrophe.
SPACES = (" ", "\u00a0", "\u202f", "'", "\u2019")


class DialectError(ValueError):
    """The first lines do not tell how numbers are written."""


@dataclass(frozen=True)
class Dialect:
    """The characters between cells, before decimals and between thousands, and whether ``""`` is an empty cell."""

    separator: str
    decimal: str = "."
    thousands: str | None = None
    quoted_gaps: bool = False

    @property
    def number(self) -> str:
        """A pattern of the numbers that have thousands separated, and of those that need none."""
        point = re.escape(self.decimal)
        tail = rf"({point}\d*)?([eE][+-]?\d+)?"
        mark = re.escape(self.thousands or "")
        return rf"^\s*[+-]?(\d{{1,3}}({mark}\d{{3}})+|\d+){tail}\s*$"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about the numbers."""
        said = ["its numbers have a decimal comma"] if self.decimal == "," else []
        said += [f"{self.thousands!r} separates thousands in its numbers"] if self.thousands else []
        return tuple(said)


def find_dialect(head: str, usual: str, rules: TableRules) -> Dialect:
    """The dialect of the first lines of a file; `usual` is the separator that its ending suggests."""
    lines = [line for line in head.splitlines() if line.strip()][:MOST_LINES]
    separator = rules.separator or _find_separator(lines, usual)
    rows = _read_rows(lines, separator)
    cells = [cell.strip() for row in rows[1:] for cell in row]
    decimal, thousands = rules.decimal, rules.thousands
    if decimal is None:
        decimal = "," if thousands == "." else "." if thousands == "," else _find_decimal(cells, separator)
    if thousands is None:
        thousands = _find_thousands(cells, decimal)
    if thousands == decimal:
        raise DialectError(f"{decimal!r} cannot both begin decimals and separate thousands")
    quoted_gap = re.compile(rf'(^|{re.escape(separator)})""(?=$|{re.escape(separator)})')
    return Dialect(separator, decimal, thousands, any(quoted_gap.search(line) for line in lines[1:]))


def _read_rows(lines: list[str], separator: str) -> list[list[str]]:
    """The cells of some lines; none if they cannot be divided, as where a cell is far too long."""
    try:
        return list(csv.reader(io.StringIO("\n".join(lines)), delimiter=separator))
    except csv.Error:
        return []


def _find_separator(lines: list[str], usual: str) -> str:
    """The character that gives all lines the same, largest number of cells; the usual one if several do."""
    best, most = usual, 1
    for one in sorted(SEPARATORS, key=lambda mark: mark != usual):
        rows = _read_rows(lines, one)
        counts = Counter(map(len, rows))
        width, lines_of_width = counts.most_common(1)[0] if counts else (1, 0)
        header = len(rows[0]) if rows else 1
        # A damaged line is reported later, with its place; it does not decide on the separator.
        if width > most and header == width and lines_of_width >= 0.9 * counts.total():
            best, most = one, width
    return best


def _is_grouped(cell: str, mark: str, decimal: str) -> bool:
    """Whether a cell is a number with thousands separated by the mark."""
    return bool(re.fullmatch(rf"[+-]?[1-9]\d{{0,2}}({re.escape(mark)}\d{{3}})+({re.escape(decimal)}\d+)?", cell))


def _is_decimal(cell: str, point: str) -> bool:
    """Whether a cell is a number with decimals after this point, and cannot be read as thousands."""
    number = re.fullmatch(rf"[+-]?\d*{re.escape(point)}\d+([eE][+-]?\d+)?", cell)
    return bool(number) and not _is_grouped(cell, point, "\0")


def _find_decimal(cells: list[str], separator: str) -> str:
    """A comma if some cells can only be numbers with a decimal comma, and none only with a decimal point."""
    points = any(_is_decimal(cell, ".") or _is_grouped_with_decimals(cell, ",", ".") for cell in cells)
    commas = any(_is_decimal(cell, ",") or _is_grouped_with_decimals(cell, ".", ",") for cell in cells)
    if commas and not points:
        return ","
    if points or commas or separator == ",":
        return "."
    unclear = next((cell for cell in cells if re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", cell)), None)
    several = any(re.fullmatch(r"[+-]?[1-9]\d{0,2}(,\d{3}){2,}", cell) for cell in cells)
    if unclear is not None and not several:
        raise DialectError(
            f"{unclear!r} can be a number with decimals or with thousands; say which (--csv decimal=, or "
            "--csv thousands=,)"
        )
    return "."


def _is_grouped_with_decimals(cell: str, mark: str, decimal: str) -> bool:
    return decimal in cell and _is_grouped(cell, mark, decimal)


def _find_thousands(cells: list[str], decimal: str) -> str | None:
    """The mark that separates thousands in some cell, if there is one."""
    for mark in ("." if decimal == "," else ",", *SPACES):
        if any(_is_grouped(cell, mark, decimal) for cell in cells):
            return mark
    return None
