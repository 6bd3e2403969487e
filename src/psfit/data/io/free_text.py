"""Columns of text that are no categories, and cells of text among numbers: what they probably mean, what to do."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from psfit.data.io.cells import first_of_other_kind
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
MARK = re.compile(r"\W+|n\.?[ad]\.?|#?n[/.]?[ad]|none|nil|missing|unknown|<na>|\(null\)", re.IGNORECASE)
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
    if not MARK.fullmatch(text):
        return None
    if not is_text_file(path):
        return f"if {text!r} means a missing value, write it as one"
    typed = f"missing={text}"
    typed = shlex.quote(typed) if NOT_PLAIN.search(typed) else typed
    return f"if {text!r} means a missing value, use --csv {typed} (missing_marks=[{text!r}])"


def explain_mixed(path: Path, texts: Texts) -> str:
    """Which cells of a column of numbers are text, and what to do."""
    others = [text for text in texts.levels if not NUMBER.fullmatch(text)]
    text = next(filter(MARK.fullmatch, others), others[0])
    said = f"{texts.cells - texts.numbers:,} of its {texts.cells:,} cells are no numbers, such as {text!r}"
    meaning = suggest_meaning(path, text)
    return f"{said}; correct them if they are mistakes" if meaning is None else f"{said}; {meaning}, else correct them"


def explain_free_text(path: Path, name: str, texts: Texts) -> str:
    """Why a column of text is no category, and what to do."""
    said = f"column {name!r} is no category: it holds {len(texts.levels):,} different texts in {texts.cells:,} cells"
    exclude = option("exclude", name)
    if texts.is_mixed:
        return f"{said}, and {explain_mixed(path, texts)}, or use {exclude}"
    if first_of_other_kind(pa.array(texts.levels, pa.string()), "date") is None:
        return f"{said}, all of them dates; use {option('dates', 'year,month,weekday,trend')} or {exclude}"
    if all(map(SIGNED.fullmatch, texts.levels)):
        return f"{said}; {suggest_meaning(path, texts.levels[0])}, else use {exclude}"
    return f"{said}; use {option('ids', name)} or {exclude}"
