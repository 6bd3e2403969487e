"""Cells of a table: the kinds that they allow, the first cell of another kind, and the text of a level."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psfit.data.schema import EXACT, KINDS, Kind

# Dates are also recognised in these forms; with slashes, 1/2/2026 has two meanings.
DATE_FORMATS = ("%d.%m.%Y", "%Y/%m/%d")
# Forms in which dates are often written, but not read unless the user says so.
OTHER_DATE_FORMATS = ("%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y")


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds text or categories."""
    kind = _value_type(kind)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_number(kind: pa.DataType) -> bool:
    """Whether a column holds numbers; an empty column counts as numbers, and its gaps are reported later."""
    types, kind = pa.types, _value_type(kind)
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def is_date(kind: pa.DataType) -> bool:
    """Whether a column holds dates, with or without times."""
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def kinds_of_type(kind: pa.DataType) -> tuple[Kind, ...]:
    """The kinds that a column of this type can have; none for durations, lists and similar types."""
    if is_text(kind):
        return ("category",)
    if is_date(kind):
        return ("date",)
    if pa.types.is_boolean(_value_type(kind)):
        return ("boolean", "category")
    return KINDS if is_number(kind) else ()


def first_of_other_kind(values: pa.Array, kind: Kind) -> int | None:
    """The place of the first cell that is not of a kind; gaps are not looked for."""
    if values.null_count == len(values):
        return None
    if kind == "date":
        return _first_without_date(values)
    if is_text(values.type):
        return None if kind == "category" else first_other_text(values.to_pylist(), kind)
    if not is_number(values.type):
        return 0
    if pa.types.is_boolean(values.type):
        return 0 if kind == "number" else None
    if kind != "boolean":
        return None
    place = pc.index(pc.is_in(values.cast(pa.float64()), value_set=pa.array([0.0, 1.0, None])), False).as_py()
    return None if place < 0 else int(place)


def read_dates(values: pa.Array, own_format: str | None = None) -> pa.Array:
    """Dates, or texts such as 2026-01-31 12:00 or 31.01.2026, as times in microseconds (UTC where a zone is known).

    Texts may also have a format of their own. Those that are no dates are an error of Arrow.
    """
    if is_text(values.type):
        texts = values.cast(pa.string())
        forms = DATE_FORMATS if own_format is None else (own_format, *DATE_FORMATS)
        found = pc.coalesce(*(_parse_dates(texts, form) for form in forms))
        if found.null_count == texts.null_count:
            return found
        others = pc.if_else(found.is_valid(), pa.scalar(None, pa.string()), texts)
        return pc.coalesce(found, others.cast(pa.timestamp("us"), safe=False))
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        values = values.cast(pa.timestamp("us", "UTC"), safe=False)
    return values.cast(pa.timestamp("us"), safe=False)


def _parse_dates(texts: pa.Array, form: str) -> pa.Array:
    """The times of texts in a format, null for others. Arrow alone takes 31.02.2026 for the third of March."""
    found = pc.strptime(texts, form, "us", error_is_null=True)
    pattern = _find_day(form)
    if pattern is None:
        return found
    written = pc.struct_field(pc.extract_regex(texts, pattern), "day").cast(pa.int64())
    return pc.if_else(pc.equal(pc.day(found), written), found, pa.scalar(None, found.type))


def _find_day(form: str) -> str | None:
    """A regular expression that finds the day of the month in texts of a format, if they have one."""
    if form.count("%d") != 1:
        return None
    numbers = {"%d": r"(?P<day>\d{1,2})", "%Y": r"\d{1,4}", **dict.fromkeys(("%m", "%y", "%H", "%M", "%S"), r"\d{1,2}")}
    parts = re.findall(r"%.|\s+|[^%\s]+", form)
    return r"^\s*" + "".join(
        numbers.get(part, ".+?") if part[0] == "%" else r"\s*" if part.isspace() else re.escape(part) for part in parts
    )


def guess_date_formats(texts: pa.Array, known: Sequence[str] = OTHER_DATE_FORMATS) -> tuple[str, ...]:
    """Those of some formats in which all texts can be read as dates; gaps are not looked at."""
    # A year of four digits is not read as one of two.
    length = max(pc.max(pc.utf8_length(texts)).as_py() or 0, 0)
    return tuple(
        form
        for form in known
        if (length > len("01/01/26")) == ("%Y" in form) and _parse_dates(texts, form).null_count == texts.null_count
    )


def suggest_date_formats(formats: Sequence[str]) -> str:
    """How to say in which of some formats dates are written, for the command line and for Python."""
    typed = " or ".join(f"--csv dates={form}" for form in formats)
    return f"{typed} (date_format={' or '.join(map(repr, formats))})"


def _first_without_date(values: pa.Array) -> int | None:
    """The place of the first cell that is no date."""
    if is_date(values.type):
        return None
    return check_dates(values)[1] if is_text(values.type) else 0


def check_dates(texts: pa.Array, own_format: str | None = None) -> tuple[pa.Array | None, int | None]:
    """The dates of texts, which may have a format of their own; or the place of the first one that is no date."""
    try:
        return read_dates(texts, own_format), None
    except pa.ArrowInvalid:
        pass
    # All before `low` are dates, and one before `high` is not.
    low, high = 0, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            read_dates(texts.slice(low, middle - low), own_format)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return None, low


def first_other_text(texts: list[str | None], kind: Kind) -> int:
    """The place of the first text that does not look like the kind; that of the first text if all do."""
    present = [(place, text) for place, text in enumerate(texts) if text is not None]
    for place, text in present:
        try:
            float(text)
        except ValueError:
            if kind == "number" or text.lower() not in ("true", "false"):
                return place
    return present[0][0] if present else 0


def level_texts(values: pa.Array) -> pa.Array:
    """Cells as the texts of levels, the same for all formats.

    Text stays as it is. A whole number has digits only, so that 1 and 1.0 are one level; another number has the fewest
    digits that identify it. Booleans are True and False.
    """
    if is_text(values.type):
        return values.cast(pa.string())
    if pa.types.is_float16(values.type):
        # Arrow cannot encode this type as a dictionary.
        values = values.cast(pa.float32())
    encoded = values.dictionary_encode()
    texts = [_text(value) for value in encoded.dictionary.to_numpy(zero_copy_only=False)]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _text(value: Any) -> str:
    if isinstance(value, np.floating) and value.is_integer() and abs(value) < EXACT:
        return str(int(value))
    return str(value)


def _value_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values; for categories that of the categories."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def widen_type(kind: pa.DataType) -> pa.DataType:
    """Numbers are read as floats: integers in the first lines do not mean that all are integers."""
    return pa.float64() if is_number(kind) and not pa.types.is_boolean(kind) else kind


def to_integers(labels: np.ndarray) -> np.ndarray:
    """Labels as integers if all are whole numbers: a class is called 3, not 3.0."""
    if labels.dtype.kind != "f" or (labels != np.trunc(labels)).any() or (np.abs(labels) >= EXACT).any():
        return labels
    return labels.astype(np.int64)
