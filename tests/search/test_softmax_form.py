"""Models of the softmax loss for searches: regular for any ridge, with any number of candidates."""

from itertools import combinations

import numpy as np
import pytest
import torch
from enumeration import best_objective
from problems import make_source

from psfit import GridSpec, Problem
from psfit.losses import Softmax
from psfit.problem.pose import pose
from psfit.search import model_form
from psfit.search.improve import improve
from psfit.search.objective import DataObjective
from psfit.search.starts import refit_end, select_forward


def make_objective(features, kappa, gamma, sparsity, samples=80):
    source = make_source(Softmax(), samples=samples, features=features, nonzeros=6, seed=2, correlation=0.8)
    problem = Problem(Softmax(), (kappa,), gamma, sparsity)
    return DataObjective(pose(problem, source, GridSpec(device="cpu").build()), 0), problem, source


def fit_first(objective, count):
    """The fit on the first items."""
    inst = objective.inst
    chosen = torch.arange(objective.domain.items.size) < count
    return refit_end(objective, chosen, inst.ridge.new_zeros(len(inst.ridge), inst.items.outputs))


@pytest.mark.parametrize("gamma", [1.0, 1e12])
def test_whole_rows_have_a_regular_model(gamma):
    """With hardly any ridge, nothing but the model's own term keeps all outputs of a row from moving together."""
    objective, _, _ = make_objective(7, 3, gamma, "feature")
    found = fit_first(objective, 3)
    local = objective.local_form(found)
    H, Q, width = local.search.H, local.search.Q, local.form.width
    assert np.linalg.eigvalsh(H)[0] > 1e-6 * H.diagonal().max()
    base = local.pack(found.chosen)
    assert local.search.grow(np.zeros(7, bool), [3])[0].sum() == 3
    values = {}
    for rows in combinations(range(7), 3):
        at = np.concatenate(
            [np.add.outer(np.array(rows) * width, np.arange(width)).ravel(), np.arange(7 * width, len(H))]
        )
        x = np.linalg.solve(H[np.ix_(at, at)], Q[at])
        values[rows] = local.form.constant - 0.5 * float((Q[at] * x).sum())
        assert np.abs(x.reshape(-1, width).sum(axis=1)).max() < 1e-6
    assert values[0, 1, 2] == pytest.approx(found.value)
    (end,) = local.search.descend([base])
    assert end.value == pytest.approx(values[tuple(np.flatnonzero(end.chosen).tolist())])
    singles = local.search.single_swaps(base, 4)
    neighbours = {rows: value for rows, value in values.items() if len({0, 1, 2} & set(rows)) == 2}
    assert singles[0].value == pytest.approx(min(neighbours.values()))
    assert end.value <= singles[0].value


@pytest.mark.parametrize("sparsity", ["element", "feature"])
def test_models_of_some_candidates_find_the_best_support(sparsity, monkeypatch):
    """The least number of candidates is no multiple of the number of outputs."""
    monkeypatch.setattr(model_form, "CHEAP_PRODUCT", {"cpu": 1.0})
    monkeypatch.setattr(model_form, "LEAST_OTHERS", 3)
    objective, problem, source = make_objective(8, 2, 1.0, sparsity)
    start = select_forward(objective, 2, objective.inst.ridge.new_zeros(9, objective.inst.items.outputs))
    assert objective.local_form(start).index is not None
    assert improve(objective, start).value == pytest.approx(best_objective(problem, source), rel=1e-6)
