"""Sparse matrices whose arrays do not fit their shape are refused before compiled code follows them."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
import torch

import psfit
from psfit.comm import GridSpec
from psfit.data import FileSource, Sparse, memory
from psfit.data.io import DataFileError

ROWS, COLUMNS = 40, 6
MATRIX = scipy.sparse.random(ROWS, COLUMNS, density=0.3, format="csr", rng=np.random.default_rng(0))
Y = np.random.default_rng(1).normal(size=ROWS)
GRID = GridSpec(backend="serial", device="cpu").build()


def put(place, value):
    """A change of one number of an array."""

    def change(array):
        array = array.copy()
        array[place] = value
        return array

    return change


# The format, the array, what is done to it, and what is said of it.
FAULTS = [
    ("csr", "indices", put(5, COLUMNS), "an entry in column 6, but 6 columns"),
    ("csr", "indices", put(5, -1), "an entry in column -1"),
    ("csr", "indices", put(5, 2**31 - 1), "an entry in column 2147483647"),
    ("csr", "indices", lambda a: a[:-1], "indices for"),
    ("csr", "indices", lambda a: a.astype(float), "not a list of whole numbers"),
    ("csr", "indptr", put(0, 1), "its indptr goes from 1"),
    ("csr", "indptr", put(0, -3), "its indptr goes from -3"),
    ("csr", "indptr", put(3, 10**6), "its indptr decreases"),
    ("csr", "indptr", put(-1, 30), "to 30, not from 0"),
    ("csr", "indptr", put(-1, 10**6), "to 1000000, not from 0"),
    ("csr", "indptr", lambda a: a[:-1], "its indptr has 40 entries, not 41"),
    ("csc", "indices", put(5, ROWS), "an entry in row 40, but 40 rows"),
    ("csc", "indptr", put(2, 10**6), "its indptr decreases"),
    ("bsr", "indices", put(2, COLUMNS), "an entry in column"),
    ("coo", "row", put(2, ROWS), "an entry in row 40"),
    ("coo", "col", put(2, COLUMNS), "an entry in column 6"),
    ("coo", "col", put(2, -1), "an entry in column -1"),
]
faults = pytest.mark.parametrize(("form", "name", "change", "said"), FAULTS)


def arrays_of(form):
    matrix = MATRIX.asformat(form)
    names = ("row", "col", "data") if form == "coo" else ("indptr", "indices", "data")
    return {name: getattr(matrix, name) for name in names}


def damaged(form, name, change):
    """A matrix of SciPy's with one array changed behind its back."""
    matrix = MATRIX.asformat(form).copy()
    if form == "coo":
        matrix.coords = tuple(
            change(array) if own == name else array for own, array in zip(("row", "col"), matrix.coords, strict=True)
        )
    else:
        setattr(matrix, name, change(getattr(matrix, name)))
    return matrix


@pytest.fixture(scope="module")
def model():
    return psfit.SparseLinearRegression(2).fit(MATRIX, Y)


@faults
def test_damaged_matrices_in_memory_are_refused(model, form, name, change, said):
    matrix = damaged(form, name, change)
    with pytest.raises(ValueError, match="damaged") as error:
        psfit.SparseLinearRegression(2).fit(matrix, Y)
    assert said in str(error.value)
    with pytest.raises(ValueError, match="damaged"):
        model.predict(matrix)


@faults
def test_damaged_matrices_in_files_are_refused(model, form, name, change, said, tmp_path):
    arrays = arrays_of(form)
    arrays[name] = change(arrays[name])
    path = tmp_path / "data.npz"
    np.savez(path, format=np.array(form.encode()), shape=np.array(MATRIX.shape), **arrays)
    with pytest.raises(DataFileError, match=r"data\.npz: .*damaged") as error:
        psfit.SparseLinearRegression(2).fit(path, Y)
    assert said in str(error.value)
    with pytest.raises(DataFileError, match="damaged"):
        model.predict(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": np.array("xyz")}, "the format 'xyz' is unknown"),
        ({"format": np.array(3)}, "the format '3' is unknown"),
        ({"shape": np.array([40])}, "not the shape of a matrix"),
        ({"shape": np.array([-40, 6])}, "not the shape of a matrix"),
        ({"shape": np.array([40, 2**50])}, "need several vectors"),
        ({"data": np.ones((2, 2))}, "do not make a csr matrix"),
        ({"indptr": np.array(3)}, "not a list of whole numbers"),
        ({"indices": None}, "there is no array 'indices'"),
    ],
)
def test_archives_that_are_no_sparse_matrix_are_refused(change, said, tmp_path):
    known = {"format": np.array(b"csr"), "shape": np.array(MATRIX.shape), **arrays_of("csr")} | change
    np.savez(tmp_path / "data.npz", **{name: array for name, array in known.items() if array is not None})
    with pytest.raises(DataFileError) as error:
        psfit.SparseLinearRegression(2).fit(tmp_path / "data.npz", Y)
    assert said in str(error.value)


@pytest.mark.parametrize("kind", [scipy.sparse.coo_array, scipy.sparse.dia_array, scipy.sparse.csc_array])
def test_arrays_of_scipy_are_read_like_matrices(kind, tmp_path):
    scipy.sparse.save_npz(tmp_path / "data.npz", kind(MATRIX))
    found = FileSource(tmp_path / "data.npz").read(GRID, labelled=False).matrix
    np.testing.assert_array_equal(found.chunk(0, ROWS, torch.float64).numpy(), MATRIX.toarray())


def tensor(indptr, indices, data):
    arrays = [torch.tensor(array) for array in (indptr, indices, data)]
    return torch.sparse_csr_tensor(*arrays, size=(ROWS, COLUMNS), check_invariants=False)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize(
    ("name", "place", "value"), [("indices", 5, COLUMNS), ("indices", 5, -1), ("indptr", 3, 10**6)]
)
def test_damaged_tensors_are_refused(model, name, place, value):
    arrays = arrays_of("csr")
    arrays[name] = put(place, value)(arrays[name])
    with pytest.raises(ValueError, match="damaged"):
        psfit.SparseLinearRegression(2).fit(tensor(**arrays), Y)
    with pytest.raises(ValueError, match="damaged"):
        model.predict(tensor(**arrays))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_entries_of_tensors_stored_twice_or_out_of_order_are_added_up(model):
    order = np.concatenate([np.arange(a, b)[::-1].repeat(2) for a, b in pairwise(MATRIX.indptr)])
    twice = tensor(2 * MATRIX.indptr, MATRIX.indices[order], MATRIX.data[order] / 2)
    found = Sparse.of(twice, torch.device("cpu"), None)
    assert len(found.csr.values) == MATRIX.nnz
    np.testing.assert_allclose(found.chunk(0, ROWS, torch.float64).numpy(), MATRIX.toarray(), rtol=1e-15)
    # Squares of the halves would make other columns' norms.
    again = psfit.SparseLinearRegression(2).fit(twice, Y)
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-9)


def test_what_scipy_remembers_of_a_matrix_is_not_believed():
    twice = scipy.sparse.csr_matrix(
        (MATRIX.data.repeat(2) / 2, MATRIX.indices.repeat(2), 2 * MATRIX.indptr), shape=MATRIX.shape
    )
    twice.has_canonical_format = True
    assert len(Sparse.of(twice, torch.device("cpu"), None).csr.values) == MATRIX.nnz


def test_a_huge_index_of_svmlight_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 1 << 30)
    path = tmp_path / "data.svm"
    path.write_text("1 1:2 3:4\n2 2000000000:1\n1 2:3\n")
    with pytest.raises(DataFileError, match=r"data\.svm: its largest index: 2,000,000,001 columns"):
        FileSource(path).read(GRID)


def test_many_columns_are_counted_exactly(tmp_path):
    # One more than single precision can tell from its neighbours.
    path = tmp_path / "data.svm"
    path.write_text(f"1 0:2 {2**24}:4\n2 1:1\n")
    assert FileSource(path).read(GRID).matrix.shape == (2, 2**24 + 1)
