"""Constraints on the command line mean the same as the arguments of the estimators, and are shown afterwards."""

import json

import numpy as np
import pandas as pd
import pytest

import psfit

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.normal(size=(60, 5)), columns=["a", "b", "c", "d", "a:b"])
TABLE["a:b"] = TABLE["a"] * TABLE["b"]
TABLE["y"] = TABLE["a"] - 2 * TABLE["b"] + TABLE["a:b"] + 0.1 * RNG.normal(size=60)
X, Y = TABLE.drop(columns="y"), TABLE["y"]


@pytest.fixture
def data(tmp_path):
    TABLE.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (["--include", "d, c"], {"include": ["c", "d"]}),
        (["--include", "@names.txt", "--count-included"], {"include": ["c", "d"], "count_included": True}),
        (["--exclude-features", "b", "--lower", "-1", "--upper", "a=0.5,a:b=0.25"],
         {"exclude": "b", "lower": -1.0, "upper": {"a": 0.5, "a:b": 0.25}}),
        (["--positive"], {"positive": True}),
        (["--lower", "@bounds.txt"], {"lower": {"a": 0.0, "b": -1.0}}),
        (["--groups", "g=a,b; h=c,d,a:b", "--at-most", "1"],
         {"groups": {"g": ["a", "b"], "h": ["c", "d", "a:b"]}, "at_most": 1}),
        (["--groups", "@groups.txt", "--at-most", "h=1"],
         {"groups": {"g": ["a", "b"], "h": ["c", "d", "a:b"]}, "at_most": {"h": 1}}),
        (["--heredity", "strong"], {"heredity": "strong"}),
    ],
)  # fmt: skip
def test_options_mean_the_arguments(call, data, options, arguments, monkeypatch):
    monkeypatch.chdir(data.parent)
    (data.parent / "names.txt").write_text("c\n\n d\n")
    (data.parent / "bounds.txt").write_text("a=0\nb=-1\n")
    (data.parent / "groups.txt").write_text("g=a, b\nh=c, d, a:b\n")
    code, out, err = call("fit", data, "--kappa", 2, "--device", "cpu", "--json", *options)
    assert (code, err) == (0, "")
    facts = json.loads(out)
    expected = psfit.SparseLinearRegression(2, **arguments).fit(X, Y)
    assert facts["support"] == expected.feature_names_in_[expected.support_].tolist()
    assert facts["objective"] == pytest.approx(expected.objective_, rel=1e-9)
    assert facts["constraints"] == list(expected.result_.constraints)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--include", "e"], ["--include 'e'", "no feature"]),
        (["--include", "@missing.txt"], ["--include", "'missing.txt' cannot be read"]),
        (["--lower", "a=x"], ["--lower: 'a=x'", "age=0"]),
        (["--upper", "a=1,a=2"], ["--upper: 'a' is given twice"]),
        (["--at-most", "1.5"], ["--at-most: '1.5'", "integer"]),
        (["--at-most", "1"], ["at_most", "groups"]),
        (["--groups", "a,b"], ["--groups: 'a,b' is not a group"]),
        (["--groups", "g=a;g=b"], ["--groups: 'g' is given twice"]),
    ],
)
@pytest.mark.parametrize("command", ["fit", "path"])
def test_wrong_options_are_named_and_leave_nothing(call, data, command, options, said):
    ending = "model.psfit" if command == "fit" else "path.csv"
    code, _, err = call(command, data, "--device", "cpu", "--out", data.parent / ending, *options)
    assert code == 1
    for words in said:
        assert words in err
    assert not (data.parent / ending).exists()


def test_numbers_name_the_features_of_arrays(call, tmp_path):
    np.savez(tmp_path / "data.npz", X=X.to_numpy(), y=Y.to_numpy())
    given = ["--kappa", 1, "--include", "3", "--upper", "1=0", "--device", "cpu", "--json"]
    code, out, _ = call("fit", tmp_path / "data.npz", *given)
    assert code == 0
    assert 3 in json.loads(out)["support"]


def test_a_path_obeys_and_its_choice_is_kept(call, data):
    options = ["--exclude-features", "b", "--include", "d", "--kappas", "1:3", "--device", "cpu"]
    code, out, _ = call("path", data, *options)
    assert code == 0
    assert "subject to always in (not counted by kappa): d" in out
    assert "subject to never in: b" in out
    model = data.parent / "model.psfit"
    assert call("path", data, *options, "--cv", 3, "--out", model)[0] == 0
    code, out, _ = call("inspect", model)
    assert code == 0
    assert "subject to always in (not counted by kappa): d" in out
    loaded = psfit.load(model)
    assert loaded.include == ["d"]
    assert "d" in loaded.feature_names_in_[loaded.support_]
    assert "b" not in loaded.feature_names_in_[loaded.support_]


def test_the_power_of_the_tweedie_loss(call, data):
    table = pd.read_csv(data).assign(y=lambda table: np.exp(table.y / 4).round(1))
    table.to_csv(data, index=False)
    options = ["--kappa", 2, "--device", "cpu", "--json", "--power", 1.2]
    code, out, err = call("fit", data, "--loss", "tweedie", *options)
    assert code == 0, err
    model = psfit.SparseTweedieRegression(2, power=1.2, grid=psfit.GridSpec(device="cpu"))
    model.fit(table.drop(columns="y"), table.y)
    assert json.loads(out)["objective"] == pytest.approx(model.result_.objective, rel=1e-9)
    code, _, err = call("fit", data, "--loss", "poisson", *options)
    assert code != 0
    assert "tweedie" in err
    code, _, err = call("path", data, "--loss", "tweedie", "--power", 1.2)
    assert code != 0
    assert "--cv" in err
