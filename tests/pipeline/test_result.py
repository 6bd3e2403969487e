"""The words that a result prints about its search."""

from dataclasses import replace

import pytest
from problems import make_source

from psfit import Problem, solve
from psfit.common.status import Status
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
    # Without a gap there is nothing to explain; with one, the reader asks why it is there.
    closed, wide = (replace(result, lower_bounds=result.objectives * share) for share in (1.0, 0.9))
    assert "  found by   trying every choice of features" in str(closed).splitlines()
    said = "  found by   trying every choice of features: none is better (the proof does not use this)"
    assert said in str(wide).splitlines()
    stopped = str(replace(closed, status=Status.TIME_LIMIT)).splitlines()
    assert "  found by   trying choices of features one by one, until it was stopped" in stopped


@pytest.mark.parametrize(
    ("inside", "outside", "counted", "said"),
    [
        (1, 0, "", "a better one would have 1 of these features"),
        (1, 3, "", "a better one would have 1 of these features and none of 3 others"),
        (0, 1, "groups", "1 group is in no better one"),
        (0, 4, "groups besides those always in", "4 groups are in no better one"),
    ],
)
def test_what_is_proved_about_better_supports_is_said(result, inside, outside, counted, said):
    found = replace(
        result, certain_in=inside, certain_out=outside, counted=counted, lower_bounds=result.objectives * 0.9
    )
    proof = dict(found.facts())["proved"]
    assert proof.split("; ")[1].split(" (")[0] == said


def test_names_with_a_comma_are_quoted(result):
    names = ["plain", *(f"income, {k}" for k in range(1, result.coef.shape[0]))]
    support = dict(result.facts(names))["support"]
    shown = [repr(names[j]) if j else "plain" for j in result.support]
    assert support.endswith(f": {', '.join(shown)}")
