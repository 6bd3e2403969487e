"""Products of columns: their values, their names, their factors, and the models that need the factors."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import check_estimator

import psfit

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.normal(size=(50, 4)), columns=list("abcd"), index=np.arange(50) + 7)
PRODUCTS = PolynomialFeatures(2, interaction_only=True, include_bias=False).fit_transform(TABLE.to_numpy())


@pytest.mark.filterwarnings("ignore:Skipping check")
def test_scikit_learn_accepts_the_step():
    check_estimator(psfit.Interactions())


def test_tables_keep_their_names_and_their_index():
    made, parents = psfit.interactions(TABLE)
    assert made.columns.tolist() == ["a", "b", "c", "d", "a:b", "a:c", "a:d", "b:c", "b:d", "c:d"]
    pd.testing.assert_index_equal(made.index, TABLE.index)
    np.testing.assert_allclose(made.to_numpy(), PRODUCTS)
    assert parents["b:d"] == ("b", "d")
    assert len(parents) == 6


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array, scipy.sparse.csc_matrix])
def test_arrays_and_sparse_matrices(form):
    made, parents = psfit.interactions(form(TABLE.to_numpy()))
    assert scipy.sparse.issparse(made) == (form is not np.asarray)
    np.testing.assert_allclose(made.toarray() if scipy.sparse.issparse(made) else made, PRODUCTS)
    assert parents == {4: (0, 1), 5: (0, 2), 6: (0, 3), 7: (1, 2), 8: (1, 3), 9: (2, 3)}


def test_pairs_squares_and_columns_of_other_kinds():
    table = pd.DataFrame({"n": np.array([100, 3], dtype=np.int8), "t": [True, False], "text": ["x", "y"]})
    made, parents = psfit.interactions(table, [("t", "n"), ("n", "n")])
    assert made["n:t"].tolist() == [100.0, 0.0]
    assert made["n:n"].tolist() == [10000.0, 9.0]
    assert made["text"].tolist() == ["x", "y"]
    assert parents == {"n:t": ("n", "t"), "n:n": ("n",)}
    with pytest.raises(ValueError, match="column 'text' is not numeric"):
        psfit.interactions(table)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("a", "x")], "pairs='x': there is no feature"),
        ([("a", "b"), ("b", "a")], "pairs names 'a' and 'b' twice"),
        ([("a", "b", "c")], "not a pair of features"),
        ([(0, 9)], "no feature 9"),
        ([1.5], "pairs=1.5 must be"),
    ],
)
def test_wrong_pairs_are_refused(pairs, said):
    with pytest.raises(ValueError, match=said):
        psfit.interactions(TABLE, pairs)
    with pytest.raises(ValueError, match="two columns would be called 'a:b'"):
        psfit.interactions(TABLE.rename(columns={"d": "a:b"}))


def test_new_samples_are_found_by_name():
    step = psfit.Interactions([("a", "b")]).fit(TABLE)
    new = TABLE[:3]
    np.testing.assert_allclose(step.transform(new)["a:b"], new["a"] * new["b"])
    with pytest.raises(ValueError, match="feature names"):
        step.transform(new[["b", "a", "c", "d"]])


@pytest.mark.parametrize("heredity", ["strong", "weak"])
def test_products_in_a_pipeline_come_with_their_factors(heredity):
    y = 3 * TABLE["a"] * TABLE["b"] + 0.1 * TABLE["c"]
    model = make_pipeline(psfit.Interactions(), psfit.SparseLinearRegression(3, heredity=heredity)).fit(TABLE, y)
    chosen = set(model[-1].feature_names_in_[model[-1].support_])
    assert "a:b" in chosen
    assert {"a", "b"} <= chosen if heredity == "strong" else {"a", "b"} & chosen
    assert model.predict(TABLE[:5]).shape == (5,)
    made, parents = psfit.interactions(TABLE.to_numpy())
    same = psfit.SparseLinearRegression(3, heredity=heredity, parents=parents).fit(made, y)
    assert same.objective_ == pytest.approx(model[-1].objective_)
    free = psfit.SparseLinearRegression(3).fit(made, y)
    assert free.objective_ <= same.objective_
