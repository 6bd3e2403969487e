"""``psfit near-optimal`` on a model file and the data of its fit."""

import csv
import re

import numpy as np
import pandas as pd
import pytest

import psfit


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A table and a model in the current folder; two of the columns are nearly the same."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 5)), columns=list("abcde"))
    table["twin"] = table["a"] + 0.01 * rng.normal(size=60)
    table["y"] = 2 * table["a"] - table["b"] + rng.normal(size=60)
    table.to_csv("data.csv", index=False)
    model = psfit.SparseLinearRegression(2).fit("data.csv", target="y")
    psfit.save(model, "model.psfit")
    return model


def test_the_list_goes_to_the_screen_and_to_files(files, call):
    code, out, _ = call(
        "near-optimal", "model.psfit", "data.csv", "--target", "y", "--within", "0.05", "--out", "close.csv",
        "--picture", "close.png",
    )  # fmt: skip
    assert code == 0
    assert "no other support is" in out
    assert "a and twin (1)" in out
    with open("close.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["objective"]) == pytest.approx(files.objective_)
    assert {row["features"] for row in rows} >= {"a b", "b twin"}
    with open("close.png", "rb") as file:
        assert file.read(4) == b"\x89PNG"


def test_outputs_are_checked_first(files, call):
    code, _, err = call("near-optimal", "model.psfit", "data.csv", "--out", "close.txt")
    assert code == 1
    assert "must end with .csv" in err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.drop(columns="b"), "the data lack ['b'], which the model was fitted to"),
        (lambda table: table.assign(more=table["a"] ** 2), "the data have 7 features, but the model was fitted to 6"),
        (lambda table: table[["b", "a", "c", "d", "e", "twin", "y"]], "the features are in another order"),
    ],
)
def test_other_features_are_refused(files, call, change, said):
    change(pd.read_csv("data.csv")).to_csv("other.csv", index=False)
    code, _, err = call("near-optimal", "model.psfit", "other.csv", "--target", "y")
    assert code == 1
    assert said in err
    assert err.count("\n") == 1


def test_a_model_that_is_not_there_is_named(files, call):
    code, _, err = call("near-optimal", "none.psfit", "data.csv")
    assert code == 1
    assert err == "psfit: error: there is no file none.psfit\n"


def test_the_model_knows_how_the_table_of_its_fit_was_read(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(size=(90, 3)), columns=list("abc"))
    table["city"] = rng.choice(["Rome", "Nice"], 90)
    table["y"] = table["a"] - 0.5 * table["b"] + rng.normal(size=90)
    table["note"], table["key"] = "text", np.arange(90)
    table.loc[::9, "c"] = np.nan
    table.to_csv("data.csv", index=False)
    rules = ["--target", "y", "--categories", "group", "--missing", "indicator", "--exclude", "note", "--id", "key"]
    assert call("fit", "data.csv", *rules, "--kappa", "2", "-q", "--out", "model.psfit")[0] == 0
    lists = []
    for more in (rules, []):
        code, out, err = call("near-optimal", "model.psfit", "data.csv", "--within", "0.9", *more)
        assert code == 0, err
        lists.append(re.sub(r"[\d.]+ s$", "", out, flags=re.MULTILINE))
    assert lists[0] == lists[1]
    assert "a, b" in lists[1]
