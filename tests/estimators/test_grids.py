"""A grid that is built once serves many fits; copies share it, and files and recipes name what it was built from."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import psfit
from psfit import GridSpec, SparseLinearRegression, SparseLinearRegressionCV
from psfit.comm import build_grid

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 6))
Y = X[:, 1] - X[:, 4] + 0.3 * rng.normal(size=60)
SPEC = GridSpec(nodes=3, device="cpu")


@pytest.fixture
def grid():
    return SPEC.build()


@pytest.fixture
def no_build(grid, monkeypatch):
    """Nothing may build another grid with several nodes."""
    build = GridSpec.build

    def refuse(self, data_device=None):
        assert self.nodes is None, "a second grid was built"
        return build(self, data_device)

    monkeypatch.setattr(GridSpec, "build", refuse)
    return grid


def test_a_built_grid_gives_the_same_model(no_build):
    model = SparseLinearRegression(2, grid=no_build).fit(X, Y)
    assert model.result_.nodes == 3
    assert model.objective_ == pytest.approx(SparseLinearRegression(2).fit(X, Y).objective_, rel=1e-9)
    assert SparseLinearRegressionCV([1, 2], cv=2, grid=no_build).fit(X, Y).result_.nodes == 3


def test_procedures_take_a_built_grid(no_build):
    path = psfit.sparse_path(X, Y, [1, 2], grid=no_build)
    assert path.support(2).tolist() == [1, 4]
    stable = psfit.stability_selection(X, Y, [2], grid=no_build, resamples=4, random_state=0)
    assert stable.support.tolist() == [1, 4]


def test_copies_share_the_grid(grid):
    model = SparseLinearRegression(2, grid=grid)
    assert clone(model).grid is grid
    assert copy.deepcopy(model.fit(X, Y)).grid is grid
    assert copy.copy(grid) is grid
    assert cross_val_score(model, X, Y, cv=2).min() > 0.5


def test_a_built_grid_cannot_be_pickled(grid):
    model = SparseLinearRegression(2, grid=grid).fit(X, Y)
    with pytest.raises(TypeError, match="cannot be pickled; pass its GridSpec instead"):
        pickle.dumps(model)
    model.set_params(grid=model.grid.spec)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_files_and_reports_name_what_the_grid_was_built_from(grid, tmp_path):
    model = SparseLinearRegression(2, grid=grid).fit(X, Y)
    psfit.save(model, tmp_path / "model.psfit")
    assert psfit.load(tmp_path / "model.psfit").grid == SPEC
    assert "grid=GridSpec(nodes=3, device=&#39;cpu&#39;)" in psfit.report(model)


def test_no_grid_is_one_node_in_this_process():
    alone = build_grid(None)
    assert (alone.nodes.size, alone.blocks.size, alone.world.size) == (1, 1, 1)
