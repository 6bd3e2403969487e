"""Cells of a table: what they can be read as, which of them do not fit, and the text of a level."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from psfit.data.schema import KINDS, Kind

# Whole numbers beyond this are not exact in floating point.
EXACT = 2.0**53


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds text or categories."""
    kind = _value(kind)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_number(kind: pa.DataType) -> bool:
    """Whether a column holds numbers; a column of nothing but gaps counts as one, and its gaps are reported."""
    types, kind = pa.types, _value(kind)
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def possible_kinds(kind: pa.DataType) -> tuple[Kind, ...]:
    """What a column of a type can be, as far as the type tells; nothing for dates and the like."""
    if is_text(kind):
        return ("category",)
    if pa.types.is_boolean(_value(kind)):
        return ("boolean", "category")
    return KINDS if is_number(kind) else ()


def misfit(values: pa.Array, kind: Kind) -> int | None:
    """The place of the first cell that is not of a kind; gaps are left to others."""
    if not len(values):
        return None
    if is_text(values.type):
        return None if kind == "category" else first_other(values.to_pylist(), kind)
    if not is_number(values.type):
        return 0
    if pa.types.is_boolean(values.type):
        return 0 if kind == "number" else None
    if kind != "boolean":
        return None
    place = pc.index(pc.is_in(values.cast(pa.float64()), value_set=pa.array([0.0, 1.0])), False).as_py()
    return None if place < 0 else int(place)


def first_other(texts: list[str], kind: Kind) -> int:
    """The place of the first text that does not even look like the kind; where all do, that of the first."""
    for place, text in enumerate(texts):
        try:
            float(text)
        except ValueError:
            if kind == "number" or text.lower() not in ("true", "false"):
                return place
    return 0


def level_texts(values: pa.Array) -> pa.Array:
    """Cells as the texts of levels, the same whatever format they come from.

    Text stays as it is written. A whole number has digits only, so that 1 and 1.0 are one level; other numbers have the
    fewest digits that tell them apart. Booleans are True and False.
    """
    if is_text(values.type):
        return values.cast(pa.string())
    if pa.types.is_float16(values.type):
        # Arrow cannot look for what is different among these.
        values = values.cast(pa.float32())
    encoded = values.dictionary_encode()
    texts = [_text(value) for value in encoded.dictionary.to_numpy(zero_copy_only=False)]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _text(value: Any) -> str:
    if isinstance(value, np.floating) and value.is_integer() and abs(value) < EXACT:
        return str(int(value))
    return str(value)


def _value(kind: pa.DataType) -> pa.DataType:
    """What the categories of a column are."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind
