"""Every input either works or is refused with the argument's name and a remedy."""

from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import torch

from psfit import (
    BiCADMM,
    GridSpec,
    SparseLinearRegression,
    SparseLogisticRegression,
    SparsePoissonRegression,
    SparseSVC,
    TableSource,
)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 6))
    return X, X[:, 1] - 2 * X[:, 4] + 0.1 * rng.normal(size=40) + 3


@pytest.mark.parametrize("kappa", [0, 7, -1, 1.5, 6.5, 0.0])
def test_kappa_out_of_range(data, kappa):
    with pytest.raises(ValueError, match="kappa"):
        SparseLinearRegression(kappa).fit(*data)


@pytest.mark.parametrize("kappa", ["3", True])
def test_kappa_of_a_wrong_type(data, kappa):
    with pytest.raises(TypeError, match="kappa"):
        SparseLinearRegression(kappa).fit(*data)


@pytest.mark.parametrize(("kappa", "expected"), [(None, 1), (2, 2), (0.5, 3), (0.01, 1), (6, 6), (np.int64(2), 2)])
def test_kappa_as_count_share_or_default(data, kappa, expected):
    model = SparseLinearRegression(kappa).fit(*data)
    assert len(model.support_) == expected


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"gamma": 0}, "gamma"),
        ({"gamma": -1.0}, "gamma"),
        ({"gamma": float("nan")}, "gamma"),
        ({"gamma": "1"}, "gamma"),
        ({"sparsity": "rows"}, "sparsity"),
        ({"solver": "admm"}, "solver"),
        ({"grid": 4}, "grid"),
        ({"grid": GridSpec(nodes=41)}, "nodes"),
        ({"grid": GridSpec(nodes=0)}, "nodes"),
        ({"grid": GridSpec(blocks=1.5)}, "blocks"),
        ({"grid": GridSpec(device="tpu9")}, "device"),
        ({"grid": GridSpec(dtype="int8")}, "dtype"),
        ({"grid": GridSpec(backend="pigeon")}, "backend"),
        ({"loss": "cubic"}, "loss"),
        ({"loss": "huber", "huber_delta": 0}, "huber_delta"),
        ({"loss": "huber", "solver": BiCADMM(local="direct")}, "local"),
        ({"grid": GridSpec(blocks=2), "solver": BiCADMM(local="newton")}, "local"),
    ],
)
def test_wrong_settings_are_named(data, settings, word):
    with pytest.raises((ValueError, TypeError), match=word):
        SparseLinearRegression(2, **settings).fit(*data)


@pytest.mark.parametrize(
    "settings",
    [{"rho_c": 0}, {"rho_b": -1.0}, {"rho_l": "big"}, {"tol": 0}, {"tol": 2.0}, {"max_iter": 0}, {"time_limit": 0}],
)
def test_wrong_solver_settings_are_named(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        BiCADMM(**settings)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, torch.as_tensor])
def test_the_column_of_a_bad_entry_is_named(data, value, kind):
    X, y = data
    X[7, 3] = value
    with pytest.raises(ValueError, match=r"column 3.*row 7"):
        SparseLinearRegression(2).fit(kind(X), y)


def test_a_bad_entry_of_y_or_of_the_weights(data):
    X, y = data
    with pytest.raises(ValueError, match="must not be negative; it is -2 in row 5"):
        SparseLinearRegression(2).fit(X, y, np.where(np.arange(len(y)) == 5, -2.0, 1.0))
    y[5] = np.nan
    with pytest.raises(ValueError, match="y contains NaN, first in row 5"):
        SparseLinearRegression(2).fit(X, y)
    with pytest.raises(ValueError, match="y contains infinity, first in row 5"):
        SparseLinearRegression(2).fit(X, np.where(np.isnan(y), np.inf, y))


@pytest.mark.parametrize(
    ("X", "y", "word"),
    [
        (np.ones((5, 2)), np.ones(4), "inconsistent"),
        (np.ones((0, 2)), np.ones(0), "0 sample"),
        (np.ones((5, 0)), np.ones(5), "0 feature"),
        (np.ones(5), np.ones(5), "2D"),
        (np.array([["a", "b"], ["c", "d"]]), np.ones(2), "encode"),
        (pd.DataFrame({"x": [1, 2], "colour": ["red", "blue"]}), np.ones(2), "encode"),
        (torch.ones(5), np.ones(5), "two dimensions"),
        (torch.ones(0, 2), np.ones(0), "empty"),
        (torch.ones(3, 2, dtype=torch.complex64), np.ones(3), "complex"),
        (np.ones((4, 2)) * 1e200, np.arange(4.0), "change its unit"),
    ],
)
def test_unusable_data(X, y, word):
    with pytest.raises(ValueError, match=word):
        SparseLinearRegression(1, fit_intercept=False).fit(X, y)


@pytest.mark.parametrize("weight", [-np.ones(40), np.zeros(40), np.ones(39)], ids=["negative", "zero", "short"])
def test_unusable_sample_weights(data, weight):
    with pytest.raises(ValueError, match=r"sample_weight|[Ss]ample weights"):
        SparseLinearRegression(1).fit(*data, sample_weight=weight)


def test_constant_and_duplicate_columns(data):
    X, y = data
    X = np.column_stack([X, np.full(40, 7.0), X[:, 1], np.zeros(40)])
    model = SparseLinearRegression(4, gamma=1e8).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert {1, 4} <= {j if j != 7 else 1 for j in model.support_}
    assert model.score(X, y) > 0.99


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_one_feature_and_one_sample(fit_intercept):
    one = SparseLinearRegression(1, gamma=1e6, fit_intercept=fit_intercept)
    x = np.arange(5.0).reshape(-1, 1)
    assert one.fit(x, 2 * x[:, 0]).coef_ == pytest.approx([2.0], rel=1e-4)
    with pytest.warns(UserWarning, match="same number in all samples") if fit_intercept else nullcontext():
        single = one.fit(np.array([[2.0, 0.0]]), np.array([3.0]))
    assert single.predict(np.array([[2.0, 0.0]])) == pytest.approx([3.0], rel=1e-4)


def test_a_column_with_a_large_mean(data):
    X, y = data
    shifted = X + np.array([0, 1e6, 0, 0, -1e5, 0])
    a, b = (SparseLinearRegression(2, gamma=100.0).fit(Z, y) for Z in (X, shifted))
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-5)
    np.testing.assert_allclose(a.predict(X), b.predict(shifted), rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.float16])
def test_tensors_of_any_dtype(data, dtype):
    X, y = data
    X = torch.as_tensor(10 * X).to(dtype)
    model = SparseLinearRegression(2, gamma=100.0).fit(X, torch.as_tensor(y))
    assert model.support_.tolist() == [1, 4]
    assert isinstance(model.coef_, np.ndarray)
    assert model.predict(X).shape == (40,)
    with pytest.raises(ValueError, match="6 features"):
        model.predict(X[:, :5])


def test_sparse_tensors_are_refused_and_names_do_not_linger(data):
    X, y = data
    model = SparseLinearRegression(2).fit(pd.DataFrame(X, columns=list("abcdef")), y)
    with pytest.raises(TypeError, match="to_dense"):
        model.fit(torch.as_tensor(X).to_sparse(), y)
    assert not hasattr(model.fit(torch.as_tensor(X), y), "feature_names_in_")


def test_tensors_and_arrays_are_used_in_place(data):
    from psfit.estimators.reading import read_new, to_tensor

    X, _ = data
    cpu = GridSpec(device="cpu").build()
    assert to_tensor(read_new(X, "the test")[0], cpu).data_ptr() == X.ctypes.data
    tensor = torch.as_tensor(X)
    assert to_tensor(read_new(tensor, "the test")[0], cpu).data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_grid_sets_the_precision(data, dtype):
    model = SparseLinearRegression(2, gamma=100.0, grid=GridSpec(dtype=dtype, nodes=3)).fit(*data)
    assert model.support_.tolist() == [1, 4]
    assert model.objective_ == pytest.approx(SparseLinearRegression(2, gamma=100.0).fit(*data).objective_, rel=1e-5)


@pytest.mark.parametrize("model", [SparseLogisticRegression(), SparseSVC()])
def test_labels_that_cannot_be_classes(data, model):
    X, y = data
    with pytest.raises(ValueError, match="continuous"):
        model.fit(X, y)
    with pytest.raises(ValueError, match=r"only one class \(1.0\)"):
        model.fit(X, np.ones(40))
    with pytest.raises(ValueError, match="only one class"):
        model.fit(X, y > 3, sample_weight=(y > 3).astype(float))
    with pytest.raises(ValueError, match="only one class"):
        model.set_params(class_weight={True: 1, False: 0}).fit(X, y > 3)
    with pytest.raises(ValueError, match="class_weight"):
        model.set_params(class_weight={True: 1, False: -1}).fit(X, y > 3)
    model.set_params(class_weight=None)


def test_counts_that_cannot_be_counts(data):
    X, _ = data
    with pytest.raises(ValueError, match="negative"):
        SparsePoissonRegression().fit(X, np.r_[-1, np.ones(39)])
    with pytest.raises(ValueError, match="zero for every sample"):
        SparsePoissonRegression().fit(X, np.zeros(40))


def test_gaps_of_a_table_have_a_remedy_of_their_own():
    table = pd.DataFrame({"a": [1.0, np.nan, 3.0, 5.0], "b": [1.0, 0.0, 2.0, 1.0]})
    with pytest.raises(ValueError, match=r"NaN in column 0 \('a'\).*or fit to psfit.TableSource\(X, missing='fill'\)$"):
        SparseLinearRegression(1).fit(table, [1.0, 2.0, 3.0, 4.0])
    SparseLinearRegression(1).fit(TableSource(table, missing="fill"), [1.0, 2.0, 3.0, 4.0])
    with pytest.raises(ValueError, match=r"NaN in column 0, .*SimpleImputer\)$"):
        SparseLinearRegression(1).fit(table.to_numpy(), [1.0, 2.0, 3.0, 4.0])
