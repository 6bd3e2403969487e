"""Second moments from one pass against sums over explicitly standardised columns, node by node."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
import torch

from psfit.data import Dense, Source, Sparse, Streamed
from psfit.data import streamed as streams
from psfit.data.moments import Moments
from psfit.data.streamed import ArrayRows

ROWS, COLUMNS, TARGETS = 300, 5, 2
BOUNDS = (0, 40, 41, ROWS)
CPU = torch.device("cpu")

KINDS = {
    "dense": lambda X: Dense(torch.tensor(X)),
    "sparse": lambda X: Sparse.of(scipy.sparse.csr_matrix(X), CPU, None),
    "streamed": lambda X: Streamed(ArrayRows(X), CPU, torch.float64, 0),
}


def explicit(X, y, weight, shift, scale, constant):
    """Gram matrices and cross products of the nodes in extended precision."""
    X, y, weight = (np.asarray(part, dtype=np.longdouble) for part in (X, y, weight))
    A = (X - shift) / scale
    A = np.hstack([A, np.full((len(A), 1), constant)]) if constant else A
    parts = [slice(a, b) for a, b in pairwise(BOUNDS)]
    gram = np.stack([A[at].T @ (weight[at] * A[at]) for at in parts])
    cross = np.stack([A[at].T @ (weight[at] * y[at]) for at in parts])
    return gram, cross


def sample(means):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS)) + means
    y, weight = rng.normal(size=(ROWS, TARGETS)) + 3, rng.uniform(size=(ROWS, 1))
    return X, y, weight, rng


def moments(kind, X, y, weight, reference):
    source = Source(KINDS[kind](X), torch.tensor(y), torch.tensor(weight), BOUNDS)
    return Moments.of(source.split(3), torch.tensor(reference), exact=False)


@pytest.mark.parametrize("constant", [0.0, 0.7])
@pytest.mark.parametrize("kind", KINDS)
def test_moments_are_those_of_standardised_columns(kind, constant, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 64 * COLUMNS * 8)
    X, y, weight, rng = sample(np.arange(COLUMNS) - 2.0)
    found = moments(kind, X, y, weight, np.arange(COLUMNS) - 1.9)
    shift, scale = rng.normal(size=COLUMNS), rng.uniform(0.5, 2, size=COLUMNS)
    statistics = found.standardised(torch.tensor(shift), torch.tensor(scale), constant)
    gram, cross = explicit(X, y, weight, shift, scale, constant)
    np.testing.assert_allclose(statistics.gram, gram.astype(float), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(statistics.cross, cross.astype(float), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kind", ["dense", "streamed"])
def test_means_far_from_zero_cost_no_digits(kind):
    """The reference is a rough guess of means that are 1e6 times the spread; it must be all that cancels."""
    X, y, weight, rng = sample(1e6 * np.array([1.0, -1, 2, 0, 3]))
    mean = (weight * X).sum(0) / weight.sum()
    found = moments(kind, X, y, weight, X[:20].mean(0))
    scale = rng.uniform(0.5, 2, size=COLUMNS)
    statistics = found.standardised(torch.tensor(mean), torch.tensor(scale), 1.0)
    gram, cross = explicit(X, y, weight, mean, scale, 1.0)
    np.testing.assert_allclose(statistics.gram, gram.astype(float), rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(statistics.cross, cross.astype(float), rtol=1e-12, atol=1e-11)


def test_sums_and_squares_are_about_the_reference():
    X, y, weight, rng = sample(2.0)
    reference = rng.normal(size=COLUMNS)
    found = moments("streamed", X, y, weight, reference)
    np.testing.assert_allclose(found.sums, (weight * (X - reference)).sum(0), rtol=1e-12)
    np.testing.assert_allclose(found.squares, (weight * (X - reference) ** 2).sum(0), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_columns_far_from_zero_are_refined_without_loss(kind):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(ROWS, COLUMNS)) + 1e5).astype(np.float32)
    matrix = Streamed(ArrayRows(X), CPU, torch.float32, 0) if kind == "streamed" else KINDS[kind](X)
    shift = torch.tensor(X.astype(float).mean(axis=0))
    refined, left = matrix.refined(shift)
    v = torch.tensor(rng.normal(size=(COLUMNS, 1)))
    centred = (X.astype(np.longdouble) - shift.numpy()) @ v.numpy()
    found = refined.mv(v) - left @ v
    assert refined.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), centred.astype(float), atol=1e-9 if bool(left.any()) else 1e-13)
