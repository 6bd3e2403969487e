"""Rows without a target: how they are refused, and what is left if they are left out."""

import numpy as np
import pandas as pd
import pytest

import psfit
from psfit import SparseLinearRegression, SparseLogisticRegression
from psfit.data import FileSource, TableSource

pytestmark = pytest.mark.filterwarnings("ignore::psfit.ReadingWarning")
RULES = {"categories": "columns", "missing": "indicator", "ids": ["key"], "offset": "log(e)", "sample_weight": "w"}


def samples(labels=False):
    """Rows of which some have no target; only those have the level 'z' and a gap in `b`."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"key": [f"k{k}" for k in range(90)], "a": rng.normal(size=90), "b": rng.normal(size=90)})
    frame["level"] = rng.choice(["x", "y"], 90)
    frame["w"], frame["e"] = rng.uniform(0.5, 2, 90), rng.uniform(0.5, 2, 90)
    y = 3 * frame["a"] + 2 * (frame["level"] == "x") + rng.normal(size=90)
    frame["target"] = np.where(y > 1, "yes", "no") if labels else y
    without = np.array([0, 7, 8, 40, 89])
    frame.loc[without, "target"] = None
    frame.loc[7, "level"], frame.loc[8, "b"] = "z", None
    return frame, frame.drop(index=without)


@pytest.fixture(params=["csv", "parquet", "table"])
def make_source(request, tmp_path):
    def make(frame, **rules):
        if request.param == "table":
            return TableSource(frame, target="target", **rules)
        path = tmp_path / f"{len(frame)}.{request.param}"
        frame.to_csv(path, index=False) if request.param == "csv" else frame.to_parquet(path, index=False)
        return FileSource(path, target="target", **rules)

    return make


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("memory", [None, "1kB"])
def test_the_fit_is_that_of_the_other_rows(labels, memory, make_source):
    frame, rest = samples(labels)
    kind = SparseLogisticRegression if labels else SparseLinearRegression
    model, expected = (
        kind(3, gamma=1.0, certify=False, groups=None).fit(make_source(rows, memory=memory, **RULES, **rule))
        for rows, rule in ((frame, {"missing_target": "drop"}), (rest, {}))
    )
    assert model.feature_names_in_.tolist() == expected.feature_names_in_.tolist() == ["a", "b", "level=x", "level=y"]
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-6, atol=1e-9)
    assert model.learned_.features.schema.left_out == len(frame) - len(rest)
    assert expected.learned_.features.schema.left_out == 0
    scored = make_source(frame, missing_target="drop", **RULES)
    assert model.score(scored) == pytest.approx(expected.score(make_source(rest, **RULES)))


def test_rows_without_a_target_are_counted_and_the_remedy_is_said(make_source):
    frame, _ = samples()
    with pytest.raises(ValueError, match="target") as raised:
        SparseLinearRegression(1).fit(make_source(frame[["a", "target"]]))
    assert "the target 'target' has 5 missing value(s) (6%), first in row 0" in str(raised.value)
    assert "--missing-target drop (missing_target='drop')" in str(raised.value)


def test_no_row_with_a_target_is_an_error(make_source):
    frame = pd.DataFrame({"a": [1.0, 2.0], "target": [np.nan, np.nan]})
    with pytest.raises(ValueError, match="the data have no rows"):
        SparseLinearRegression(1).fit(make_source(frame, missing_target="drop"))


def test_the_command_says_how_many_rows_it_leaves_out_and_near_optimal_reads_the_same(call, tmp_path):
    frame, rest = samples()
    for name, rows in (("all", frame), ("rest", rest)):
        rows[["a", "b", "target"]].to_csv(tmp_path / f"{name}.csv", index=False)
    model = tmp_path / "model.psfit"
    options = ["--kappa", 1, "--missing", "fill", "--missing-target", "drop"]
    code, _, err = call("fit", tmp_path / "all.csv", *options, "--out", model)
    assert (code, err.count("psfit: note: 5 row(s) without a target are left out")) == (0, 1)
    assert psfit.load(model).learned_.features.schema.left_out == 5
    code, out, _ = call("near-optimal", model, tmp_path / "all.csv", "--within", 0.2)
    code, expected, _ = call("near-optimal", model, tmp_path / "rest.csv", "--within", 0.2)
    # The first line ends with the seconds.
    assert (code, out.splitlines()[1:]) == (0, expected.splitlines()[1:])
    assert call("score", model, tmp_path / "all.csv")[0] == 1
    assert call("score", model, tmp_path / "all.csv", "--missing-target", "drop")[1].startswith("85 samples")
