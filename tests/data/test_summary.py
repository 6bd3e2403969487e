"""Means and spreads of columns, for every storage and number of nodes."""

import numpy as np
import pytest
import scipy.sparse
import torch

from psfit.comm import GridSpec
from psfit.data import Dense, Sparse
from psfit.data.summary import ColumnSummary


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("stored", ["dense", "sparse"])
def test_columns_far_from_zero_keep_their_spread(stored, nodes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 4)) * [1.0, 1e-3, 5.0, 0.0] + [1e8, 1e4, 0.0, 7.0]
    X[:, 2] *= rng.uniform(size=2500) < 0.1
    grid = GridSpec(backend="serial", device="cpu", nodes=nodes).build()
    matrix = Dense(torch.from_numpy(X))
    if stored == "sparse":
        matrix = Sparse.of(scipy.sparse.csr_matrix(X), grid.device, grid.dtype, grid.transfers)
    found = ColumnSummary.of(matrix, grid)
    assert found.samples == 2500
    np.testing.assert_allclose(found.means, X.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.spreads, X.std(axis=0), rtol=1e-6, atol=1e-12)
    assert found.constant.tolist() == [False, False, False, True]
