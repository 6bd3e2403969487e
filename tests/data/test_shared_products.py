"""Gram matrices of one choice of columns after the other are those that are made at once."""

from itertools import pairwise

import pytest
import torch

from psfit.data import Dense, shared_products
from psfit.data.shared_products import SharedProducts

ROWS, COLUMNS = 30, 12
CHOICES = [[0, 2, 5, 7], [0, 2, 3, 5, 7, 9], [2, 3], [1, 4, 6, 8], [1, 4, 6, 8, 11]]


def product(X, index, weight, bounds):
    part = X[:, index]
    return torch.stack([part[a:b].T @ (weight[a:b] * part[a:b]) for a, b in pairwise(bounds)])


@pytest.mark.parametrize("bounds", [(0, ROWS), (0, 7, ROWS)])
def test_products_of_all_choices(bounds):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(ROWS, COLUMNS, generator=generator, dtype=torch.float64)
    weight = torch.rand(ROWS, 1, generator=generator, dtype=torch.float64)
    shared = SharedProducts()
    for choice in CHOICES:
        index = torch.tensor(choice)
        found = shared.multiply(Dense(X[:, index]), index, weight, bounds)
        torch.testing.assert_close(found, product(X, index, weight, bounds), rtol=1e-12, atol=1e-12)


def test_known_products_are_not_made_again(monkeypatch):
    made = []
    multiply_some = shared_products._multiply_some

    def note(matrix, weight, index):
        made.append(index.tolist())
        return multiply_some(matrix, weight, index)

    monkeypatch.setattr(shared_products, "_multiply_some", note)
    X, weight = torch.eye(COLUMNS, dtype=torch.float64), torch.ones(COLUMNS, 1, dtype=torch.float64)
    shared = SharedProducts()
    for choice in CHOICES:
        index = torch.tensor(choice)
        shared.multiply(Dense(X[:, index]), index, weight, (0, COLUMNS))
    # The second choice has two new columns, in the places 2 and 5; the third none; the fourth only new ones.
    assert made == [[2, 5], [4]]


def test_precisions_have_products_of_their_own():
    X, index, shared = torch.eye(4, dtype=torch.float64), torch.arange(4), SharedProducts()
    for dtype in (torch.float32, torch.float64):
        found = shared.multiply(Dense(X.to(dtype)), index, torch.ones(4, 1, dtype=dtype), (0, 4))
        assert found.dtype == dtype
