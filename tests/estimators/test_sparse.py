"""Sparse X gives the models of dense X, and is never made dense."""

import jobs
import numpy as np
import pytest
import scipy.sparse
import torch
from enumeration import best_objective
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import LOSSES, SPARSITIES, make_source

from psfit import BiCADMM, GridSpec, Problem, Source, SparseLinearRegression, SparseLogisticRegression, solve
from psfit.data import Dense, Sparse
from psfit.problem.pose import pose

pytestmark = pytest.mark.usefixtures("stays_sparse")

X, JOBS = jobs.data()
X = np.where(np.random.default_rng(1).uniform(size=X.shape) < 0.3, 0.0, X)


QUESTIONS = {
    "squared": ["predict"],
    "poisson": ["predict"],
    "hinge": ["predict", "decision_function"],
    "logistic": ["predict", "decision_function", "predict_proba"],
    "softmax": ["predict", "decision_function", "predict_proba"],
}


@pytest.mark.parametrize(("name", "ask"), [(name, ask) for name, asked in QUESTIONS.items() for ask in asked])
def test_predictions_of_sparse_rows(name, ask):
    job = JOBS[name]
    model = job.model(jobs.KAPPA, solver=job.solver, **job.options).fit(scipy.sparse.csr_array(X), job.y)
    expected = getattr(model, ask)(X)
    for rows in (scipy.sparse.csr_array(X), scipy.sparse.csc_matrix(X)):
        found = getattr(model, ask)(rows)
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-9)
        else:
            np.testing.assert_array_equal(found, expected)


def wide(samples=400, features=50_000, each=20):
    """Few entries in many columns; five columns that every tenth row has are the truth."""
    rng = np.random.default_rng(0)
    truth = np.arange(0, features, features // 5)
    rows = scipy.sparse.random_array((samples, features), density=each / features, format="csc", rng=rng)
    dense = rng.normal(size=(samples, 5)) * (rng.uniform(size=(samples, 5)) < 0.3)
    rows = rows.tolil()
    rows[:, truth] = dense
    signal = dense @ np.array([3.0, -3, 4, 5, -4])
    return rows.tocsr(), truth, signal + 0.1 * rng.normal(size=samples)


@pytest.mark.parametrize("model", [SparseLinearRegression, SparseLogisticRegression])
def test_wide_sparse_data_are_never_expanded(model, monkeypatch):
    rows, truth, y = wide()
    largest = []
    expand = torch.Tensor.to_dense

    def watched(self, *args, **kwargs):
        largest.append(self.numel())
        return expand(self, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to_dense", watched)
    y = y if model is SparseLinearRegression else y > 0
    fitted = model(5, gamma=10.0, solver=BiCADMM(effort="low")).fit(rows, y)
    assert fitted.support_.tolist() == truth.tolist()
    # A local solver may look at blocks of columns of 64 MiB; all of them would be 160 MB.
    assert max(largest, default=0) * 8 <= 64 << 20
    assert fitted.score(rows, y) > 0.8


def test_entries_stored_twice_are_added_up():
    y = JOBS["squared"].y
    once = scipy.sparse.csr_matrix(X)
    twice = scipy.sparse.csr_matrix(
        (np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), 2 * once.indptr), shape=X.shape
    )
    assert twice.nnz == 2 * once.nnz
    found, expected = (SparseLinearRegression(3).fit(rows, y) for rows in (twice, once))
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-9)
    assert twice.nnz == 2 * once.nnz


@st.composite
def far_from_zero(draw):
    """Sparse storage of columns whose means are large against their spread."""
    loss = draw(st.sampled_from(LOSSES))
    features = 4 if loss.joint else 6
    source = make_source(loss, samples=30, features=features, nonzeros=2, seed=draw(st.integers(0, 1000)))
    means = 10.0 ** torch.tensor(draw(st.lists(st.integers(-1, 6), min_size=features, max_size=features)))
    values = (source.matrix.values + means).contiguous()
    problem = Problem(
        loss,
        (2,),
        draw(st.sampled_from([0.01, 1.0, 100.0])),
        draw(st.sampled_from(SPARSITIES)) if loss.joint else "element",
    )
    rows = Sparse.of(scipy.sparse.csr_matrix(values.numpy()), torch.device("cpu"), None)
    return problem, source, Source(rows, source.target, source.weight)


@given(far_from_zero(), st.integers(1, 2))
@settings(max_examples=6, deadline=None)
def test_bounds_hold_for_sparse_columns_far_from_zero(case, nodes):
    problem, centred, source = case
    # An intercept absorbs the means, so the optimum is that of the columns before they were moved.
    optimum = best_objective(problem, centred)
    result = solve(problem, source, BiCADMM(effort="low"), GridSpec(nodes=nodes, device="cpu"))
    slack = 1e-6 * abs(optimum)
    assert result.lower_bound <= optimum + slack
    assert result.objective >= optimum - slack


def test_rounding_counts_the_means():
    """What is taken out of sums, and not out of entries, takes part in their rounding."""
    source = make_source(LOSSES[0], samples=50, features=3, nonzeros=2, seed=0)
    values = source.matrix.values + torch.tensor([0.0, 1e3, 1e6])
    problem, grid = Problem(LOSSES[0], (1,)), GridSpec(device="cpu").build()
    rows = Sparse.of(scipy.sparse.csr_matrix(values.numpy()), torch.device("cpu"), None)
    inst = pose(problem, Source(rows, source.target, source.weight), grid)
    bare = (values.square().sum(0).sqrt() / inst.coordinates.scale).unsqueeze(1)
    assert (inst.coordinates.rounding_norm[:3] >= bare * (1 - 1e-9)).all()
    dense = pose(problem, Source(Dense(values), source.target, source.weight), grid)
    assert (dense.coordinates.rounding_norm[:3] < 2 * dense.coordinates.column_norm).all()
