"""If kernels cannot run, `kernel` returns None and torch's own operations are used."""

import torch

import psfit.kernels as kernels
from psfit.data.integer_gram import available
from psfit.kernels.linalg import few_columns, few_sums


def test_there_are_none_for_a_cpu():
    assert kernels.kernel("forward", torch.device("cpu")) is None
    assert not available(4_000, torch.float32, torch.device("cpu"))


def test_none_without_a_compiler(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    kernels._load.cache_clear()
    assert kernels._load("forward") is None
    kernels._load.cache_clear()


def test_the_plain_way():
    A, X, R = torch.randn(2, 7, 5), torch.randn(2, 5, 3), torch.randn(7, 3)
    torch.testing.assert_close(few_columns(A, X), A @ X)
    torch.testing.assert_close(few_sums(A[0], R), A[0].T @ R)
