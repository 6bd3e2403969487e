"""What the texts of options mean."""

import pytest

from psfit.cli.parsing import parse_limits


@pytest.mark.parametrize(
    ("text", "expected"), [("7", [7]), ("1:4", [1, 2, 3, 4]), ("2:8:3,11", [2, 5, 8, 11]), ("1:9:5", [1, 6])]
)
def test_limits_are_numbers_and_ranges(text, expected):
    assert parse_limits(text) == expected


@pytest.mark.parametrize("text", ["1:1000000000000", "1:99999999999999999999999999", "1:60000,1:60000"])
def test_more_limits_than_memory_holds_are_refused(text):
    with pytest.raises(ValueError, match=rf"--kappas: '{text}' means more than 100,000 limits"):
        parse_limits(text)


@pytest.mark.parametrize("text", ["3:1", "5:1:-1", "1:5:0", "", "1:2:3:4", "a"])
def test_malformed_ranges_are_refused(text):
    with pytest.raises(ValueError, match="is neither a number nor a range"):
        parse_limits(text)
