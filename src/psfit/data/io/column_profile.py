"""The profile of a column: what its cells are, how many are missing, and what looks wrong. Nothing is refused."""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psfit.data.io.cell_reader import DAY
from psfit.data.io.cells import (
    OTHER_DATE_FORMATS,
    guess_date_formats,
    is_date,
    is_number,
    is_text,
    level_texts,
    read_dates,
    suggest_date_formats,
)
from psfit.data.io.dialect import Dialect
from psfit.data.io.free_text import MARK, MOST_MARKS, Texts, is_free_text, suggest_marks
from psfit.data.io.thousands import to_numbers

# Different values that are counted one by one.
MOST_VALUES = 100_000
# Levels that JSON shows.
MOST_LEVELS = 50
# Rows from which levels of fewer than `RARE` rows are named.
MANY_ROWS, RARE = 100, 5
# Letters of a text that a warning shows.
LONGEST = 30
# Rows from which a column without repetitions looks like an id.
FEW_ROWS = 20
# Numbers have no zeros in front of other digits; codes may have.
CODE = re.compile(r"0\d+")
PLAIN_DATE = r"^\s*(\d{4}-\d{2}-\d{2}([ T][\d:.,+Zz-]*)?|\d{2}\.\d{2}\.\d{4}|\d{4}/\d{2}/\d{2})\s*$"
MIDNIGHT = re.compile(r"[ T]00:00:00(\.0+)?$")
BOOLEAN = r"^(true|false|True|False|TRUE|FALSE)$"


@dataclass
class ColumnProfile:
    """What is known of one column after all its rows.

    `numbers`, `flags`, `dates` and `texts` count its cells by what they can be; `infinite` are among the numbers. A
    place is the row and the text of the first such cell. All texts can be read as dates in any of the `date_formats`.
    """

    name: str
    rows: int = 0
    missing: int = 0
    numbers: int = 0
    infinite: int = 0
    flags: int = 0
    dates: int = 0
    texts: int = 0
    total: float = 0.0
    least: float = float("inf")
    most: float = float("-inf")
    first_missing: int | None = None
    first_text: tuple[int, str] | None = None
    first_infinite: int | None = None
    values: Counter[str] = field(default_factory=Counter)
    uncounted: bool = False
    nested: str | None = None
    date_formats: tuple[str, ...] = OTHER_DATE_FORMATS
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, cells: pa.Array, dialect: Dialect | None) -> np.ndarray:
        """Count the cells of the next rows; return them as numbers, NaN where they are none."""
        if cells.null_count and self.first_missing is None:
            self.first_missing = self.rows + pc.index(cells.is_null(), True).as_py()
        self.missing += cells.null_count
        numbers = self._count_text(cells, dialect) if is_text(cells.type) else self._count_typed(cells)
        finite = np.isfinite(numbers)
        infinite = np.isinf(numbers)
        if infinite.any() and self.first_infinite is None:
            self.first_infinite = self.rows + int(infinite.argmax())
        self.infinite += int(infinite.sum())
        if finite.any():
            self.total += float(numbers[finite].sum())
            self.least = min(self.least, float(numbers[finite].min()))
            self.most = max(self.most, float(numbers[finite].max()))
        self._count_values(cells)
        self.rows += len(cells)
        return numbers

    def _count_text(self, cells: pa.Array, dialect: Dialect | None) -> np.ndarray:
        texts = cells.cast(pa.string())
        pattern = (dialect or Dialect(",")).number
        if dialect is None or dialect.thousands is None:
            point = "," if dialect is not None and dialect.decimal == "," else r"\."
            pattern = rf"^\s*[+-]?(\d+({point}\d*)?|{point}\d+)([eE][+-]?\d+)?\s*$|^\s*[+-]?(inf|Inf|INF|infinity)\s*$"
        number = pc.match_substring_regex(texts, pattern).fill_null(False)
        flag = pc.match_substring_regex(texts, BOOLEAN).fill_null(False)
        date = pc.match_substring_regex(texts, PLAIN_DATE).fill_null(False)
        other = pc.invert(pc.or_(pc.or_(number, flag), pc.or_(date, texts.is_null())))
        self.numbers += pc.sum(number).as_py() or 0
        self.flags += pc.sum(flag).as_py() or 0
        self.dates += pc.sum(date).as_py() or 0
        self.texts += pc.sum(other).as_py() or 0
        # In a column of numbers, booleans and dates are out of place, too.
        strange = pc.index(pc.invert(pc.or_(number, texts.is_null())), True).as_py()
        if strange >= 0 and self.first_text is None:
            self.first_text = self.rows + strange, texts[strange].as_py()
        # Only for text files can users say how dates are written.
        self.date_formats = () if dialect is None else guess_date_formats(texts, self.date_formats)
        digits = pc.if_else(number, texts, pa.scalar(None, pa.string()))
        found = to_numbers(digits, dialect or Dialect(","))
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=float)

    def _count_typed(self, cells: pa.Array) -> np.ndarray:
        present = len(cells) - cells.null_count
        if is_date(cells.type):
            self.dates += present
            times = read_dates(cells).cast(pa.int64()).cast(pa.float64())
            return np.full(len(cells), np.nan) if not present else np.asarray(times.to_numpy(False), dtype=float) / DAY
        if pa.types.is_boolean(cells.type):
            self.flags += present
        elif is_number(cells.type):
            self.numbers += present
        else:
            self.texts += present
            self.date_formats = ()
            self.first_text = self.first_text or (self.rows, str(cells.type))
            self.nested = str(cells.type) if pa.types.is_nested(cells.type) else self.nested
            return np.full(len(cells), np.nan)
        return np.asarray(cells.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=float)

    def _count_values(self, cells: pa.Array) -> None:
        simple = is_text(cells.type) or is_number(cells.type)
        if pa.types.is_nested(cells.type):
            texts = pa.array([None if one is None else str(one) for one in cells.to_pylist()], pa.string())
        else:
            texts = level_texts(cells) if simple and len(cells) else cells.cast(pa.string())
        self.digest.update("\x00".join("\x01" if text is None else text for text in texts.to_pylist()).encode())
        if self.uncounted:
            return
        for one in pc.value_counts(texts.drop_null()).to_pylist():
            self.values[one["values"]] += one["counts"]
        self.uncounted = len(self.values) > MOST_VALUES

    @property
    def present(self) -> int:
        """Cells that are not missing."""
        return self.rows - self.missing

    @property
    def kind(self) -> str:
        """Number, boolean, date, category, text, or empty."""
        if not self.present:
            return "empty"
        if self.numbers == self.present:
            return "number"
        if self.flags == self.present or (self.flags and self.flags + self._zeros_and_ones == self.present):
            return "boolean"
        if self.dates == self.present:
            return "date"
        return "text" if self.uncounted or is_free_text(len(self.values), self.present) else "category"

    @property
    def _zeros_and_ones(self) -> int:
        return self.values["0"] + self.values["1"]

    @property
    def is_mixed(self) -> bool:
        """Whether nearly all cells are numbers, but some are not: probably a mistake in these."""
        return self.kind in ("category", "text") and self.numbers > 0.5 * self.present

    @property
    def suggested_dates(self) -> str | None:
        """How to have the texts read as dates, if all of them look like dates in a form that is not recognised."""
        if not self.texts or self.texts < self.present or not self.date_formats:
            return None
        return suggest_date_formats(self.date_formats)

    def list_warnings(self, path: Path) -> list[str]:
        """What looks wrong with the column alone."""
        found = [] if self.suggested_dates is None else [f"dates? then use {self.suggested_dates}"]
        if self.kind == "empty":
            found.append("empty")
        elif len(self.values) == 1 and not self.uncounted:
            found.append("constant")
        if self.nested is not None:
            found.append(f"nested ({self.nested}): no fit can use it")
        every_one_differs = self.uncounted or len(self.values) == self.present
        whole = self.kind == "number" and all(value.lstrip("-").isdigit() for value in self.values)
        free_text = self.kind == "text" and self.suggested_dates is None
        if self.present >= FEW_ROWS and every_one_differs and (free_text or whole):
            found.append("id-like")
        if self.kind == "number" and any(CODE.fullmatch(value) for value in self.values):
            found.append("zeros in front, as codes have: a fit reads numbers")
        if self.is_mixed:
            example = "" if self.first_text is None else f", first {self.first_text[1][:LONGEST]!r}"
            found.append(f"{self.present - self.numbers:,} cell(s) are no numbers{example}")
        found += self._suggest_marks(path)
        rare = sum(count < RARE for count in self.values.values()) if self.kind == "category" else 0
        if rare and self.present >= MANY_ROWS:
            found.append(f"{rare:,} of {len(self.values):,} levels in fewer than {RARE} rows")
        if self.infinite:
            found.append(f"{self.infinite:,} infinite")
        return found

    def _suggest_marks(self, path: Path) -> list[str]:
        """What to do about texts that probably mean missing values."""
        if self.uncounted or self.kind not in ("category", "text"):
            return []
        texts = Texts.of(self.values)
        marks = texts.marks if texts.is_mixed else [text for text in self.values if MARK.fullmatch(text)]
        return [suggest_marks(path, marks[:MOST_MARKS])] if marks else []

    def list_needs(self, is_target: bool) -> list[str]:
        """What a fit would refuse, and the options with which it does not."""
        if is_target:
            return [f"{self.missing:,} row(s) without a target: needs --missing-target drop"] if self.missing else []
        options = {"date": "--dates", "category": "--categories", "text": "--id or --exclude", "empty": "--exclude"}
        option = "--dates" if self.suggested_dates is not None else options.get(self.kind)
        # Numbers with a few texts need no option, but other cells.
        found = [] if option is None or self.nested is not None or self.is_mixed else [f"needs {option}"]
        return found + (["needs --missing"] if self.missing and self.present else [])

    def facts(self) -> dict[str, Any]:
        """The profile as values that JSON can hold."""
        levels = None if self.uncounted else len(self.values)
        found: dict[str, Any] = {"name": self.name, "kind": self.kind, "missing": self.missing, "values": levels}
        if self.kind == "number" and self.numbers > self.infinite:
            mean = self.total / (self.numbers - self.infinite)
            found |= {"least": self.least, "mean": mean, "most": self.most}
        elif self.kind in ("category", "boolean") and not self.uncounted:
            found["levels"] = dict(sorted(self.values.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_LEVELS])
        elif self.kind == "date" and self.values:
            ends = min(self.values, key=_date_order), max(self.values, key=_date_order)
            found |= {name: MIDNIGHT.sub("", text) for name, text in zip(("first", "last"), ends, strict=True)}
        return found


def _date_order(text: str) -> str:
    """A date with the year first."""
    day, month, year = text[:2], text[3:5], text[6:10]
    return f"{year}-{month}-{day}" if text[2:3] == "." else text
