"""Paths, stability, near-optimal models, constraints, criteria and reports over clients, against the pooled samples.

A fit of all samples in one process, with a node for each client, divides its samples into folds and halves in the same
way as the clients do.
"""

import numpy as np
import pyarrow as pa
import pytest

import psfit
from psfit.federated import Job, LocalData, simulate

CLIENTS = 3
COLUMNS = [f"x{j}" for j in range(6)]
NODES = psfit.GridSpec(nodes=CLIENTS)


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(11)
    X = rng.normal(size=(90, 6))
    signal = X @ [2, 0, -1, 0, 1.5, 0]
    return {
        "X": X,
        "table": pa.table(dict(zip(COLUMNS, X.T, strict=True))),
        "number": signal + rng.normal(size=90),
        "label": (signal + rng.logistic(size=90) > 0).astype(int),
        "weight": rng.uniform(0.5, 2.0, size=90),
        "offset": rng.normal(size=90),
    }


def divide(samples, target, *extras):
    parts = np.array_split(np.arange(90), CLIENTS)
    names = ("X", target, *extras)
    return {f"site{k}": LocalData(*(samples[name][part] for name in names)) for k, part in enumerate(parts)}


def assert_same(found, pooled):
    assert found.objective_ == pytest.approx(pooled.objective_, rel=1e-9)
    assert found.lower_bound_ == pytest.approx(pooled.lower_bound_, rel=1e-6)
    np.testing.assert_array_equal(found.coef_ != 0, pooled.coef_ != 0)


def test_constraints_weights_offsets_and_questions_have_the_pooled_answers(samples):
    demands = {"include": ["x1"], "exclude": ["x5"], "lower": {"x2": -0.5}}
    questions = {
        "path": {"kappas": [2, 3], "gammas": [0.1, 1.0]},
        "stability": {"kappas": [3], "resamples": 2, "random_state": 4},
        "near_optimal": {"within": 0.5},
    }
    job = Job("SparseLinearRegression", {"kappa": 3, **demands}, columns=COLUMNS, questions=questions)
    found = simulate(job, divide(samples, "number", "weight", "offset"))
    given = (samples["table"], samples["number"])
    named = {"sample_weight": samples["weight"], "offset": samples["offset"]}
    pooled = psfit.SparseLinearRegression(3, **demands).fit(*given, **named)
    assert_same(found.model, pooled)
    assert found.model.coef_[2] >= -0.5
    assert found.model.coef_[1] != 0
    assert found.model.feature_names_in_.tolist() == COLUMNS
    path = psfit.sparse_path(*given, **named, **demands, **questions["path"])
    np.testing.assert_allclose(found.answers["path"].objectives, path.objectives, rtol=1e-9)
    np.testing.assert_allclose(found.answers["path"].lower_bounds, path.lower_bounds, rtol=1e-6)
    np.testing.assert_allclose(found.answers["path"].coefs, path.coefs, atol=1e-7)
    halves = psfit.stability_selection(*given, **named, **demands, **questions["stability"], grid=NODES)
    np.testing.assert_array_equal(found.answers["stability"].frequencies, halves.frequencies)
    close = psfit.near_optimal(pooled, *given, **named, **questions["near_optimal"])
    assert len(close.objectives) > 1
    assert found.answers["near_optimal"].complete
    np.testing.assert_array_equal(found.answers["near_optimal"].supports, close.supports)
    np.testing.assert_allclose(found.answers["near_optimal"].objectives, close.objectives, rtol=1e-9)
    page = psfit.report(found.model, near_optimal=found.answers["near_optimal"])
    assert all(name in page for name in ("x0", "x1"))
    assert "x2" in psfit.report(found.answers["path"])


def test_exact_mode_proves_over_clients(samples):
    arguments = {"kappa": 2, "lower": {"x2": -0.5}, "upper": {"x0": 0.8}}
    job = Job(
        "SparseLogisticRegression",
        arguments | {"solver": {"exact": True}},
        columns=COLUMNS,
        classes=[0, 1],
    )
    found = simulate(job, divide(samples, "label"))
    pooled = psfit.SparseLogisticRegression(**arguments, solver=psfit.BiCADMM(exact=True))
    assert_same(found.model, pooled.fit(samples["table"], samples["label"]))
    assert found.model.result_.status is psfit.Status.PROVED


@pytest.mark.parametrize(
    "choice",
    [{"criterion": "bic"}, pytest.param({"cv": 3, "scoring": "neg_mean_absolute_error"}, marks=pytest.mark.long)],
)
def test_the_limit_is_chosen_as_over_nodes(samples, choice):
    arguments = {"kappas": [1, 2, 3, 4], "gammas": [0.01, 1.0]} | choice
    job = Job("SparseLinearRegressionCV", arguments, questions={"path": {"certify": False}})
    found = simulate(job, divide(samples, "number"))
    pooled = psfit.SparseLinearRegressionCV(**arguments, grid=NODES).fit(samples["X"], samples["number"])
    assert_same(found.model, pooled)
    assert (found.model.kappa_, found.model.gamma_) == (pooled.kappa_, pooled.gamma_)
    np.testing.assert_allclose(found.model.selection_.scores, pooled.selection_.scores, rtol=1e-9)
    # The path takes its limits and ridges from the estimator.
    assert found.answers["path"].objectives.shape == (2, 4)
