"""Constrained fits on a GPU have the answers of a CPU; only collected where there is a GPU."""

import numpy as np
import pytest

from psfit import GridSpec, SparseLinearRegression, SparseLogisticRegression, SparseSoftmaxRegression

pytestmark = pytest.mark.gpu

FEATURES = 24
DEMANDS = {
    "signs": {"lower": [0.0 if j % 2 else -np.inf for j in range(FEATURES)]},
    "bounds": {"lower": -0.15, "upper": 0.25},
    "forced": {"include": [3, 7], "exclude": [1]},
    "groups": {"groups": np.arange(FEATURES) // 3},
    "groups with signs": {"groups": np.arange(FEATURES) // 3, "positive": True},
    "one of each group": {"groups": np.arange(FEATURES) // 4, "at_most": 1},
    "heredity": {"heredity": "strong", "parents": {20: [0, 1], 21: [2]}},
}


def draw(model):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, FEATURES))
    X[:, 1:] += 0.5 * X[:, :-1]
    eta = X[:, [1, 6, 20]] @ np.array([1.0, -1.0, 0.7])
    if model is SparseLinearRegression:
        return X, eta + rng.normal(size=300)
    if model is SparseLogisticRegression:
        return X, eta + rng.logistic(size=300) > 0
    return X, np.digitize(eta + rng.logistic(size=300), [-1, 1])


@pytest.mark.parametrize("model", [SparseLinearRegression, SparseLogisticRegression, SparseSoftmaxRegression])
@pytest.mark.parametrize("demand", list(DEMANDS))
def test_a_gpu_has_the_answer_of_a_cpu(model, demand):
    X, y = draw(model)
    here, there = (
        model(3, gamma=1.0, grid=GridSpec(device=device, dtype="float64"), **DEMANDS[demand]).fit(X, y)
        for device in ("cpu", "cuda")
    )
    assert there.result_.objective == pytest.approx(here.result_.objective, rel=1e-6)
    assert there.result_.lower_bound <= here.result_.objective * (1 + 1e-9)
    np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-4 * np.abs(here.coef_).max())
