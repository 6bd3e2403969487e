"""Forms are made once for all callers: products are counted, and NumPy checks the numbers."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from psfit.comm import Axis
from psfit.comm.serial import Serial
from psfit.data import Affine, Dense, Source
from psfit.data.matrix import DesignMatrix

ROWS, COLUMNS, OUTPUTS = 50, 4, 3
BOUNDS = (0, 20, ROWS)
NODES = Axis(2, Serial())


@pytest.fixture
def products(monkeypatch):
    """Rows and precisions of all Gram products."""
    made, product = [], DesignMatrix.gram

    def counted(matrix, weights, dtype=None):
        made.append((matrix.shape[0], dtype or matrix.dtype))
        return product(matrix, weights, dtype)

    monkeypatch.setattr(DesignMatrix, "gram", counted)
    return made


def source_of(dtype=torch.float64):
    rng = np.random.default_rng(0)
    A = torch.tensor(rng.normal(size=(ROWS, COLUMNS)) + 3, dtype=dtype)
    b, w = rng.normal(size=(ROWS, OUTPUTS)), rng.uniform(0.5, 2, size=(ROWS, 1))
    shift, scale = A.double().mean(dim=0), A.double().std(dim=0)
    matrix = Affine(Dense(A), shift, scale, 1.0)
    explicit = np.hstack([((A.double() - shift) / scale).numpy(), np.ones((ROWS, 1))])
    return Source(matrix, torch.tensor(b), torch.tensor(w), BOUNDS), explicit, b, w


def pooled(source, dtype=torch.float64, from_double=True):
    return source.forms.pool(BOUNDS, dtype, from_double, NODES, ROWS, 20.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_pooled_form_is_the_sum_over_all_samples(dtype):
    source, A, b, w = source_of(dtype)
    form = pooled(source)
    np.testing.assert_allclose(form.G, 2 * A.T @ (w * A), rtol=1e-11, atol=1e-10)
    np.testing.assert_allclose(form.Q, 2 * A.T @ (w * b), rtol=1e-11, atol=1e-10)
    np.testing.assert_allclose(form.constant, (w * b**2).sum(axis=0), rtol=1e-12)
    assert bool(form.linear_error.isfinite().all())
    rough = pooled(source_of(torch.float32)[0], torch.float32, False)
    np.testing.assert_allclose(rough.G, 2 * A.T @ (w * A), rtol=1e-4, atol=1e-3)
    assert rough.curvature.entry_error == float("inf")


def test_copies_with_some_of_the_targets_share_every_product(products):
    source, *_ = source_of()
    part = source.with_outputs([2, 0]).with_outputs([1, 1])
    assert part.picked == [0, 0]
    assert pooled(part) is pooled(source)
    assert part.split(2).G is source.split(2).G
    torch.testing.assert_close(part.split(2).Q, source.split(2).Q[:, :, [0, 0]])
    assert products == [(20, torch.float64), (30, torch.float64)]


def test_other_targets_of_a_copy_are_not_mistaken_for_the_old_ones():
    source, A, _, w = source_of()
    pooled(source)
    other = Source(source.matrix, source.target + 1, source.weight, BOUNDS)
    np.testing.assert_allclose(pooled(other).Q, 2 * A.T @ (w * (source.target.numpy() + 1)), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("from_double", [True, False])
def test_a_product_in_float64_serves_a_lower_precision_where_it_is_made_anyway(from_double, products):
    source, A, _, w = source_of(torch.float32)
    low = source.split(2, from_double).G
    pooled(source, from_double=from_double)
    assert low.dtype == torch.float32
    precisions = {torch.float64} if from_double else {torch.float32, torch.float64}
    assert {dtype for _, dtype in products} == precisions
    assert sum(rows for rows, _ in products) == len(precisions) * ROWS
    expected = [2 * A[a:b].T @ (w[a:b] * A[a:b]) for a, b in pairwise(BOUNDS)]
    np.testing.assert_allclose(low, np.stack(expected), rtol=1e-4, atol=1e-3)


def test_known_forms_of_the_nodes_spare_all_products(products):
    source, *_ = source_of()
    known = pooled(source)
    del products[:]
    stacked = type(known).of(known.G.unsqueeze(0), known.Q.unsqueeze(0), known.constant.unsqueeze(0))
    again = source.with_forms(stacked)
    torch.testing.assert_close(pooled(again).G, known.G)
    torch.testing.assert_close(pooled(again).Q, known.Q)
    torch.testing.assert_close(again.with_outputs([1]).split(2).Q[0], known.Q[:, [1]])
    assert products == []


def test_the_last_variable_is_minimised_once():
    source, A, b, w = source_of()
    form = source.forms.without_last(pooled(source))
    assert source.with_outputs([1]).forms.without_last(pooled(source)) is form
    mean = (w * A).sum(0) / w.sum()
    C, d = (A - mean)[:, :COLUMNS], b - (w * b).sum(0) / w.sum()
    np.testing.assert_allclose(form.G, 2 * C.T @ (w * C), rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(form.Q, 2 * C.T @ (w * d), rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(form.constant, (w * d**2).sum(0), rtol=1e-11)
