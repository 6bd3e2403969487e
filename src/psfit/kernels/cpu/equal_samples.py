"""Different samples on a support, from the few samples that deviate in each column from what most samples have."""

import numpy as np

from psfit.kernels.cpu.compiler import compile_loops

# A key is looked for in a table from a place on that its product with this number gives.
SPREAD = 0x9E3779B97F4A7C15


@compile_loops
def count_samples(
    rows: np.ndarray,
    places: np.ndarray,
    starts: np.ndarray,
    samples: np.ndarray,
    codes: np.ndarray,
    weights: np.ndarray,
    keys: np.ndarray,
    sums: np.ndarray,
) -> int:
    """Write the different keys of the samples to `keys`, and the sums of their weights to `sums`; return how many.

    A key has the code of every row of a table, moved to its place among the bits. Row ``rows[a]`` has the codes
    ``starts[row]`` to ``starts[row + 1] - 1``, which belong to the samples in `samples`; those of all others are zero.
    Their first bit is bit ``places[a]`` of a key. The result is -1 if the keys are more than there is room for.
    """
    own, bits = np.zeros(len(weights), np.int64), 1
    for a in range(len(rows)):
        for e in range(starts[rows[a]], starts[rows[a] + 1]):
            own[samples[e]] += np.int64(codes[e]) << places[a]
    while 1 << bits < 2 * len(keys) + 2:
        bits += 1
    # The number of the key that was found at each place of the table, plus one.
    table, found = np.zeros(1 << bits, np.int32), 0
    for i in range(len(own)):
        at = np.int64((np.uint64(own[i]) * np.uint64(SPREAD)) >> np.uint64(64 - bits))
        while table[at] > 0 and keys[table[at] - 1] != own[i]:
            at = (at + 1) & ((1 << bits) - 1)
        if table[at] == 0:
            if found == len(keys):
                return -1
            keys[found], sums[found] = own[i], 0.0
            found += 1
            table[at] = found
        sums[table[at] - 1] += weights[i]
    return found


@compile_loops
def read_keys(keys: np.ndarray, rows: np.ndarray, places: np.ndarray, levels: np.ndarray, values: np.ndarray) -> None:
    """Write the ``values (K, d)`` of the columns behind each of the ``keys (K,)``.

    The number of a value of column a is in the bits of a key from ``places[a]`` to ``places[a + 1] - 1``, and the
    values are in row ``rows[a]`` of `levels`.
    """
    for a in range(len(rows)):
        mask = (np.int64(1) << (places[a + 1] - places[a])) - 1
        for k in range(len(keys)):
            values[k, a] = levels[rows[a], (keys[k] >> places[a]) & mask]


def compile_kernels() -> None:
    """Compile the functions, or load them from the disk."""
    some, one = np.zeros(1, np.int64), np.ones(1)
    count_samples(some, some, np.array([0, 1]), np.zeros(1, np.int32), np.ones(1, np.uint8), one, some.copy(), one)
    read_keys(some, some, np.array([0, 1]), np.ones((1, 1)), np.ones((1, 1)))
