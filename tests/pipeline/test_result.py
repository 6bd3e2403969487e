"""The words that a result prints about its search."""

from dataclasses import replace

import pytest
from problems import make_source

from psfit import Problem, solve
from psfit.losses import Squared
from psfit.search.explore import Contribution

BEST, OTHER = Contribution("Bi-cADMM", 9.0, 2.0), Contribution("forward selection", 8.0, 3.0)
IDLE, BETTER = Contribution("restarts", 2.0, 2.0), Contribution("restarts", 2.0, 1.0)


@pytest.fixture(scope="module")
def result():
    return solve(
        Problem(Squared(), (2,), gamma=1.0), make_source(Squared(), samples=40, features=6, nonzeros=2, seed=0)
    )


@pytest.mark.parametrize(
    ("starts", "said"),
    [
        ((BEST,), "Bi-cADMM"),
        ((BEST, IDLE), "Bi-cADMM"),
        ((BEST, BETTER), "restarts"),
        ((BEST, OTHER, IDLE), "Bi-cADMM, the best of 2 kinds of starts"),
        ((BEST, OTHER, BETTER), "restarts, from the best of 2 kinds of starts"),
    ],
)
def test_restarts_are_no_kind_of_start(result, starts, said):
    lines = str(replace(result, starts=starts)).splitlines()
    assert f"  found by   {said}" in lines


def test_a_fit_on_all_supports_says_so(result):
    assert [one.kind for one in result.starts] == ["all supports"]
    assert result.starts[0].end == pytest.approx(result.objective, rel=1e-9)
    assert "  found by   all supports" in str(result).splitlines()
