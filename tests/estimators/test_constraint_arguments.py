"""Constraints as users write them become numbers of columns; what is unknown or contradicts itself is refused."""

import inspect

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import psfit
from psfit.data.schema import Column, Schema
from psfit.estimators.constraints import resolve
from psfit.estimators.model import SparseModel
from psfit.estimators.posing import Given
from psfit.estimators.reading import Features

INF = np.inf
NAMES = ("a", "b", "c", "d", "a:b")
TABLE = Features(5, np.array(NAMES, dtype=object))
ARRAY = Features(5)
SCHEMA = Schema((Column("size", "number"), Column("colour", "category", ("blue", "red")), Column("new", "boolean")))
FILE = Features(4, np.array(["size", "colour=blue", "colour=red", "new"], dtype=object), SCHEMA)


def found(features=TABLE, outputs=1, **arguments):
    return resolve(arguments, features, outputs).constraints


@pytest.mark.parametrize(
    ("features", "given", "expected"),
    [
        (TABLE, {"include": "b"}, {"include": (1,)}),
        (TABLE, {"include": ["d", 0]}, {"include": (0, 3)}),
        (TABLE, {"exclude": np.array(["c", "a"])}, {"exclude": (0, 2)}),
        (
            ARRAY,
            {"include": 2, "exclude": np.array([4, 1]), "count_included": True},
            {"include": (2,), "exclude": (1, 4)},
        ),
        (ARRAY, {"include": "3"}, {"include": (3,)}),
        (TABLE, {"lower": 0}, {"lower": [[0.0]] * 5, "upper": None}),
        (
            TABLE,
            {"positive": True, "upper": {"b": 2}},
            {"lower": [[0.0]] * 5, "upper": [[INF], [2.0], [INF], [INF], [INF]]},
        ),
        (TABLE, {"lower": pd.Series({"d": -1.0, "a": -2.0})}, {"lower": [[-2.0], [-INF], [-INF], [-1.0], [-INF]]}),
        (TABLE, {"upper": [1, 2, 3, 4, INF]}, {"upper": [[1.0], [2.0], [3.0], [4.0], [INF]]}),
        (TABLE, {"upper": INF, "lower": {}}, {"upper": None, "lower": None}),
        (TABLE, {"groups": ["x", "y", "x", None, "y"]}, {"group": [0, 1, 0, 2, 1], "counts_features": False}),
        (TABLE, {"groups": [7, 7.5, np.nan, 7, 7.5], "kappa_counts": "features"}, {"group": [0, 1, 2, 0, 1]}),
        (TABLE, {"groups": {"g": ["d", "b"]}, "kappa_counts": "features"}, {"group": [0, 1, 2, 1, 3]}),
        (TABLE, {"groups": pd.Series({"a:b": 1, "d": 2, "c": 1, "b": 2, "a": 2})}, {"group": [0, 0, 1, 0, 1]}),
        (TABLE, {"groups": {"g": ["d", "b"]}, "include": "g"}, {"include": (1, 3)}),
        (TABLE, {"groups": {"g": "a", "h": "b"}}, {"group": None}),
        (
            TABLE,
            {"groups": {"g": ["a", "c"], "h": "b"}, "at_most": 1},
            {"kind": [0, 1, 0, -1, -1], "at_most": [1, 1], "group": None},
        ),
        (
            TABLE,
            {"groups": {"g": ["a", "c"], "h": "b"}, "at_most": {"h": 3}},
            {"kind": [-1, 0, -1, -1, -1], "at_most": [3]},
        ),
        (TABLE, {"heredity": "weak"}, {"parents": ((4, (0, 1)),), "heredity": "weak"}),
        (ARRAY, {"heredity": "strong", "parents": {3: [0, 2], 4: 3}}, {"parents": ((3, (0, 2)), (4, (3,)))}),
        (TABLE, {"heredity": "strong", "exclude": "a"}, {"exclude": (0, 4)}),
        (TABLE, {"heredity": "weak", "exclude": "a"}, {"exclude": (0,)}),
        (TABLE, {"heredity": "weak", "include": ["a:b", "b"]}, {"include": (1, 4)}),
        (FILE, {}, {"group": [0, 1, 1, 2]}),
        (FILE, {"groups": None}, {"group": None}),
        (FILE, {"groups": None, "exclude": "colour"}, {"exclude": (1, 2)}),
        (FILE, {"include": "colour", "at_most": 2}, {"include": (1, 2), "kind": [-1, 0, 0, -1], "at_most": [2]}),
        (Features(2, np.array(["colour=red", "size"], dtype=object), SCHEMA), {}, {"group": None}),
        (TABLE, {}, {"group": None, "is_empty": True}),
    ],
)
def test_constraints_become_numbers(features, given, expected):
    made = found(features, **given)
    for name, value in expected.items():
        got = getattr(made, name)
        assert (got.tolist() if isinstance(got, np.ndarray) else got) == value, name


def test_bounds_by_output():
    bounds = -np.arange(10.0).reshape(5, 2)
    np.testing.assert_array_equal(found(outputs=2, lower=bounds).lower, bounds)


REFUSED = [
    ({"include": "aa"}, ["include='aa'", "no feature", "did you mean 'a'?"]),
    ({"include": ["a", "zzz"]}, ["include='zzz'", "a, b, c, d, a:b"]),
    ({"exclude": 5}, ["exclude", "no feature 5", "0 to 4"]),
    ({"include": ["a", "b", "a"]}, ["include names 'a' twice"]),
    ({"exclude": ["b", 1]}, ["exclude names 'b' twice"]),
    ({"include": ["a", "b"], "exclude": ["c", "b"]}, ["include and exclude both name 'b'"]),
    ({"lower": {"a": 1}}, ["lower=1 for 'a'", "zero", "lower <= 0"]),
    ({"upper": -2}, ["upper=-2 for 'a'", "zero", "upper >= 0"]),
    ({"lower": {"c": -1}, "upper": {"c": -2}}, ["lower > upper for 'c'", "-1 > -2"]),
    ({"lower": [0, 0, np.nan, 0, 0]}, ["lower is NaN for 'c'", "-inf"]),
    ({"lower": [0, 0]}, ["lower has the shape (2,)", "5 features"]),
    ({"upper": np.zeros((5, 3))}, ["upper has the shape (5, 3)", "(5,)"]),
    ({"upper": {"x": 1}}, ["upper='x'", "no feature"]),
    ({"positive": True, "lower": -1}, ["positive=True", "lower", "one of them"]),
    ({"groups": [1, 2]}, ["groups has 2 labels", "5 features"]),
    ({"groups": pd.Series({"a": 1})}, ["groups has 1 labels", "5 features"]),
    ({"groups": {"g": ["a", "x"]}}, ["groups['g']='x'", "no feature"]),
    ({"groups": {"g": ["a", "b"], "h": ["b"]}}, ["'b' is in the groups 'g' and 'h'"]),
    ({"groups": {"g": ["a", "b"]}, "include": "a"}, ["include names a part of the group 'g'", "without 'b'", "groups"]),
    ({"groups": {"g": ["a", "b"]}, "exclude": ["b"]}, ["exclude names a part of the group 'g'", "without 'a'"]),
    ({"at_most": 1}, ["at_most", "no groups", "pass groups"]),
    ({"at_most": {"x": 1}, "groups": {"g": ["a", "b"]}}, ["at_most['x']", "'g'"]),
    (
        {"at_most": 1, "groups": {"g": ["a", "b"]}, "include": ["a", "b"]},
        ["include names 2", "'g'", "at_most allows 1", "'a', 'b'"],
    ),
    ({"parents": {"c": "a"}}, ["parents", "without heredity"]),
    ({"heredity": "strong", "parents": {"c": "x"}}, ["parents['c']='x'", "no feature"]),
    (
        {"heredity": "strong", "parents": {"c": "d", "d": "a:b", "a:b": "c"}},
        ["parents go in a circle: 'c', 'd', 'a:b'"],
    ),
    ({"heredity": "weak", "parents": {"c": ["c", "a"]}}, ["parents go in a circle: 'c'"]),
    (
        {"heredity": "strong", "include": ["a:b", "a"], "exclude": "b"},
        ["'a:b' cannot be in a model", "exclude names 'b'"],
    ),
    ({"heredity": "strong", "include": ["a:b", "a"]}, ["'a:b' needs all of its factors", "include 'b'"]),
    ({"heredity": "weak", "groups": {"g": ["c", "d"]}}, ["heredity='weak'", "groups=None, or groups with at_most"]),
    ({"heredity": "weak", "include": "a:b"}, ["'a:b' needs one of its factors", "include one of 'a', 'b'"]),
]


@pytest.mark.parametrize(("given", "said"), REFUSED)
def test_contradictions_are_refused_with_names(given, said):
    with pytest.raises(ValueError, match=r"; |, ") as failure:
        found(**given)
    for words in said:
        assert words in str(failure.value), failure.value
    assert len(str(failure.value)) < 400


def test_names_need_a_table():
    with pytest.raises(ValueError, match=r"include='a': the features have no names.*numbers"):
        found(ARRAY, include="a")
    with pytest.raises(ValueError, match="heredity='strong' needs to know the factors"):
        found(ARRAY, heredity="strong")


def test_a_name_of_several_columns_is_refused():
    twice = Features(2, np.array(["a", "a"], dtype=object))
    with pytest.raises(ValueError, match="include='a': several features have this name"):
        found(twice, include="a")
    assert found(twice, include=1).include == (1,)


X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 10)), columns=list("abcdefghij"))
Y = X["a"] - 2 * X["b"]
MODELS = [getattr(psfit, name) for name in psfit.__all__ if hasattr(getattr(psfit, name), "predict")]


def posed(kappa=None, **constraints) -> psfit.Problem:
    return psfit.SparseLinearRegression(kappa, **constraints)._pose(Given(X, Y)).problem


@pytest.mark.parametrize(
    ("kappa", "given", "expected"),
    [
        (None, {"include": ["a", "b"], "count_included": True}, 2),
        (None, {"include": ["a", "b"]}, 1),
        (0.5, {"exclude": list("abcdefg")}, 3),
        (3, {"exclude": list("abcdefg")}, 3),
    ],
)
def test_kappa_allows_for_constraints(kappa, given, expected):
    assert posed(kappa, **given).kappa == (expected,)


@pytest.mark.parametrize(
    ("kappa", "given", "said"),
    [
        (
            1,
            {"include": ["a", "b"], "count_included": True},
            "kappa=1 is less than the 2 features .*'a', 'b'; raise kappa",
        ),
        (
            4,
            {"exclude": list("abcdefg")},
            "kappa=4 must be between 1 and 3: it counts features, and the constraints allow 3",
        ),
        (None, {"include": list("abcdefghij")}, "leave nothing to choose"),
        (
            5,
            {"groups": np.arange(10) // 5, "at_most": 2},
            "kappa=5 must be between 1 and 4: it counts features, and the constraints allow 4",
        ),
    ],
)
def test_impossible_limits_are_refused(kappa, given, said):
    with pytest.raises(ValueError, match=said):
        posed(kappa, **given)


def test_paths_begin_with_what_is_forced_and_end_with_what_is_left():
    path = psfit.sparse_path(X, Y, include=["a", "b"], exclude="c", count_included=True, certify=False)
    assert path.kappas.tolist() == list(range(2, 10))
    with pytest.raises(ValueError, match="kappa=1 is less than the 2 features"):
        psfit.sparse_path(X, Y, [1, 2], include=["a", "b"], count_included=True)


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_scikit_learn_sees_plain_parameters(kind):
    given = {"include": ["a"], "lower": {"b": 0.0}, "groups": None, "heredity": "weak", "parents": {"c": ["a"]}}
    model = clone(kind(**given))
    assert given.items() <= model.get_params().items()
    assert kind().get_params()["groups"] == "categories"
    assert not any(one.kind is one.VAR_KEYWORD for one in inspect.signature(kind).parameters.values())
    with pytest.raises(TypeError, match="unexpected keyword argument 'inclde'"):
        kind(inclde="a")


@pytest.mark.parametrize("function", [psfit.sparse_path, psfit.stability_selection])
def test_procedures_take_the_same_arguments(function):
    own, models = inspect.signature(function).parameters, inspect.signature(SparseModel).parameters
    assert [name for name in models if name in own][-11:] == list(models)[-11:]
    with pytest.raises(TypeError, match="unexpected keyword argument 'inclde'"):
        function(X, Y, inclde="a")
    with pytest.raises(ValueError, match="exclude='zzz'"):
        function(X, Y, exclude="zzz")


def test_every_rank_and_every_column_of_a_fit_obeys():
    """What reaches the answer: names, not places, decide."""
    given = {"include": "j", "exclude": ["a"], "upper": {"b": 0.0}, "lower": {"b": -1.0}}
    model = psfit.SparseLinearRegression(2, **given).fit(X, Y)
    shuffled = psfit.SparseLinearRegression(2, **given).fit(X[X.columns[::-1]], Y)
    coef = dict(zip(model.feature_names_in_, model.coef_, strict=True))
    assert coef == pytest.approx(dict(zip(shuffled.feature_names_in_, shuffled.coef_, strict=True)), abs=1e-9)
    assert coef["j"] != 0
    assert coef["a"] == 0
    assert coef["b"] == pytest.approx(-1.0)
    assert np.count_nonzero(model.coef_) <= 3
    assert "always in (not counted by kappa): j" in str(model.result_)
