"""Small problems that code for large data serves: never a bound above the optimum, nor a coefficient out of bounds."""

import pytest
from constrained import check
from large_data import change


# Groups of which a model has only some.
@pytest.mark.parametrize("number", [*range(1000, 1024), 1469])
def test_code_for_large_data_is_right_about_small_problems(number, monkeypatch):
    change(monkeypatch, number)
    assert check(number, exact=False) == ""
