"""Messages in the words of the command line, and refusals that name column, row and remedy."""

import numpy as np
import pandas as pd
import pytest

from psfit.cli import messages
from psfit.estimators.registry import LOSSES


@pytest.fixture
def counts(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
    frame["weight"] = rng.uniform(1, 2, 60)
    frame["y"] = rng.poisson(np.exp(0.5 * frame.a)) + 1
    frame.to_csv(tmp_path / "data.csv", index=False)
    return frame


def test_every_loss_of_an_estimator_has_its_option():
    for entry in LOSSES.values():
        name = messages.translate(f"use {entry.estimator} or {entry.estimator}CV")
        losses = [loss for loss, other in LOSSES.items() if other.estimator == entry.estimator]
        assert name == f"use --loss {losses[0]} or --loss {losses[0]}"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("kappa=0 must be an integer, or a share, or None", "--kappa 0 must be an integer, or a share"),
        ("sample_weight='w': there is no such column", "--weight 'w': there is no such column"),
        ("sample_weight is zero everywhere", "--weight is zero everywhere"),
        ("use --loss logistic (SparseLogisticRegression)", "use --loss logistic"),
        ("use --missing fill (missing='fill')", "use --missing fill (missing='fill')"),
        ("use --csv missing=- (missing_marks=['-'])", "use --csv missing=- (missing_marks=['-'])"),
        ("exclude='e': there is no feature", "--exclude-features 'e': there is no feature"),
        ("a.csv: exclude='e': there is no such column", "a.csv: --exclude 'e': there is no such column"),
        ("fit with BiCADMM(exact=True)", "fit with --exact"),
        ("column 'kappa=3' is empty", "column 'kappa=3' is empty"),
    ],
)  # fmt: skip
def test_arguments_become_options(said, expected):
    assert messages.translate(said) == expected


@pytest.mark.parametrize(
    ("column", "row", "value", "options", "said"),
    [
        ("y", 17, -2, ["--loss", "poisson"], ["column 'y'", "-2 in row 17", "--loss squared"]),
        ("y", 4, 0, ["--loss", "gamma"], ["column 'y'", "0 in row 4", "--loss tweedie"]),
        ("weight", 6, -1, ["--weight", "weight"], ["column 'weight'", "-1 in row 6"]),
        ("y", slice(None), 3, ["--loss", "logistic"], ["column 'y'", "only one class (3)"]),
        ("y", slice(None), 0, ["--loss", "poisson"], ["column 'y'", "is zero for every sample"]),
    ],
)
def test_wrong_targets_and_weights_have_column_row_and_remedy(
    call, counts, tmp_path, column, row, value, options, said
):
    counts[column] = counts[column].astype(float if column == "weight" else int)
    counts.loc[row if isinstance(row, int) else slice(None), column] = value
    counts.to_csv(tmp_path / "data.csv", index=False)
    code, _, err = call("fit", tmp_path / "data.csv", "--kappa", 1, *options)
    assert code == 1
    assert err.startswith(f"psfit: error: {tmp_path / 'data.csv'}: ")
    for words in said:
        assert words in err
    assert "Sparse" not in err
    assert "sample_weight" not in err


def test_other_mistakes_are_quoted_as_they_were_typed(call, counts, tmp_path):
    data = tmp_path / "data.csv"
    code, _, err = call("fit", data, "--loss", "poisson", "--offset", "log(weigth)")
    assert (code, "--offset 'log(weigth)': there is no such column (did you mean 'weight'?)" in err) == (1, True)
    code, _, err = call("path", data, "--kappas", "1:100", "-q")
    assert (code, ", ...] must lie between 1 and 4" in err) == (1, True)
    code, _, err = call("path", data, "--cv", 3, "--out", tmp_path / "m.csv")
    assert (code, "ends with .psfit" in err, "m.csv' does not" in err) == (1, True, True)
    code, _, err = call("path", data, "--cv", 3, "--scoring", "r3")
    assert (code, "neg_mean_absolute_error" in err, "get_scorer_names" in err) == (1, True, False)
    code, _, err = call("path", data, "--cv", 1)
    assert (code, err) == (1, "psfit: error: --cv 1 must be an integer of at least 2\n")
    code, _, err = call("predict", tmp_path, data)
    assert (code, f"{tmp_path} is a folder, not a model file" in err) == (1, True)


def test_a_folder_of_data_is_said(call, counts, tmp_path):
    (tmp_path / "many").mkdir()
    for name in ("one", "two"):
        counts.to_csv(tmp_path / "many" / f"{name}.csv", index=False)
    code, out, err = call("fit", tmp_path / "many", "--kappa", 1)
    assert code == 0, err
    assert f"note: {tmp_path / 'many'} is a folder; what is read are its 2 files: one.csv, two.csv" in err
    assert "120 samples" in out


def test_labels_that_the_model_does_not_know_are_shown(call, tmp_path):
    x = np.arange(40.0)
    frame = pd.DataFrame({"x": x, "answer": np.where(x % 40 < 20, "no", "yes")})
    frame.to_csv(tmp_path / "data.csv", index=False)
    model = tmp_path / "m.psfit"
    assert call("fit", tmp_path / "data.csv", "--loss", "logistic", "--kappa", 1, "--out", model, "-q")[0] == 0
    frame.loc[3, "answer"] = "No"
    frame.to_csv(tmp_path / "new.csv", index=False)
    code, _, err = call("score", model, tmp_path / "new.csv")
    assert code == 1
    assert "column 'answer' holds the label 'No' in row 3 (counted from 0)" in err
    assert "it knows 'no', 'yes'" in err


def test_one_sample_is_scored_in_plain_words(call, counts, tmp_path):
    model = tmp_path / "m.psfit"
    assert call("fit", tmp_path / "data.csv", "--kappa", 1, "--out", model, "-q")[0] == 0
    counts.head(1).to_csv(tmp_path / "one.csv", index=False)
    code, out, err = call("score", model, tmp_path / "one.csv")
    assert (code, err) == (0, "")
    assert out.startswith("1 sample, target 'y'\n")
    assert "not defined here" in out
