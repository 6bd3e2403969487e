"""The first line of a text file: the names of its columns."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa

# Names that look like cells.
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
DATE = re.compile(r"\s*(\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{4})([ T][\d:.]+)?\s*")


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


# What is said of a first line of which most names are numbers.
DOUBT = "its first line is mostly numbers ({}, ...), so it is probably a row; write the names of the columns above it"


def are_mostly_numbers(names: list[str]) -> bool:
    """Whether half of a header's names or more are numbers and dates, as in a row of data.

    Numbers that only rise or only fall, such as years and wavelengths, may be names.
    """
    numbers = [float(name) for name in names if NUMBER.fullmatch(name)]
    dates = sum(bool(DATE.fullmatch(name)) for name in names)
    pairs = list(pairwise(numbers))
    ordered = all(a < b for a, b in pairs) or all(a > b for a, b in pairs)
    return 2 * (len(numbers) + dates) >= len(names) and not ordered


def make_distinct(names: list[str]) -> Iterator[str]:
    """The same names; one that has occurred before gets a number."""
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})"
