"""Numbers whose thousands are separated, such as 1,234.5; Arrow reads them as text."""

import pyarrow as pa
import pyarrow.compute as pc

from psfit.data.io.dialect import Dialect


def are_grouped(cells: pa.Array, dialect: Dialect) -> bool:
    """Whether all cells are numbers, with or without separated thousands."""
    present = cells.drop_null()
    return len(present) > 0 and bool(pc.all(pc.match_substring_regex(present, dialect.number)).as_py())


def read_grouped(cells: pa.Array, dialect: Dialect) -> tuple[pa.Array | None, int | None]:
    """The texts as numbers; or None and the place of the first text that is no number."""
    other = pc.index(pc.match_substring_regex(cells, dialect.number), False).as_py()
    if other >= 0:
        return None, int(other)
    return to_numbers(cells, dialect), None


def to_numbers(texts: pa.Array, dialect: Dialect) -> pa.Array:
    """Texts that are numbers of the dialect, as numbers."""
    digits = pc.replace_substring(texts, dialect.thousands, "") if dialect.thousands else texts
    return pc.replace_substring(pc.utf8_trim_whitespace(digits), dialect.decimal, ".").cast(pa.float64())
