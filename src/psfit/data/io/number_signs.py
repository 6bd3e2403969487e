"""What the cells of a text file show about its decimals and thousands."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Marks between thousands besides a point or a comma: a space of any kind, an apostrophe.
SPACES = (" ", "\u00a0", "\u202f", "'", "\u2019")
WORDS = {".": "point", ",": "comma"}
OTHER = {".": ",", ",": "."}


@dataclass(frozen=True)
class Cell:
    """A cell of the first lines and its place, for a message."""

    text: str
    row: int
    column: str

    def __str__(self) -> str:
        return f"{self.text!r} in row {self.row} (counted from 0) of column {self.column!r}"


@dataclass(frozen=True)
class Signs:
    """The first cells that can only be numbers with one decimal sign, and the first that can be either, by sign.

    ``1.5`` shows a point, ``1.234.567`` a comma; ``1.234`` is unclear.
    """

    shown: dict[str, Cell]
    unclear: dict[str, Cell]

    @classmethod
    def of(cls, rows: Sequence[Sequence[str]]) -> "Signs":
        """Look at the rows below the first one, which has the names."""
        shown: dict[str, Cell] = {}
        unclear: dict[str, Cell] = {}
        for number, row in enumerate(rows[1:]):
            for column, cell in zip(rows[0], row, strict=False):
                if "." not in cell and "," not in cell:
                    continue
                text = cell.strip()
                sign = _find_sign(text)
                if sign is not None:
                    shown.setdefault(sign, Cell(text, number, column))
                elif re.fullmatch(r"[+-]?[1-9]\d{0,2}[.,]\d{3}", text):
                    unclear.setdefault("." if "." in text else ",", Cell(text, number, column))
        return cls(shown, unclear)

    @property
    def decimal(self) -> str | None:
        """What begins decimals, if the cells show it; a point if some cells show it, whatever the others are."""
        return "." if "." in self.shown else "," if self.shown else None


def is_grouped(cell: str, mark: str, decimal: str) -> bool:
    """Whether a cell is a number with thousands separated by the mark."""
    return bool(re.fullmatch(rf"[+-]?[1-9]\d{{0,2}}({re.escape(mark)}\d{{3}})+({re.escape(decimal)}\d+)?", cell))


def _find_sign(cell: str) -> str | None:
    """The decimal sign of a cell that is a number with this sign only."""
    for decimal, other in OTHER.items():
        plain = re.fullmatch(rf"[+-]?\d*{re.escape(decimal)}\d+([eE][+-]?\d+)?", cell)
        several = re.fullmatch(rf"[+-]?[1-9]\d{{0,2}}({re.escape(other)}\d{{3}}){{2,}}", cell)
        marked = decimal in cell and any(is_grouped(cell, mark, decimal) for mark in (other, *SPACES))
        if several or marked or (plain and not is_grouped(cell, decimal, "\0")):
            return decimal
    return None
