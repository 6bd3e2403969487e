"""Forms of raw columns from one pass against sums over explicitly standardised columns, node by node."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
import torch

from psfit.data import Dense, Source, Sparse, Streamed
from psfit.data import streamed as streams
from psfit.data.raw_form import RawForm
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
    """``2 A'WA``, ``2 A'Wb`` and ``sum w b^2`` of the nodes in extended precision."""
    X, y, weight = (np.asarray(part, dtype=np.longdouble) for part in (X, y, weight))
    A = (X - shift) / scale
    A = np.hstack([A, np.full((len(A), 1), constant)]) if constant else A
    parts = [slice(a, b) for a, b in pairwise(BOUNDS)]
    G = np.stack([2 * A[at].T @ (weight[at] * A[at]) for at in parts])
    Q = np.stack([2 * A[at].T @ (weight[at] * y[at]) for at in parts])
    return G, Q, np.stack([(weight[at] * y[at] ** 2).sum(axis=0) for at in parts])


def check(form, expected, rtol):
    G, Q, constant = (part.astype(float) for part in expected)
    np.testing.assert_allclose(form.G, G, rtol=rtol, atol=1e-11)
    np.testing.assert_allclose(form.Q, Q, rtol=rtol, atol=1e-11)
    np.testing.assert_allclose(form.constant, constant, rtol=rtol)


def sample(means):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS)) + means
    y, weight = rng.normal(size=(ROWS, TARGETS)) + 3, rng.uniform(size=(ROWS, 1))
    return X, y, weight, rng


def split_of(kind, X, y, weight):
    return Source(KINDS[kind](X), torch.tensor(y), torch.tensor(weight), BOUNDS).split(3)


def raw_form(kind, X, y, weight, reference):
    return RawForm.of(split_of(kind, X, y, weight), torch.tensor(reference), exact=False)


@pytest.mark.parametrize("constant", [0.0, 0.7])
@pytest.mark.parametrize("kind", KINDS)
def test_forms_are_those_of_standardised_columns(kind, constant, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 64 * COLUMNS * 8)
    X, y, weight, rng = sample(np.arange(COLUMNS) - 2.0)
    found = raw_form(kind, X, y, weight, np.arange(COLUMNS) - 1.9)
    shift, scale = rng.normal(size=COLUMNS), rng.uniform(0.5, 2, size=COLUMNS)
    form = found.standardise(torch.tensor(shift), torch.tensor(scale), constant)
    check(form, explicit(X, y, weight, shift, scale, constant), rtol=1e-11)
    assert not bool(form.curvature.rounded.any())


@pytest.mark.parametrize("kind", ["dense", "streamed"])
def test_means_far_from_zero_cost_no_digits(kind):
    """The reference is a rough guess of means that are 1e6 times the spread; it must be all that cancels."""
    X, y, weight, rng = sample(1e6 * np.array([1.0, -1, 2, 0, 3]))
    mean = (weight * X).sum(0) / weight.sum()
    found = raw_form(kind, X, y, weight, X[:20].mean(0))
    scale = rng.uniform(0.5, 2, size=COLUMNS)
    form = found.standardise(torch.tensor(mean), torch.tensor(scale), 1.0)
    check(form, explicit(X, y, weight, mean, scale, 1.0), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_the_rows_add_up_to_all_of_them(kind, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 64 * COLUMNS * 8)
    X, y, weight, rng = sample(1.0)
    part = torch.tensor(rng.integers(0, 3, size=ROWS))
    reference = torch.tensor(rng.normal(size=COLUMNS))
    forms = RawForm.of_parts(split_of(kind, X, y, weight), reference, False, part, 3)
    zero, one = np.zeros(COLUMNS), np.ones(COLUMNS)
    for chosen in ([0], [0, 2], [0, 1, 2]):
        masked = weight * np.isin(part.numpy(), chosen)[:, None]
        form = RawForm.sum([forms[k] for k in chosen]).standardise(torch.tensor(zero), torch.tensor(one), 1.0)
        check(form, explicit(X, y, masked, zero, one, 1.0), rtol=1e-10)
    nothing = forms[0].empty().form
    assert not any(bool(tensor.any()) for tensor in (nothing.G, nothing.Q, nothing.constant))


def test_a_level_is_subtracted_from_the_targets():
    X, y, weight, _ = sample(0.0)
    level = np.array([1e5, -3.0])
    y = y + level
    lower = split_of("dense", X, y - level, weight)
    found = raw_form("dense", X, y, weight, np.zeros(COLUMNS)).subtract_level(torch.tensor(level), lower)
    form = found.standardise(torch.zeros(COLUMNS), torch.ones(COLUMNS, dtype=torch.float64), 1.0)
    G, Q, constant = explicit(X, y - level, weight, 0.0, 1.0, 1.0)
    np.testing.assert_allclose(form.G, G.astype(float), rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(form.Q, Q.astype(float), atol=1e-6)
    np.testing.assert_allclose(form.constant, constant.astype(float), rtol=1e-12)


def test_sums_and_squares_are_about_the_reference():
    X, y, weight, rng = sample(2.0)
    reference = rng.normal(size=COLUMNS)
    found = raw_form("streamed", X, y, weight, reference)
    np.testing.assert_allclose(found.sums, (weight * (X - reference)).sum(0), rtol=1e-12)
    np.testing.assert_allclose(found.squares, (weight * (X - reference) ** 2).sum(0), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_columns_far_from_zero_are_refined_without_loss(kind):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(ROWS, COLUMNS)) + 1e5).astype(np.float32)
    matrix = Streamed(ArrayRows(X), CPU, torch.float32, 0) if kind == "streamed" else KINDS[kind](X)
    shift = torch.tensor(X.astype(float).mean(axis=0))
    refined, left = matrix.refine(shift)
    v = torch.tensor(rng.normal(size=(COLUMNS, 1)))
    centred = (X.astype(np.longdouble) - shift.numpy()) @ v.numpy()
    found = refined.mv(v) - left @ v
    assert refined.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), centred.astype(float), atol=1e-9 if bool(left.any()) else 1e-13)
