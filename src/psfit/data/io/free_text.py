"""Columns of text that are no categories, and cells of text among numbers: what they probably mean, what to do."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from psfit.data.io.cells import first_of_other_kind, guess_date_formats, suggest_date_formats
from psfit.data.table_rules import NOT_PLAIN, option

# A column of text with more levels than this, and than this share of its cells, is free text.
MOST_LEVELS, MOST_SHARE = 50, 0.5
# A category that is mostly numbers and has more levels than this is probably a column of numbers; codes have fewer.
MOST_CODES = 20
# Endings of text files, also those of archives that hold one.
TEXT_ENDINGS = (".csv", ".tsv", ".zip")
# A number, however its decimals and thousands are written.
NUMBER = re.compile(r"\s*[+-]?\d[\d.,'’ \u00a0\u202f]*([eE][+-]?\d+)?\s*|\s*[+-]?[.,]\d+([eE][+-]?\d+)?\s*")
# Texts that often stand for a missing value, but are not read as one unless the user says so.
MARK = re.compile(
    r"\W+|n\.?[ad]\.?|#?n[/.]?[ad]|k[./]\s?a\.?|keine angaben?|unbekannt|fehlt|inconnu|none|nil|null|missing|unknown"
    r"|not available|<na>|\(null\)",
    re.IGNORECASE,
)
# A few texts among numbers that occur again and again also stand for missing values.
MOST_MARKS = 3
# The share of numbers from which a column that is not a few codes is one of numbers, and no category.
MOSTLY = 0.8
# Numbers with a sign of money or of percent, which are text.
SIGNED = re.compile(r"\s*(?=.*[$€£¥₹%])[$€£¥₹]?\s*[+-]?\d[\d.,'’ \u00a0\u202f]*[$€£¥₹%]?\s*")


@dataclass(frozen=True)
class Texts:
    """The different texts of a column, its cells, and how many of these are numbers."""

    levels: tuple[str, ...]
    cells: int
    numbers: int

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> "Texts":
        """From how often each text occurs."""
        numbers = sum(count for text, count in counts.items() if NUMBER.fullmatch(text))
        return cls(tuple(counts), sum(counts.values()), numbers)

    @classmethod
    def union(cls, several: Sequence["Texts"]) -> "Texts":
        """Those of several ranges of a column."""
        levels = sorted({text for one in several for text in one.levels})
        return cls(tuple(levels), sum(one.cells for one in several), sum(one.numbers for one in several))

    @property
    def is_mixed(self) -> bool:
        """Whether most cells are numbers, but some are not."""
        return self.cells < 2 * self.numbers < 2 * self.cells

    @property
    def is_doubtful(self) -> bool:
        """Whether a few cells probably made a category of a column of numbers."""
        return self.is_mixed and (len(self.levels) > MOST_CODES or any(map(MARK.fullmatch, self.levels)))

    @property
    def is_mistaken(self) -> bool:
        """Whether nearly all cells are numbers, so that the others are mistakes or missing values."""
        return self.is_doubtful and self.numbers >= MOSTLY * self.cells

    @property
    def others(self) -> list[str]:
        """The texts that are no numbers."""
        return [text for text in self.levels if not NUMBER.fullmatch(text)]

    @property
    def marks(self) -> list[str]:
        """The texts among numbers that probably stand for missing values."""
        others = self.others
        repeated = len(others) <= MOST_MARKS and self.cells - self.numbers > len(others)
        return others if repeated else [text for text in others if MARK.fullmatch(text)][:MOST_MARKS]

    @property
    def is_free(self) -> bool:
        """Whether there are too many levels for a category."""
        return is_free_text(len(self.levels), self.cells)


def is_free_text(levels: int, cells: int) -> bool:
    """Whether a column of text has too many levels for a category."""
    return levels > max(MOST_LEVELS, MOST_SHARE * cells)


def is_text_file(path: Path) -> bool:
    """Whether users can say how the cells are written."""
    return any(ending.lower() in TEXT_ENDINGS for ending in path.suffixes)


def suggest_meaning(path: Path, text: str) -> str | None:
    """What to do about a text that is probably a missing value, or a number with a sign; None for other texts."""
    if SIGNED.fullmatch(text):
        return f"if {text!r} is a number, write it without the sign"
    return suggest_marks(path, [text]) if MARK.fullmatch(text) else None


def suggest_marks(path: Path, texts: Sequence[str]) -> str:
    """What to do about some texts if they mean missing values."""
    said = " or ".join(map(repr, texts))
    if not is_text_file(path):
        return f"if {said} means a missing value, write it as one"
    typed = [f"missing={text}" for text in texts]
    typed = [f"--csv {shlex.quote(one) if NOT_PLAIN.search(one) else one}" for one in typed]
    return f"if {said} means a missing value, use {' '.join(typed)} (missing_marks={list(texts)!r})"


def explain_mixed(path: Path, texts: Texts, first: str | None = None) -> str:
    """Which cells of a column of numbers are text, and what to do; `first` names the first of them and its place."""
    text = (texts.marks or texts.others)[0]
    said = (
        f"{texts.cells - texts.numbers:,} of its {texts.cells:,} cells are no numbers, {first or f'such as {text!r}'}"
    )
    if texts.marks:
        return f"{said}; {suggest_marks(path, texts.marks)}, else correct them"
    meaning = suggest_meaning(path, text)
    return f"{said}; correct them if they are mistakes" if meaning is None else f"{said}; {meaning}, else correct them"


def explain_no_category(path: Path, name: str, texts: Texts, first: str | None = None) -> str:
    """Why a column of text is no category, and what to do; `first` names the first cell that is no number."""
    said = f"column {name!r} is no category: it holds {len(texts.levels):,} different texts in {texts.cells:,} cells"
    exclude = option("exclude", name)
    if texts.is_mixed:
        return f"{said}, and {explain_mixed(path, texts, first)}, or use {exclude}"
    levels = pa.array(texts.levels, pa.string())
    parts = option("dates", "year,month,weekday,trend")
    if first_of_other_kind(levels, "date") is None:
        return f"{said}, all of them dates; use {parts} or {exclude}"
    formats = guess_date_formats(levels) if is_text_file(path) else ()
    if formats:
        return f"{said}; if these are dates, use {suggest_date_formats(formats)} and {parts}, else {exclude}"
    if all(map(SIGNED.fullmatch, texts.levels)):
        return f"{said}; {suggest_meaning(path, texts.levels[0])}, else use {exclude}"
    return f"{said}; use {option('ids', name)} or {exclude}"
