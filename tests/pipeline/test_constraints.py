"""Whole fits with demands on the coefficients, against the optimum over all supports."""

import pytest
from constrained import check

SEEDS = range(21)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_default_never_proves_or_promises_too_much(seed):
    assert check(seed, exact=False) == ""


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_mode_finds_and_proves_the_optimum(seed):
    assert check(seed, exact=True) == ""
