"""The first line of a text file: the names of its columns."""

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa


def memory_stream(content: bytes) -> pa.NativeFile:
    """Bytes as a stream that refers to no Python object."""
    copy = pa.BufferOutputStream()
    copy.write(content)
    return pa.BufferReader(copy.getvalue())


def looks_like_data(names: list[str]) -> bool:
    """Whether a header looks like data: only numbers, and not all whole; whole numbers may be names of columns."""
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return False
    return not all(number.is_integer() for number in numbers)


def make_distinct(names: list[str]) -> Iterator[str]:
    """The same names; one that has occurred before gets a number."""
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})"
