"""``psfit bench``: the figures agree with enumeration, and scikit-learn's paths find what they should."""

import json
from itertools import combinations

import numpy as np
import pytest
import torch
from console import only_line, psfit

from psfit.cli import l1_baselines
from psfit.common.environment import environment
from psfit.data.synthetic import draw_signs, paper_recipe


def test_figures_agree_with_enumeration(tmp_path):
    samples, features, kappa = 60, 12, 2
    sizes = ["--samples", samples, "--features", features, "--kappa", kappa]
    done = psfit("bench", *sizes, "--repeats", 2, "--device", "cpu", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    facts = json.loads(done.stdout)
    made = paper_recipe(samples, features, 1 - kappa / features, 4, dtype=torch.float32)
    A, b = made.A.double().numpy(), made.b.double().numpy()

    def objective(support):
        part = A[:, support]
        x = np.linalg.solve(part.T @ part + np.eye(kappa) / 2, part.T @ b)
        return float(((part @ x - b) ** 2).sum() + (x**2).sum() / 2)

    best = min(combinations(range(features), kappa), key=objective)
    truth = set(np.flatnonzero(made.x[:, 0]).tolist())
    default, low, rival = facts["methods"]
    assert default["objective"] == pytest.approx(objective(best), rel=1e-5)
    assert default["f1"] == len(truth & set(best)) / kappa
    assert min(low["objective"], rival["objective"]) >= default["objective"] * (1 - 1e-6)
    assert rival["gap"] is None
    for method in facts["methods"]:
        assert len(method["runs"]) == 2
        assert method["seconds"] == pytest.approx(sum(method["runs"]) / 2)
    assert facts["nodes"] == 4
    assert facts["environment"]["device"] == "cpu"
    assert facts["environment"]["torch"] == torch.__version__


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_no_method_is_below_what_was_proved(loss, tmp_path):
    sizes = ["--samples", 400, "--features", 20, "--nodes", 2, "--repeats", 1]
    done = psfit("bench", *sizes, "--loss", loss, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["nodes"], facts["kappa"]) == (2, 2)
    default = facts["methods"][0]
    floor = default["objective"] * (1 - default["gap"])
    assert all(method["objective"] >= floor * (1 - 1e-9) for method in facts["methods"])


def test_a_table_for_people(tmp_path):
    done = psfit("bench", "--samples", 200, "--features", 10, "--repeats", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    head, titles, *rows = done.stdout.splitlines()
    assert head.startswith("200 samples x 10 features in float32, 1 of them matter, squared loss, 4 nodes, 1 run")
    assert titles.split() == ["method", "seconds", "F1", "objective", "gap"]
    assert [row[:26].strip() for row in rows[:3]] == ["PsFiT, default", "PsFiT, effort low", "scikit-learn, l1 path"]
    assert "machine" in rows[-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--features", 0], "--features: 0 must be at least 1"),
        (["--features", 10, "--kappa", 11], "--kappa: 11 must be between 1 and 10"),
        (["--repeats", 0], "--repeats: 0 must be at least 1"),
        (["--nodes", 0], "--nodes 0 must be an integer of at least 1"),
        (["--device", "abacus"], "--device 'abacus' cannot be used"),
    ],
)
def test_mistakes(arguments, said, call):
    code, out, err = call("bench", *arguments)
    assert (code, out) == (1, "")
    assert said in err


def test_a_mistake_at_the_console(tmp_path):
    said = only_line(psfit("bench", "--samples", 3, cwd=tmp_path))
    assert "--samples: 3 is too few for 4 nodes; use at least 4" in said


def test_a_loss_without_a_rival_is_wrong_usage(call):
    code, _, err = call("bench", "--loss", "poisson")
    assert code == 2
    assert "poisson" in err


def test_the_lasso_of_orthonormal_columns_keeps_the_largest_products():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(50, 12)))[0]
    b = Q @ np.array([5.0, 0, 0, -4, 0, 3, 0, 0, 0, 0.001, 0, 0]) + 0.001 * rng.normal(size=50)
    expected = np.sort(np.argsort(-np.abs(Q.T @ b))[:3])
    kept, seconds = l1_baselines.lasso(Q, b, 3)
    np.testing.assert_array_equal(kept, expected)
    assert seconds > 0


@pytest.mark.parametrize("path", [l1_baselines.l1_logistic, l1_baselines.l1_svm])
def test_l1_classifiers_find_what_decides(path):
    X = np.random.default_rng(0).normal(size=(300, 10)).astype(np.float32)
    y = np.where(X[:, 2] + 0.7 * X[:, 7] > 0, 1.0, -1.0)
    np.testing.assert_array_equal(path(X, y, 2)[0], [2, 7])


def test_labels_follow_the_logistic_model():
    made = paper_recipe(40_000, 10, 0.5, 1)
    labels, eta = draw_signs(made), made.A @ made.x
    assert set(labels.unique().tolist()) == {-1.0, 1.0}
    near_one = (eta / eta.std() - 1).abs() < 0.05
    # A margin of 2 means a chance of 0.881, and a mean label of 0.762.
    assert labels[near_one].mean().item() == pytest.approx(np.tanh(1.0), abs=0.05)


def test_the_environment_is_plain_text():
    found = environment()
    assert all(isinstance(value, str) and value for value in found.values())
    assert found["numpy"] == np.__version__
