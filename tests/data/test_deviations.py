"""Dense matrices stored as a common row and sparse deviations, against the arrays themselves."""

import numpy as np
import pytest
import torch

from psfit import SparseLogisticRegression
from psfit.data import Dense, Sparse, deviations
from psfit.data.deviations import find_deviations, separate_deviations

ROWS, COLUMNS = 3000, 40


def draw_categories(dtype=np.float64, order="C"):
    """Standardised columns of zeros and ones, of which some are mostly ones, and a column of several numbers."""
    generator = np.random.default_rng(0)
    table = (generator.random((ROWS, COLUMNS)) < np.linspace(0.01, 0.3, COLUMNS)).astype(float)
    table[:, 1::2] = 1 - table[:, 1::2]
    table[:, 4] *= generator.integers(1, 5, ROWS)
    return np.array((table - table.mean(axis=0)) / table.std(axis=0), dtype, order=order)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
def test_few_deviations_are_found(dtype, order):
    # In single precision standardised numbers have differences that are rounded.
    table = draw_categories(np.float64, order)
    table = table if dtype == np.float64 else np.round(8 * table).astype(dtype)
    rows, common = find_deviations(torch.from_numpy(table))
    assert rows.dtype == dtype
    assert rows.has_canonical_format
    assert rows.nnz == sum((column != np.median(column)).sum() for column in table.T)
    np.testing.assert_allclose(rows.toarray() + common.numpy(), table, rtol=0, atol=1e-14)


def test_differences_that_are_rounded_in_single_precision_are_not_stored():
    assert find_deviations(torch.from_numpy(draw_categories(np.float32))) is None


def test_matrices_with_many_numbers_or_few_entries_stay_as_they_are(monkeypatch):
    generator = np.random.default_rng(1)
    assert find_deviations(torch.from_numpy(generator.standard_normal((ROWS, COLUMNS)))) is None
    assert find_deviations(torch.from_numpy((generator.random((ROWS, COLUMNS)) < 0.4).astype(float))) is None
    assert find_deviations(torch.from_numpy(draw_categories()[:100])) is None
    half = np.hstack([draw_categories()[:, :20], generator.standard_normal((ROWS, 20))])
    assert find_deviations(torch.from_numpy(half)) is None
    monkeypatch.setattr(deviations, "MOST_ENTRIES", ROWS * COLUMNS - 1)
    assert find_deviations(torch.from_numpy(draw_categories())) is None


def test_the_samples_at_the_beginning_do_not_decide_alone():
    table = draw_categories()
    table[:60] = np.random.default_rng(2).standard_normal((60, COLUMNS))
    rows, common = find_deviations(torch.from_numpy(table))
    np.testing.assert_allclose(rows.toarray() + common.numpy(), table, rtol=0, atol=1e-14)


def test_what_is_left_of_the_shift_is_small():
    table = draw_categories()
    base, shift = Dense(torch.from_numpy(table)), torch.zeros(COLUMNS, dtype=torch.float64)
    matrix, left = separate_deviations(base, shift, torch.full_like(shift, 4.0))
    assert isinstance(matrix, Sparse)
    stored = matrix.chunk(0, ROWS, torch.float64).numpy()
    np.testing.assert_allclose(stored - left.numpy(), table, rtol=0, atol=1e-14)
    # Weights can move the mean away from what most samples have.
    kept, whole = separate_deviations(base, shift + 10.0, torch.full_like(shift, 4.0))
    assert kept is base
    assert torch.equal(whole, shift + 10.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_fits_do_not_depend_on_the_way_of_storage(weighted, monkeypatch):
    X = draw_categories()
    assert find_deviations(torch.from_numpy(X)) is not None
    generator = np.random.default_rng(3)
    y = X[:, [3, 8, 21]] @ [1.0, -1.0, 0.7] + generator.logistic(size=ROWS) > 0
    weight = generator.uniform(0.5, 2, ROWS) if weighted else None
    sparse = SparseLogisticRegression(3, gamma=1.0).fit(X, y, sample_weight=weight)
    monkeypatch.setattr(deviations, "FEWEST_ENTRIES", X.size + 1)
    dense = SparseLogisticRegression(3, gamma=1.0).fit(X, y, sample_weight=weight)
    assert np.array_equal(sparse.support_, dense.support_)
    assert sparse.objective_ == pytest.approx(dense.objective_, rel=1e-12)
    assert sparse.lower_bound_ == pytest.approx(dense.lower_bound_, rel=1e-5)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-7, atol=1e-9)
