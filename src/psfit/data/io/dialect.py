"""How a text file is written: what separates its cells, its decimals and its thousands."""

import csv
import io
import re
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from psfit.data.io.number_signs import OTHER, SPACES, WORDS, Signs, is_grouped
from psfit.data.schema import TextFormat
from psfit.data.table_rules import TableRules

SEPARATORS = (",", ";", "\t", "|")
# Lines that decide.
MOST_LINES = 200
# Why decimals begin in some way: cells show it or the user says it; cells such as 1.234 do not; no cell has a sign.
Basis = Literal["shown", "default", "none"]


class DialectError(ValueError):
    """The first lines do not tell how numbers are written."""


@dataclass(frozen=True)
class Dialect:
    """The characters between cells, before decimals and between thousands, and whether ``""`` is an empty cell.

    The `basis` says why decimals begin in this way.
    """

    separator: str
    decimal: str = "."
    thousands: str | None = None
    quoted_gaps: bool = False
    basis: Basis = "none"

    @property
    def number(self) -> str:
        """A pattern of the numbers that have thousands separated, and of those that need none."""
        point = re.escape(self.decimal)
        mark = re.escape(self.thousands or "")
        whole = rf"([1-9]\d{{0,2}}({mark}\d{{3}})+|\d+)"
        return rf"^\s*[+-]?({whole}({point}\d*)?|{point}\d+)([eE][+-]?\d+)?\s*$"

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about the numbers."""
        said = ["decimal comma"] if self.decimal == "," else []
        said += [f"{self.thousands!r} between thousands"] if self.thousands else []
        if self.basis == "default" and not self.thousands:
            said.append("numbers such as 1.234 are read with a decimal point (else use --csv thousands=.)")
        return tuple(said)


def find_dialect(head: str, usual: str, rules: TableRules, known: TextFormat) -> Dialect:
    """The dialect of the first lines of a file.

    `usual` is the separator that its ending suggests, and `known` is how the files of a fit were written.
    """
    lines = [line for line in head.splitlines() if line.strip()][:MOST_LINES]
    separator = rules.separator or _find_separator(lines, usual)
    decimal, thousands, basis = _find_numbers(_read_rows(lines, separator), separator, rules, known)
    if thousands == decimal:
        raise DialectError(f"{decimal!r} cannot both begin decimals and separate thousands")
    quoted_gap = re.compile(rf'(^|{re.escape(separator)})""(?=$|{re.escape(separator)})')
    return Dialect(separator, decimal, thousands, any(quoted_gap.search(line) for line in lines[1:]), basis)


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


def _find_numbers(
    rows: list[list[str]], separator: str, rules: TableRules, known: TextFormat
) -> tuple[str, str | None, Basis]:
    """What begins decimals, what separates thousands, and why.

    What the user says comes first, then the format of the fit, then what the cells show.
    """
    signs, cells = Signs.of(rows), [cell.strip() for row in rows[1:] for cell in row]
    asked = rules.decimal or OTHER.get(rules.thousands or "")
    if asked is not None:
        return asked, rules.thousands or _find_thousands(cells, asked), "shown"
    if known.decimal is not None:
        _require_known_sign(signs, known)
        mark = rules.thousands or known.thousands or _find_thousands(cells, known.decimal)
        return known.decimal, mark, "shown"
    decimal, basis = _find_decimal(signs, separator)
    return decimal, rules.thousands or known.thousands or _find_thousands(cells, decimal), basis


def _find_decimal(signs: Signs, separator: str) -> tuple[str, Basis]:
    """What begins decimals; a point if no cell shows it, unless the separator speaks against it."""
    if signs.decimal is not None:
        return signs.decimal, "shown"
    # Where semicolons separate cells, decimals often have a comma; where commas do, they hardly ever have one.
    doubtful = {",": separator != ",", ".": separator == ";"}
    for sign, cell in signs.unclear.items():
        if doubtful[sign]:
            raise DialectError(
                f"{cell.text!r} can be a number with decimals or with thousands; say which (--csv "
                f"decimal={sign}, or --csv thousands={sign})"
            )
    return ".", "default" if signs.unclear else "none"


def _require_known_sign(signs: Signs, known: TextFormat) -> None:
    """Refuse a file that is written in another way than those of the fit, or whose numbers have two meanings."""
    decimal = str(known.decimal)
    other = OTHER[decimal]
    fit = f"the text files of the fit had a decimal {WORDS[decimal]}"
    if other in signs.shown and decimal not in signs.shown:
        raise DialectError(
            f"{signs.shown[other]} has a decimal {WORDS[other]}, but {fit}; if that is right, use --csv "
            f"decimal={WORDS[other]}, else --csv decimal={WORDS[decimal]}"
        )
    if other in signs.unclear and known.thousands is None and not signs.shown:
        raise DialectError(
            f"{signs.unclear[other]} can be a number with decimals or with thousands: {fit} and no separated "
            f"thousands; say which (--csv decimal={other}, or --csv thousands={other})"
        )


def _find_thousands(cells: list[str], decimal: str) -> str | None:
    """The mark that separates thousands in some cell, if there is one."""
    for mark in (OTHER[decimal], *SPACES):
        if any(is_grouped(cell, mark, decimal) for cell in cells):
            return mark
    return None
