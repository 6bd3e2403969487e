"""Model files keep constraints, and a file whose coefficients do not obey them is refused."""

import numpy as np
import pandas as pd
import pytest

import psfit
from psfit.estimators.persistence.archive import ModelFileError, pack, unpack

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(50, 6)), columns=[*"abcde", "a:b"])
Y = X["a"] - X["b"] + 2 * X["c"] + 0.1 * RNG.normal(size=50)

KEPT = [
    ({"include": "e"}, {"include": ["e"]}),
    ({"include": np.array([4]), "count_included": True}, {"include": [4], "count_included": True}),
    ({"exclude": ["a", 2]}, {"exclude": ["a", 2]}),
    ({"lower": {"a": 0.0, 1: -np.inf}, "upper": 3}, {"lower": {"a": 0.0, 1: -np.inf}, "upper": 3.0}),
    ({"lower": pd.Series({"c": -1.0})}, {"lower": {"c": -1.0}}),
    ({"upper": np.arange(6.0)}, {"upper": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]}),
    ({"groups": np.array([0, 0, 1, 1, 2, 2]), "at_most": 1}, {"groups": [0, 0, 1, 1, 2, 2], "at_most": 1}),
    ({"groups": pd.Series(dict(zip(X, [1, 1, 2, None, 2, 1], strict=True))), "at_most": {1: 2}},
     {"groups": {1.0: ["a", "b", "a:b"], 2.0: ["c", "e"]}, "at_most": {1: 2}}),
    ({"groups": None, "positive": True}, {"groups": None, "positive": True}),
    ({"heredity": "strong", "parents": {"e": ("a", "b")}}, {"heredity": "strong", "parents": {"e": ["a", "b"]}}),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), KEPT)
def test_arguments_come_back(given, expected, tmp_path):
    model = psfit.SparseLinearRegression(2, certify=False, **given).fit(X, Y)
    psfit.save(model, tmp_path / "model.psfit")
    loaded = psfit.load(tmp_path / "model.psfit")
    assert expected.items() <= loaded.get_params().items()
    assert loaded.result_.constraints == model.result_.constraints
    assert loaded.result_.constraints
    assert str(loaded.result_) == str(model.result_)
    again = psfit.SparseLinearRegression(**loaded.get_params(deep=False)).fit(X, Y)
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-9)


def edited(path, change):
    """A model file with another JSON and a digest that fits."""
    content, arrays = unpack(path)
    change(content)
    path.write_bytes(pack(content, arrays, repr))
    return path


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("include", ["zzz"], "no feature"),
        ("include", {"pairs": [["a", 1]]}, "must be"),
        ("include", [], "more coefficients than its limit"),
        ("upper", {"pairs": [["c", 0.5]]}, "not within their bounds"),
        ("exclude", ["c"], "excluded"),
        ("lower", "a", "must be"),
        ("parents", {"pairs": 3}, "cannot be used as a model"),
        ("groups", {"pairs": [[[1], ["a"]]]}, "cannot be used as a model"),
        ("heredity", "firm", "must be"),
    ],
)
def test_files_that_contradict_themselves_are_refused(name, value, said, tmp_path):
    path = tmp_path / "model.psfit"
    psfit.save(psfit.SparseLinearRegression(2, include="e", certify=False).fit(X, Y), path)
    psfit.load(path)
    with pytest.raises(ModelFileError, match=said):
        psfit.load(edited(path, lambda content: content["parameters"].update({name: value})))


def test_files_of_earlier_versions_have_no_constraints(tmp_path):
    path = tmp_path / "model.psfit"
    psfit.save(psfit.SparseLinearRegression(2, certify=False).fit(X, Y), path)

    def remove(content):
        for name in psfit.SparseLinearRegression().get_params().keys() & {"include", "groups", "lower", "at_most"}:
            del content["parameters"][name]
        del content["result"]["constraints"], content["result"]["counted"]

    loaded = psfit.load(edited(path, remove))
    assert loaded.result_.constraints == ()
    assert loaded.groups is None
    assert "at most 2 nonzero coefficients:" in str(loaded.result_)


def test_other_tools_get_coefficients_that_obey():
    model = psfit.SparseLinearRegression(2, include="e", positive=True, certify=False).fit(X, Y)
    other = model.to_sklearn()
    np.testing.assert_array_equal(other.coef_, model.coef_)
    assert (other.coef_ >= 0).all()
    assert (psfit.SparseLinearRegression(2, include="e", certify=False).fit(X, Y).to_sklearn().coef_ < 0).any()
