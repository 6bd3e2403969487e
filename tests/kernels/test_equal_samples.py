"""Different samples and the sums of their weights, against a dictionary of rows."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psfit.kernels.cpu.equal_samples import count_samples, read_keys

SAMPLES = 40
PLACES = np.array([0, 3, 40])


def count(table, room, weights):
    """The keys and the sums of the rows 2, 0 and 3 of a table of codes."""
    samples = [np.flatnonzero(row) for row in table]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in samples])])
    codes = np.concatenate([row[at] for row, at in zip(table, samples, strict=True)]).astype(np.uint8)
    keys, sums = np.empty(room, np.int64), np.empty(room)
    samples = np.concatenate(samples).astype(np.int32)
    found = count_samples(np.array([2, 0, 3]), PLACES, starts, samples, codes, weights, keys, sums)
    return found, keys, sums


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@settings(deadline=None)
@given(seed=st.integers(0, 2**16))
def test_samples_are_counted_by_their_rows(share, seed):
    rng = np.random.default_rng(seed)
    table = np.where(rng.random((4, SAMPLES)) < share, rng.integers(0, 8, (4, SAMPLES)), 0)
    weights = rng.integers(0, 5, SAMPLES).astype(float)
    expected = Counter()
    for row, weight in zip(table[[2, 0, 3]].T.tolist(), weights.tolist(), strict=True):
        expected[tuple(row)] += weight
    found, keys, sums = count(table, SAMPLES, weights)
    rows = [tuple(int(key) >> place & 7 for place in PLACES.tolist()) for key in keys[:found]]
    assert len(set(rows)) == found
    assert dict(zip(rows, sums[:found].tolist(), strict=True)) == dict(expected)


def test_too_many_different_samples_have_no_room():
    table, weights = np.zeros((4, SAMPLES), int), np.ones(SAMPLES)
    table[0, :7] = range(1, 8)
    assert count(table, 8, weights)[0] == 8
    assert count(table, 7, weights)[0] == -1


def test_keys_are_read_back():
    levels = np.array([[0.5, -1.0, 2.0, 7.0], [3.0, 4.0, 0.0, 0.0]])
    keys, values = np.array([0b1_10, 0b0_11, 0]), np.empty((3, 2))
    read_keys(keys, np.array([0, 1]), np.array([0, 2, 3]), levels, values)
    assert values.tolist() == [[2.0, 4.0], [7.0, 3.0], [0.5, 3.0]]
