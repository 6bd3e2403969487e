"""Compiled Gram matrices of sparse rows against sums in extended precision."""

import numpy as np
import pytest
import scipy.sparse

from psfit.kernels.cpu import sparse_gram
from psfit.kernels.cpu.threads import limit_threads


def draw(rows, columns, share):
    generator = np.random.default_rng(rows + columns)
    table = generator.standard_normal((rows, columns)) * (generator.random((rows, columns)) < share)
    table[rows // 2] = 0.0
    return scipy.sparse.csr_matrix(table), generator.standard_normal(rows)


def expected(matrix, weights):
    wide = matrix.toarray().astype(np.longdouble)
    return (wide.T @ (weights[:, None] * wide)).astype(float)


def add_up(matrix, weights):
    return sparse_gram.add_up_gram(matrix.indptr, matrix.indices, matrix.data, weights, matrix.shape[1])


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 8), (60, 7)])
def test_products_are_exact_up_to_rounding(rows, columns, share, index):
    matrix, weights = draw(rows, columns, share)
    matrix.indptr, matrix.indices = matrix.indptr.astype(index), matrix.indices.astype(index)
    np.testing.assert_allclose(add_up(matrix, weights), expected(matrix, weights), rtol=0, atol=1e-13 * rows)


def test_single_precision_is_added_up_in_double_precision():
    matrix, weights = draw(5000, 6, 0.5)
    single = matrix.astype(np.float32)
    found = add_up(single, weights)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected(single.astype(float), weights), rtol=1e-12, atol=1e-9)


def test_the_product_does_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(sparse_gram, "LEAST_WORK", 100)
    matrix, weights = draw(997, 12, 0.4)
    products = []
    for threads in (1, 2, 3):
        with limit_threads(threads):
            products.append(add_up(matrix, weights))
    np.testing.assert_allclose(products[0], expected(matrix, weights), rtol=0, atol=1e-10)
    assert all(np.array_equal(products[0], other) for other in products)
