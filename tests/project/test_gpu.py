"""The same answers on a GPU; only collected where there is one."""

import numpy as np
import pytest
import scipy.sparse
import torch
from problems import LOSSES, make_source, paper_source

import psfit.data.streamed as streaming
from psfit import (
    BiCADMM,
    GridSpec,
    Problem,
    Source,
    SparseLinearRegression,
    SparsePoissonRegression,
    solve,
    sparse_path,
)
from psfit.data import Sparse, Streamed
from psfit.data.streamed import ArrayRows
from psfit.losses import Squared
from psfit.pipeline.path import solve_path
from psfit.problem import costs

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_paper_recipe_on_a_gpu(level):
    source, truth = paper_source(20_000, 1_000, level, nodes=4, dtype=torch.float32, device="cuda")
    result = solve(Problem(Squared(), (truth.kappa,), 10.0, fit_intercept=False), source, grid=GridSpec(nodes=4))
    assert result.objective <= truth.objective(10.0) * (1 + 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_paths_in_lockstep(correlation, dtype):
    source = make_source(Squared(), samples=400, features=60, nonzeros=8, seed=5, correlation=correlation).to(dtype)
    kappas = list(range(1, 41))
    problem = Problem(Squared(), (1,), gamma=5.0)
    (control,) = solve_path(problem, source, kappas, [5.0])
    (moved,) = solve_path(problem, source.to("cuda"), kappas, [5.0])
    excess = moved.objectives / control.objectives - 1
    assert excess.max() <= 1e-3
    assert excess.mean() <= 1e-5
    assert (np.diff(moved.objectives) <= 0).all()
    assert (moved.lower_bounds <= control.objectives * (1 + 1e-6)).all()


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize(("nodes", "blocks"), [(1, 1), (3, 2)])
def test_a_gpu_gives_the_same_objective(loss, nodes, blocks):
    source = make_source(loss, samples=120, features=9, nonzeros=3, seed=5)
    problem = Problem(loss, (3,), gamma=5.0)
    control = solve(problem, source, grid=GridSpec(nodes=nodes, blocks=blocks)).objective
    moved = solve(problem, source.to("cuda"), grid=GridSpec(nodes=nodes, blocks=blocks))
    assert moved.objective == pytest.approx(control, rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_gpu_proves_the_same(loss):
    source = make_source(loss, samples=80, features=8, nonzeros=3, seed=5)
    problem = Problem(loss, (3,), gamma=2.0)
    for solver in (BiCADMM(), BiCADMM(effort="low", exact=True, max_iter=5)):
        control, moved = solve(problem, source, solver), solve(problem, source.to("cuda"), solver)
        assert moved.objective == pytest.approx(control.objective, rel=1e-6)
        assert moved.lower_bound <= control.objective + 1e-12 * abs(control.objective)
        assert moved.gap <= max(1.1 * control.gap, 1e-4)


def test_wide_data_in_float32():
    source = make_source(Squared(), samples=60, features=300, nonzeros=4, seed=3)
    problem = Problem(Squared(), (4,), gamma=10.0)
    moved = solve(problem, source.to("cuda"), grid=GridSpec(nodes=3))
    assert moved.objective == pytest.approx(solve(problem, source, grid=GridSpec(nodes=3)).objective, rel=1e-6)


def test_tensors_on_a_gpu():
    source = make_source(Squared(), samples=60, features=9, nonzeros=3, seed=0)
    X, y = source.matrix.values, source.target[:, 0]
    model = SparseLinearRegression(2).fit(X.cuda(), y.cuda())
    host = SparseLinearRegression(2, grid=GridSpec(device="cpu")).fit(X.numpy(), y.numpy())
    np.testing.assert_allclose(model.coef_, host.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.predict(X.cuda()), host.predict(X.numpy()), rtol=1e-6)


def sparse(source):
    csr = scipy.sparse.csr_matrix(source.matrix.values.numpy())
    return Sparse.of(csr, torch.device("cuda"), None)


def streamed(budget):
    def build(source):
        return Streamed(ArrayRows(source.matrix.values.numpy()), torch.device("cuda"), torch.float64, budget)

    return build


FORMS = {"sparse": sparse, "streamed": streamed(0), "streamed, columns held": streamed(1 << 30)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("many", [False, True], ids=["", "many columns"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_every_form_of_data_on_a_gpu(loss, many, form, monkeypatch):
    monkeypatch.setattr(streaming, "BLOCK_BYTES", 50_000)
    source = make_source(loss, samples=150, features=130, nonzeros=3, seed=1)
    problem, solver = Problem(loss, (3,), gamma=0.2), BiCADMM(effort="low")
    control = solve(problem, source, solver)
    monkeypatch.setattr(costs, "MOST_NUMBERS", 1 if many else costs.MOST_NUMBERS)
    moved = Source(FORMS[form](source), source.target.cuda(), source.weight.cuda())
    result = solve(problem, moved, solver)
    assert result.objective == pytest.approx(control.objective, rel=1e-6)
    assert result.lower_bound <= control.objective * (1 + 1e-12)


def test_arrays_reach_the_gpu_whole():
    values = np.random.default_rng(0).normal(size=(70_000, 300)).astype(np.float32)
    stream = Streamed(ArrayRows(values), torch.device("cuda"), torch.float32, 0)
    np.testing.assert_array_equal(stream.load().values.cpu().numpy(), values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge", "softmax", "poisson", "gamma", "tweedie"])
def test_offsets_on_a_gpu(loss, dtype):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(200, 12)).astype(dtype)
    offset = rng.normal(size=200) if loss != "softmax" else rng.normal(size=(200, 3))
    mean = np.exp(0.7 * X[:, 2] - 0.5 * X[:, 7] + offset.reshape(200, -1)[:, 0])
    targets = {"poisson": rng.poisson(mean), "tweedie": rng.poisson(mean) * 1.5, "gamma": rng.gamma(2, mean)}
    y = targets.get(loss, rng.integers(3, size=200) if loss == "softmax" else np.log(mean) > 0)
    paths = [
        sparse_path(X, y, [1, 3], loss=loss, offset=offset, grid=GridSpec(nodes=nodes, blocks=blocks, device=device))
        for device, nodes, blocks in (("cpu", 1, 1), ("cuda", 1, 1), ("cuda", 2, 2))
    ]
    for path in paths[1:]:
        np.testing.assert_allclose(path.objectives, paths[0].objectives, rtol=1e-5)
        assert (path.lower_bounds <= paths[0].objectives + 1e-6 * np.abs(paths[0].objectives)).all()
    model = SparsePoissonRegression(3, solver=BiCADMM(exact=True), grid=GridSpec(device="cuda"))
    if loss == "poisson":
        model.fit(X, y, offset=offset)
        # The objective of Poisson regression can be negative.
        known = paths[0].objectives[0, 1]
        assert model.objective_ <= known + 1e-6 * abs(known)
        tensors = torch.tensor(X, device="cuda"), torch.tensor(offset, device="cuda")
        moved = model.predict(tensors[0], offset=tensors[1])
        np.testing.assert_allclose(moved, model.predict(X, offset=offset), rtol=1e-5)
