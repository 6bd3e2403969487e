"""Fixed-point numbers of 256 bits: sums that are exact, in any order, and that masks can hide.

A number x is the integer ``round(x 2^112)`` modulo 2^256. Sums modulo 2^256 are exact, so a sum over N clients differs
from the exact sum of their float64 numbers by at most ``N 2^-113`` (about N 1e-34). It is then rounded to float64, to
about one unit in the last place. Numbers must be smaller than 2^110 (about 1e33). Infinities and NaN have places of
their own far above, so that a sum that contains one is infinite or NaN again, and never a wrong finite number.
"""

import numpy as np

WORDS = 4
WORD_BITS = 64
BYTES = 8 * WORDS
FRACTION_BITS = 112
# The largest number of clients: the places of infinities and NaN stay apart for so many.
MOST_CLIENTS = 1024
LARGEST = 2.0**110
# The places of +inf and of NaN (with -inf), and where a sum counts as one.
INFINITE, UNDEFINED = 122, 132
MANTISSA_BITS = 53


class RangeError(ValueError):
    """A number is too large for a sum over clients."""


def encode(values: np.ndarray) -> np.ndarray:
    """The fixed-point form ``(WORDS, n)``, lowest word first, of float64 numbers ``(n,)``."""
    finite = np.isfinite(values)
    usable = np.where(finite, values, 0.0)
    if usable.size and np.abs(usable).max() >= LARGEST:
        raise RangeError("a sum over clients holds numbers of 1e33 or more; change the units of the columns or of y")
    words = _place(usable)
    words[:, usable < 0] = negate(words[:, usable < 0])
    for mark, bits in ((values == np.inf, INFINITE), (~finite & (values != np.inf), UNDEFINED)):
        words[:, mark] = 0
        words[(bits + FRACTION_BITS) // WORD_BITS, mark] = 1 << (bits + FRACTION_BITS) % WORD_BITS
    return words


def decode(words: np.ndarray) -> np.ndarray:
    """The float64 numbers of fixed-point numbers, or of a sum of them."""
    negative = words[-1] >> np.uint64(WORD_BITS - 1) == 1
    size = words.copy()
    size[:, negative] = negate(size[:, negative])
    total = np.zeros(words.shape[1])
    half = np.uint64(32)
    # The lowest parts first, so that each addition rounds less than the next one.
    for word in range(WORDS):
        for part, shift in ((size[word] & np.uint64(0xFFFFFFFF), 0), (size[word] >> half, 32)):
            total += np.ldexp(part.astype(np.float64), WORD_BITS * word + shift - FRACTION_BITS)
    total[~negative & (total >= 2.0 ** (INFINITE - 1))] = np.inf
    total[~negative & (size[-1] >= np.uint64(1) << np.uint64((UNDEFINED - 1 + FRACTION_BITS) % WORD_BITS))] = np.nan
    return np.where(negative, -total, total)


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum modulo 2^256."""
    total = np.empty_like(a)
    carry = np.zeros(a.shape[1], dtype=np.uint64)
    for word in range(WORDS):
        part = a[word] + b[word]
        over = part < a[word]
        total[word] = part + carry
        carry = (over | (total[word] < part)).astype(np.uint64)
    return total


def negate(a: np.ndarray) -> np.ndarray:
    """The number whose sum with ``a`` is zero."""
    one = np.zeros_like(a)
    one[0] = 1
    return add(~a, one)


def subtract(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The difference modulo 2^256."""
    return add(a, negate(b))


def zeros(count: int) -> np.ndarray:
    """So many zeros."""
    return np.zeros((WORDS, count), dtype=np.uint64)


def from_bits(bits: np.ndarray) -> np.ndarray:
    """Numbers whose lowest word holds the given 64 bits: for copies, which must not change a bit."""
    words = zeros(len(bits))
    words[0] = bits
    return words


def from_bytes(data: bytes, count: int) -> np.ndarray:
    """The numbers in a buffer; raises ValueError unless there are exactly so many."""
    if len(data) != BYTES * count:
        raise ValueError(f"{len(data)} bytes cannot hold {count} numbers of {BYTES} bytes")
    return np.frombuffer(data, dtype="<u8").reshape(WORDS, count).astype(np.uint64)


def to_bytes(words: np.ndarray) -> bytes:
    """The numbers as bytes, the same on every machine."""
    return words.astype("<u8").tobytes()


def _place(values: np.ndarray) -> np.ndarray:
    """The integers of the absolute values."""
    mantissa, exponent = np.frexp(np.abs(values))
    integer = np.ldexp(mantissa, MANTISSA_BITS)
    shift = exponent.astype(np.int64) - MANTISSA_BITS + FRACTION_BITS
    # Bits below the last place are rounded away.
    integer = np.where(shift < 0, np.rint(np.ldexp(integer, np.minimum(shift, 0))), integer).astype(np.uint64)
    shift = np.maximum(shift, 0)
    word, bit = shift // WORD_BITS, (shift % WORD_BITS).astype(np.uint64)
    low = integer << bit
    high = np.where(bit > 0, integer >> (np.uint64(WORD_BITS) - np.maximum(bit, np.uint64(1))), np.uint64(0))
    places = np.arange(WORDS)[:, None]
    return np.where(places == word, low, np.uint64(0)) | np.where(places == word + 1, high, np.uint64(0))


def is_unusable(words: np.ndarray) -> bool:
    """Whether numbers are not finite, or larger than any client may send."""
    values = decode(words)
    return not bool((np.abs(values) < 2 * LARGEST).all())
