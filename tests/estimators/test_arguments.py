"""Every argument that is of a wrong type or out of range is named, with what was given and what is allowed."""

import inspect
from dataclasses import fields

import numpy as np
import pytest

import psfit
from psfit import BiCADMM, GridSpec, Problem, sparse_path, stability_selection
from psfit.losses import Squared

X = np.random.default_rng(0).normal(size=(30, 4))
Y = np.arange(30) % 2
MODELS = [name for name in psfit.__all__ if hasattr(getattr(psfit, name), "predict")]
PLAIN = [name for name in MODELS if not name.endswith("CV")]
CHOOSING = [name for name in MODELS if name.endswith("CV")]

NOT_NUMBERS = ["a", "1", [2], (2,), {}, np.ones(2), np.array(1.0), 1j, float("nan"), True, np.bool_(True), b"1"]
NOT_ABOVE_ZERO = [*NOT_NUMBERS, None, 0, -1.0, 10**400]
NOT_POSITIVE = [*NOT_ABOVE_ZERO, float("inf"), np.longdouble("1e4000")]
NOT_RIDGES = [*NOT_ABOVE_ZERO, 1e-320, 5e-324, float("-inf")]
# Sequences are allowed where several may be given.
SINGLE_RIDGES = [value for value in NOT_RIDGES if not isinstance(value, (list, tuple)) and np.ndim(value) == 0]
NOT_COUNTS = [*NOT_NUMBERS, 0, -3, 1.5, float("inf")]
NOT_TRUTHS = [None, "yes", "False", 0, 1, 1.0, [True], np.array(True), np.array([True])]
NOT_OBJECTS = ["a", 3, [2], np.ones(2), True]
NOT_WORDS = ["cubic", 3, None, [2], ["squared"], np.array(["squared"]), b"squared", True]

NOT_FEATURES = [1.5, True, -1, b"a", {}, {"a": 1}, [1.5], [True], [[1]], [None], iter([1]), object()]
NOT_BOUNDS = [
    "a",
    True,
    float("nan"),
    1j,
    ["a"],
    {"a": "b"},
    {1.5: 0.0},
    {"a": float("nan")},
    np.zeros((1, 1, 1)),
    iter([]),
]
OF_CONSTRAINTS = {
    "include": NOT_FEATURES,
    "exclude": NOT_FEATURES,
    "count_included": NOT_TRUTHS,
    "lower": NOT_BOUNDS,
    "upper": NOT_BOUNDS,
    "positive": NOT_TRUTHS,
    "groups": ["kinds", 3, True, {"a": []}, {"a": 1.5}, {True: [1]}, [[1]], [True, 1, 2, 3], [(1,)], iter([1])],
    "kappa_counts": NOT_WORDS,
    "at_most": ["a", 0, 1.5, True, [1], {"a": 0}, {"a": 1.5}, {"a": None}],
    "heredity": ["firm", 3, True, ["strong"]],
    "parents": [3, "a", ["a"], {"a": []}, {"a": 1.5}, {1.5: "a"}, {"a": None}],
}
OF_BOTH = {
    "effort": [word for word in NOT_WORDS if word is not None],
    "tol": [value for value in [*NOT_POSITIVE, 1, 2.0] if value is not None],
    "max_iter": [*NOT_COUNTS, "9", 9.0],
    "time_limit": [*NOT_NUMBERS, 0, -1.0],
    "n_jobs": [*NOT_COUNTS, -2, "2"],
    "random_state": [*NOT_NUMBERS, -1, 0.5],
}
COMMON = {
    **OF_CONSTRAINTS,
    "fit_intercept": NOT_TRUTHS,
    "standardize": NOT_TRUTHS,
    "sparsity": NOT_WORDS,
    "solver": [*NOT_OBJECTS, BiCADMM],
    "grid": [*NOT_OBJECTS, GridSpec, {"nodes": 1}],
    "certify": NOT_TRUTHS,
    "verbose": [None, "1", [1], -1, 1.0, np.ones(1)],
    "callback": NOT_OBJECTS,
}
OF_MODELS = COMMON | OF_BOTH | {"kappa": [*NOT_COUNTS, 4.5, 9, 10**400], "gamma": NOT_RIDGES, "warm_start": NOT_TRUTHS}
OF_CHOICES = (
    COMMON
    | OF_BOTH
    | {
        "kappas": [
            "12",
            3,
            [],
            [0],
            [1.5],
            [True],
            ["1"],
            [None],
            [[1]],
            np.ones((2, 2)),
            [np.inf],
            [np.nan],
            [10**400],
        ],
        "gammas": [*SINGLE_RIDGES, [], ["1"], [1.0, -1.0], [[1.0]], np.ones((2, 2))],
        "criterion": NOT_WORDS,
        "cv": ["a", 1, 0, -2, 2.5, True, "5"],
        "scoring": [3, ["accuracy"], ("accuracy",), {"accuracy"}, True, 1.0],
        "one_standard_error": NOT_TRUTHS,
    }
)
OF_SOME = {
    "loss": NOT_WORDS,
    "huber_delta": NOT_POSITIVE,
    "power": [*NOT_NUMBERS, None, 0.5, 3, float("inf")],
    "class_weight": ["even", 3, [1], {1: "a"}, {1: -1.0}, {1: float("nan")}, {1: None}, {1: [2]}, np.ones(2), True],
}
OF_SOLVER = {
    **dict.fromkeys(("rho_c", "rho_b", "rho_l"), NOT_POSITIVE),
    "tol": [*NOT_POSITIVE, 1, 2.0],
    "max_iter": [*NOT_COUNTS, None, "9", 9.0],
    "time_limit": [*NOT_NUMBERS, 0, -1.0],
    "local": ["magic", 3, [2], BiCADMM, True],
    "effort": NOT_WORDS,
    "exact": NOT_TRUTHS,
    "gap_tol": [*NOT_NUMBERS, None, -1e-9, 1, float("inf")],
    "checkpoint": [3, [2], b"a", True],
    "checkpoint_every": [*NOT_COUNTS, None],
    "portfolio": NOT_TRUTHS,
    "precision": NOT_WORDS,
    "record_objective": NOT_TRUTHS,
    "interruptible": NOT_TRUTHS,
    "n_jobs": OF_BOTH["n_jobs"],
    "random_state": OF_BOTH["random_state"],
}
OF_GRID = {
    "nodes": NOT_COUNTS,
    "blocks": [*NOT_COUNTS, None],
    "device": ["tpu9", 3, None, [2], True],
    "dtype": ["int8", 3, [2], np.float64, True],
    "backend": NOT_WORDS,
    "timeout": [*NOT_POSITIVE, 1e10],
}
OF_PATH = COMMON | {name: OF_CHOICES[name] for name in ("kappas", "gammas")} | {"loss": NOT_WORDS}
OF_STABILITY = {name: bad for name, bad in OF_PATH.items() if name not in ("certify", "gammas")} | {
    "gamma": NOT_RIDGES,
    "resamples": [*NOT_COUNTS, None, 3, 1],
    "threshold": [*NOT_NUMBERS, None, 0.5, 1.1],
    "random_state": OF_BOTH["random_state"],
}


def cases(rules, names=None):
    return [(name, bad) for name in (names or rules) for bad in rules[name] if name in rules]


def require_named(name, bad, action):
    with pytest.raises((ValueError, TypeError)) as failure:
        action()
    said = str(failure.value)
    assert f"{name}=" in said, said
    assert any(words in said for words in ("must be", "must lie", "cannot be used")), said
    assert len(said) < 400


@pytest.mark.parametrize("model", PLAIN)
def test_models_name_their_arguments(model):
    build = getattr(psfit, model)
    rules = {name: bad for name, bad in (OF_MODELS | OF_SOME).items() if name in inspect.signature(build).parameters}
    assert set(rules) == set(inspect.signature(build).parameters)
    for name, bad in cases(rules):
        require_named(name, bad, lambda name=name, bad=bad: build(**{name: bad}).fit(X, Y + ("Gamma" in model)))


@pytest.mark.parametrize("model", CHOOSING)
def test_choosing_models_name_their_arguments(model):
    build = getattr(psfit, model)
    rules = {name: bad for name, bad in (OF_CHOICES | OF_SOME).items() if name in inspect.signature(build).parameters}
    assert set(rules) == set(inspect.signature(build).parameters)
    for name, bad in cases(rules):
        require_named(name, bad, lambda name=name, bad=bad: build(**{name: bad}).fit(X, Y + ("Gamma" in model)))


def test_the_solver_names_its_settings():
    assert set(OF_SOLVER) == {field.name for field in fields(BiCADMM)}
    for name, bad in cases(OF_SOLVER):
        require_named(name, bad, lambda name=name, bad=bad: BiCADMM(**{name: bad}))


def test_the_grid_names_its_settings():
    assert set(OF_GRID) == {field.name for field in fields(GridSpec)}
    for name, bad in cases(OF_GRID):
        require_named(name, bad, lambda name=name, bad=bad: GridSpec(**{name: bad}).build())


def test_a_problem_names_its_settings():
    rules = {name: OF_MODELS[name] for name in ("gamma", "sparsity", "fit_intercept", "standardize")}
    for name, bad in cases(rules):
        require_named(name, bad, lambda name=name, bad=bad: Problem(Squared(), (1,), **{name: bad}))


@pytest.mark.parametrize(("function", "rules"), [(sparse_path, OF_PATH), (stability_selection, OF_STABILITY)])
def test_functions_name_their_arguments(function, rules):
    data = {"X", "y", "sample_weight", "target", "offset"}
    assert set(rules) == set(inspect.signature(function).parameters) - data
    for name, bad in cases(rules):
        require_named(name, bad, lambda name=name, bad=bad: function(X, Y, **{name: bad}))


def test_numbers_of_any_kind_work():
    solver = BiCADMM(max_iter=np.int64(500), tol=np.float32(1e-3), effort="low", exact=np.bool_(False), time_limit=50)
    grid = GridSpec(nodes=np.int16(2), blocks=np.uint8(1), timeout=np.float64(9), backend="serial")
    ridge = np.longdouble(2)
    model = psfit.SparseLinearRegression(
        np.int8(2), gamma=ridge, fit_intercept=np.bool_(True), solver=solver, grid=grid
    )
    plain = psfit.SparseLinearRegression(2, gamma=2.0, grid=GridSpec(nodes=2), solver=solver)
    np.testing.assert_array_equal(model.fit(X, Y).coef_, plain.fit(X, Y).coef_)
    assert isinstance(solver.max_iter, int)
    assert isinstance(solver.tol, float)
    path = sparse_path(X, Y, np.array([1.0, 2.0]), gammas=np.array([1, 2]), solver=solver)
    assert path.kappas.tolist() == [1, 2]
    assert path.gammas.tolist() == [1.0, 2.0]


def test_constructors_of_estimators_only_store():
    """scikit-learn's convention: arguments are looked at when the model is fitted."""
    for name in MODELS:
        build = getattr(psfit, name)
        wrong = object()
        arguments = dict.fromkeys(inspect.signature(build).parameters, wrong)
        assert all(value is wrong for value in build(**arguments).get_params(deep=False).values())
