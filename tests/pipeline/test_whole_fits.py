"""Whole fits of every loss on every grid and in every form of data: valid, refitted, and the same everywhere."""

from functools import cache

import numpy as np
import pytest
import torch
from enumeration import quick_best_objective
from posed import CPU
from problems import LOSSES, make_source
from scipy import sparse

from psfit import GridSpec, Problem, Source, solve
from psfit.data import Sparse
from psfit.losses import Huber, Logistic, Softmax, Squared
from psfit.pipeline.path import solve_path
from psfit.problem.pose import pose
from psfit.search.refit import refit

NAMED = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
GRIDS = pytest.mark.parametrize("grid", [{"nodes": 2}, {"blocks": 2}], ids=str)
# A softmax model has fewer features, since each has several entries.
KAPPA = 4
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")


def draw(loss, sparse_form=False, dtype=torch.float64):
    """Weighted samples of correlated columns, of which most numbers may be zero."""
    source = make_source(loss, samples=70, features=6 if loss.joint else 13, nonzeros=4, seed=0, correlation=0.7)
    weight = torch.rand(70, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5
    values = source.matrix.values
    if sparse_form:
        values = values * (values.abs() > 0.8)
        matrix = Sparse.of(sparse.csr_matrix(values.numpy()), CPU, dtype)
    else:
        matrix = type(source.matrix)(values.to(dtype))
    return Source(matrix, source.target.to(dtype), weight.to(dtype))


@cache
def control(loss, sparse_form=False):
    """The objective on one node in double precision."""
    return solve(Problem(loss, (KAPPA,), 5.0), draw(loss, sparse_form)).objective


@cache
def control_path(loss, kappas):
    """The objectives of a path on one node."""
    return solve_path(Problem(loss, (1,)), draw(loss), list(kappas), [5.0])[0].objectives


def two_targets(loss, dtype):
    source = draw(loss, dtype=dtype)
    return Source(source.matrix, torch.cat([source.target, source.target.flip(0)], dim=1), source.weight)


@cache
def control_of_rows(loss):
    return solve(Problem(loss, (KAPPA,), 5.0, "feature"), two_targets(loss, torch.float64)).objective


@cache
def best_rows_of_softmax(problem):
    source = rows_of_softmax()
    return solve(problem, source).objective, quick_best_objective(problem, source)


def rows_of_softmax():
    return make_source(Softmax(), samples=70, features=10, nonzeros=6, seed=0, correlation=0.7)


def check(problem, source, result, share):
    """The objective is that of the coefficients, and of an exact refit on their support."""
    assert np.count_nonzero(result.coef) <= KAPPA
    inst = pose(problem, source, GridSpec().build(CPU))
    coef, intercept = torch.tensor(result.coef), torch.tensor(result.intercept)
    Z = inst.coordinates.from_user(coef, intercept).double()
    assert float(inst.objective(Z).sum()) == pytest.approx(result.objective, rel=share)
    chosen = inst.items.pack(Z)[0] != 0
    assert refit(inst, 0, chosen, torch.zeros_like(Z)).value == pytest.approx(result.objective, rel=share)
    assert result.lower_bound <= result.objective + 1e-9 * abs(result.objective)


# Every grid and every form, and each of them with the other kind of the other.
@NAMED
@pytest.mark.parametrize(
    ("grid", "sparse_form"),
    [({}, False), ({"nodes": 2}, True), ({"blocks": 2}, False), ({"nodes": 2, "blocks": 2}, True)],
    ids=str,
)
def test_a_fit_is_that_of_one_node_and_of_its_support(loss, grid, sparse_form):
    source, problem = draw(loss, sparse_form), Problem(loss, (KAPPA,), 5.0)
    result = solve(problem, source, grid=GridSpec(**grid))
    check(problem, source, result, 1e-8)
    assert result.objective == pytest.approx(control(loss, sparse_form), rel=1e-8)


@NAMED
@pytest.mark.parametrize("grid", [{"nodes": 2}, {"blocks": 2}], ids=str)
def test_a_fit_in_single_precision_is_nearly_that_in_double(loss, grid):
    problem = Problem(loss, (KAPPA,), 5.0)
    source = draw(loss, dtype=torch.float32)
    result = solve(problem, source, grid=GridSpec(**grid))
    check(problem, source, result, 1e-5)
    assert result.objective == pytest.approx(control(loss), rel=1e-5)


@pytest.mark.parametrize(
    ("grid", "dtype", "share"),
    [({}, torch.float32, 1e-5), ({"nodes": 2}, torch.float64, 1e-8), ({"blocks": 2}, torch.float64, 1e-8)],
    ids=str,
)
@pytest.mark.parametrize("loss", [Squared(), Huber(), Logistic()], ids=lambda loss: loss.name)
def test_rows_of_several_targets(loss, grid, dtype, share):
    problem = Problem(loss, (KAPPA,), 5.0, "feature")
    found = solve(problem, two_targets(loss, dtype), grid=GridSpec(**grid))
    assert np.count_nonzero(np.any(found.coef != 0, axis=1)) == KAPPA
    assert found.objective == pytest.approx(control_of_rows(loss), rel=share)


@GRIDS
def test_whole_rows_of_softmax(grid):
    problem = Problem(Softmax(), (KAPPA,), 5.0, "feature")
    result = solve(problem, rows_of_softmax(), grid=GridSpec(**grid))
    alone, best = best_rows_of_softmax(problem)
    assert np.count_nonzero(np.any(result.coef != 0, axis=1)) == KAPPA
    assert result.objective == pytest.approx(alone, rel=1e-8)
    assert result.objective == pytest.approx(best, rel=1e-6)
    assert result.lower_bound <= best * (1 + 1e-9)


@NAMED
@GRIDS
def test_a_path_falls_and_is_that_of_one_node(loss, grid):
    problem, source, kappas = Problem(loss, (1,)), draw(loss), (1, 2, 4, 5)
    (points,) = solve_path(problem, source, list(kappas), [5.0], grid=GridSpec(**grid))
    assert np.all(np.diff(points.objectives) <= 1e-9 * np.abs(points.objectives[:-1]))
    assert np.all(points.lower_bounds <= points.objectives + 1e-9 * np.abs(points.objectives))
    assert [int(np.count_nonzero(coef)) <= kappa for kappa, coef in zip(kappas, points.coefs, strict=True)] == [
        True
    ] * 4
    np.testing.assert_allclose(points.objectives, control_path(loss, kappas), rtol=1e-8)
