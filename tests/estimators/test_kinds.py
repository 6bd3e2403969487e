"""Values of every kind are read exactly or refused by the name of the argument."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from psfit import BiCADMM, SparseLinearRegression, SparseLogisticRegression, SparsePoissonRegression
from psfit.estimators.reading import as_array, read_new, read_weights
from psfit.estimators.targets import Numbers

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 4))
Y = X[:, 0] + 0.1 * rng.normal(size=30)
WEIGHT = rng.uniform(1, 2, size=30)
LOW = BiCADMM(effort="low")
DAYS = np.arange(30).astype("datetime64[D]")


def fit(X=X, y=Y, sample_weight=None, model=SparseLinearRegression):
    return model(2, solver=LOW).fit(X, y, sample_weight)


def holding(value):
    """Objects, all numbers but one."""
    values = Y.astype(object)
    values[3] = value
    return values


def table(column):
    return pd.DataFrame({"plain": Y, "odd": column})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.ma.masked_array(Y, mask=Y > 1), "masked"),
        (holding(pd.NA), "missing value in row 3"),
        (holding(None), "missing value in row 3"),
        (holding(pd.NaT), "missing value in row 3"),
        (holding(1j), "Complex"),
        (holding("1.5"), "text, such as '1.5' in row 3"),
        (holding(pd.Timestamp("2020-01-01")), "dates"),
        (holding(10**400), "too large"),
        (holding({"a": 1}), "dict"),
        (Y + 0j, "Complex"),
        (Y.astype(str), "text"),
        (Y.astype("S8"), "text"),
        (DAYS, "dates"),
        (DAYS - DAYS[0], "dates"),
        (pd.Series(pd.date_range("2020", periods=30, tz="UTC")), "dates"),
        (np.zeros(30, dtype=[("a", float)]), "records"),
        (torch.as_tensor(Y + 0j), "Complex"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("name", ["X", "y", "sample_weight"])
def test_what_is_no_number_is_refused_by_name(name, given, said):
    value = given.reshape(-1, 1) if name == "X" and not isinstance(given, pd.Series) else given
    value = value.to_frame() if isinstance(value, pd.Series) and name == "X" else value
    with pytest.raises((ValueError, TypeError), match=rf"^{name}.*{said}"):
        fit(**{name: value})


@pytest.mark.parametrize(
    "column",
    [
        DAYS,
        DAYS - DAYS[0],
        pd.date_range("2020", periods=30, tz="UTC"),
        holding(pd.NA),
        holding("a"),
        pd.array(["b"] * 30),
    ],
    ids=["dates", "times", "zone", "missing", "text", "strings"],
)
def test_columns_of_a_table_are_named(column):
    with pytest.raises(ValueError, match=r"^X: column 'odd'"):
        fit(table(column))


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (np.ma.masked_array(Y > 0, mask=Y > 1), "masked"),
        (np.where(Y > 0, "a", None), "missing"),
        ((Y > 0) + 0j, "Complex"),
    ],
)
def test_labels_of_no_use_are_refused_by_name(y, said):
    with pytest.raises(ValueError, match=rf"^y.*{said}"):
        fit(y=y, model=SparseLogisticRegression)


def test_a_masked_array_without_masked_entries_is_an_array():
    expected = fit(X, Y, WEIGHT).coef_
    got = fit(np.ma.masked_array(X), np.ma.masked_array(Y), np.ma.masked_array(WEIGHT, mask=False)).coef_
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reversed_arrays_are_the_same_data(dtype):
    data = X.astype(dtype)
    expected = fit(data[::-1].copy(), Y[::-1].copy(), WEIGHT[::-1].copy())
    got = fit(data[::-1], Y[::-1], WEIGHT[::-1])
    np.testing.assert_array_equal(got.coef_, expected.coef_)
    np.testing.assert_array_equal(got.predict(data[::-1]), expected.predict(data[::-1].copy()))
    turned = fit(data[:, ::-1], Y).coef_
    np.testing.assert_array_equal(turned, fit(data[:, ::-1].copy(), Y).coef_)
    labels = fit(data[::-1], (Y > 0)[::-1], model=SparseLogisticRegression).coef_
    np.testing.assert_array_equal(
        labels, fit(data[::-1].copy(), (Y > 0)[::-1].copy(), model=SparseLogisticRegression).coef_
    )


# Integers that float64 holds, beyond what int64 does.
LARGE = (np.uint64(2**63) + np.uint64(4096) * np.arange(120, dtype=np.uint64)).reshape(30, 4)
KINDS = {
    "uint64": LARGE,
    "uint8": (np.abs(X) * 50).astype(np.uint8),
    "int8": (X * 20).astype(np.int8),
    "bool": X > 0,
    "float16": X.astype(np.float16),
    "longdouble": X.astype(np.longdouble),
    "big endian": X.astype(">f8"),
    "objects": X.astype(object),
    "whole objects": (X * 10).astype(int).astype(object),
    "decimals": np.array([[Decimal(f"{value:.4f}") for value in row] for row in X]),
    "truths": (X > 0).astype(object),
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_every_kind_are_read_exactly(kind):
    given = KINDS[kind]
    expected = np.array([[float(value) for value in row] for row in given.tolist()])
    np.testing.assert_array_equal(read_new(given, "the test")[0], expected)
    positive = np.abs(given[:, 0].astype(float)).astype(given.dtype) if kind != "uint64" else given[:, 0]
    np.testing.assert_array_equal(read_weights(positive, 30), [float(value) for value in positive.tolist()])
    np.testing.assert_array_equal(Numbers.read(given[:, 0], 30), expected[:, 0])


def test_tensors_that_numpy_does_not_know():
    halves = torch.as_tensor(Y).to(torch.bfloat16)
    np.testing.assert_array_equal(as_array(halves), halves.double().numpy())
    np.testing.assert_array_equal(fit(y=halves).coef_, fit(y=halves.double().numpy()).coef_)
    assert read_new(torch.as_tensor(LARGE), "the test")[0].tolist() == LARGE.astype(float).tolist()


def test_complex_sparse_matrices_are_refused_by_name():
    with pytest.raises(ValueError, match=r"^X: Complex"):
        fit(scipy.sparse.csr_array(X + 0j))


def test_counts_as_text():
    with pytest.raises(ValueError, match=r"^y is not numeric"):
        fit(y=np.arange(30).astype(str), model=SparsePoissonRegression)
