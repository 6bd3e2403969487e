"""Design matrices and their strips against the NumPy arrays that they stand for, and nodes against loops."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from psfit.data import Affine, Dense, DesignMatrix, Source, Sparse, Streamed
from psfit.data import matrix as module
from psfit.data import streamed as streams
from psfit.data.streamed import ArrayRows
from psfit.data.strip import DenseStrip

ROWS, COLUMNS = 700, 6  # more rows than a strip's least height of 256
CPU = torch.device("cpu")
MUCH = 1 << 30


@dataclass(frozen=True)
class Form:
    """A matrix and the array that it must equal."""

    name: str
    build: Callable[[np.random.Generator, torch.dtype], tuple[DesignMatrix, np.ndarray]]


def dense(rng, dtype):
    values = torch.tensor(rng.normal(size=(ROWS, COLUMNS)), dtype=dtype)
    return Dense(values), values.double().numpy()


def strided(rng, dtype):
    values = torch.tensor(rng.normal(size=(2 * COLUMNS, ROWS)), dtype=dtype).T[:, ::2]
    return Dense(values), values.double().numpy()


def sparse_array(rng, rows=ROWS, columns=COLUMNS):
    """Mostly zeros, among them whole rows and a whole column."""
    values = rng.normal(size=(rows, columns)) * (rng.uniform(size=(rows, columns)) < 0.3)
    values[:3], values[rows // 2], values[:, 2] = 0, 0, 0
    return values


def sparse(rng, dtype):
    rows = scipy.sparse.csr_matrix(torch.tensor(sparse_array(rng), dtype=dtype).numpy())
    return Sparse.of(rows, CPU, dtype), rows.toarray().astype(float)


def streamed(budget: int, stored=None):
    """Rows that are read in every pass; with a budget of zero, so are chosen columns."""

    def build(rng, dtype):
        values = torch.tensor(rng.normal(size=(ROWS, COLUMNS)), dtype=stored or dtype).numpy()
        return Streamed(ArrayRows(values), CPU, dtype, budget), values.astype(float)

    return build


def affine(ones: bool, base_of=dense):
    def build(rng, dtype):
        base, values = base_of(rng, dtype)
        # Statistics are float64 for data of any precision.
        shift, scale = rng.normal(size=COLUMNS), rng.uniform(0.5, 2, size=COLUMNS)
        explicit = (values - shift) / scale
        if ones:
            explicit = np.hstack([explicit, np.ones((ROWS, 1))])
        return Affine(base, torch.tensor(shift), torch.tensor(scale), ones), explicit

    return build


def large(build_small):
    """As for a matrix that is too large to keep a standardised copy."""

    def build(rng, dtype):
        matrix, explicit = build_small(rng, dtype)
        matrix.__dict__["kept"] = None
        return matrix, explicit

    return build


def nested(rng, dtype):
    inner, values = affine(True)(rng, dtype)
    shift, scale = rng.normal(size=COLUMNS + 1), rng.uniform(0.5, 2, size=COLUMNS + 1)
    outer = Affine(inner, torch.tensor(shift), torch.tensor(scale), False)
    return outer, (values - shift) / scale


FORMS = [
    Form("dense", dense),
    Form("strided", strided),
    Form("affine", affine(False)),
    Form("affine with ones", affine(True)),
    Form("affine, large", large(affine(False))),
    Form("affine with ones, large", large(affine(True))),
    Form("affine of affine", nested),
    Form("sparse", sparse),
    Form("affine of sparse", affine(False, sparse)),
    Form("affine of sparse with ones", affine(True, sparse)),
    Form("streamed", streamed(MUCH)),
    Form("streamed, nothing held", streamed(0)),
    Form("streamed from float32", streamed(0, torch.float32)),
    Form("affine of streamed", affine(True, streamed(MUCH))),
    Form("affine of streamed, nothing held", affine(True, streamed(0))),
]
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def form(request):
    return request.param


@pytest.fixture(params=["one strip", "many strips"])
def cut(request, monkeypatch):
    """Whether all rows are read together or a few hundred at a time."""
    if request.param == "many strips":
        monkeypatch.setattr(module, "STRIP_BYTES", 1)
        monkeypatch.setattr(streams, "BLOCK_BYTES", 256 * COLUMNS * 4)
    return request.param


@pytest.fixture(autouse=True)
def no_thread_stays():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def make(form, dtype=torch.float64):
    rng = np.random.default_rng(4)
    matrix, explicit = form.build(rng, dtype)
    assert matrix.shape == explicit.shape
    assert matrix.dtype == dtype
    assert matrix.device == torch.device("cpu")
    return matrix, explicit, rng


def tensor(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def close(actual: torch.Tensor, expected: np.ndarray, dtype: torch.dtype) -> None:
    """Equal up to rounding of sums of ROWS terms."""
    assert actual.dtype == dtype
    tolerance = 100 * torch.finfo(dtype).eps
    scale = 1 + np.abs(expected).max(initial=0)
    np.testing.assert_allclose(actual.double().numpy(), expected, rtol=0, atol=tolerance * scale)


def check_equal(matrix: DesignMatrix, explicit: np.ndarray, rng, dtype=torch.float64) -> None:
    """Both products and the dense rows of `matrix` are those of `explicit`."""
    assert matrix.shape == explicit.shape
    m, n = explicit.shape
    X, R = rng.normal(size=(n, 3)), rng.normal(size=(m, 3))
    close(matrix.mv(tensor(X, dtype)), explicit @ X, dtype)
    close(matrix.rmv(tensor(R, dtype)), explicit.T @ R, dtype)
    close(matrix.chunk(0, m, dtype), explicit, dtype)


@every_dtype
def test_products(form, dtype):
    matrix, explicit, rng = make(form, dtype)
    check_equal(matrix, explicit, rng, dtype)


@every_dtype
def test_products_of_many_strips(form, dtype, cut):
    matrix, explicit, rng = make(form, dtype)
    check_equal(matrix, explicit, rng, dtype)


@every_dtype
def test_gram(form, dtype, cut):
    matrix, explicit, rng = make(form, dtype)
    weights = rng.uniform(size=(ROWS, 1))
    weights[::7] = 0
    expected = explicit.T @ (weights * explicit)
    close(matrix.gram(tensor(weights, dtype)), expected, dtype)
    close(matrix.gram(tensor(weights), torch.float64), expected, torch.float64)


@every_dtype
def test_column_statistics_are_float64(form, dtype, cut):
    matrix, explicit, rng = make(form, dtype)
    weights, about = rng.uniform(size=(ROWS, 1)), rng.normal(size=explicit.shape[1])
    sums, squares = matrix.column_moments(tensor(weights), tensor(about))
    close(sums, (weights * (explicit - about)).sum(0), torch.float64)
    close(squares, (weights * (explicit - about) ** 2).sum(0), torch.float64)


@pytest.mark.parametrize("kind", ["dense", "sparse", "streamed"])
def test_column_statistics_do_not_cancel(kind, cut):
    # Sums in float32 would lose the spread of a column that is far from zero.
    values = torch.full((ROWS, 1), 1e4) + torch.tensor([[1.0], [-1.0]]).repeat(ROWS // 2, 1)
    matrix = {
        "dense": lambda: Dense(values),
        "sparse": lambda: Sparse.of(scipy.sparse.csr_matrix(values.numpy()), CPU, None),
        "streamed": lambda: Streamed(ArrayRows(values.numpy()), CPU, torch.float32, 0),
    }[kind]()
    ones = torch.ones(ROWS, 1, dtype=torch.float64)
    assert [part.item() for part in matrix.column_moments(ones, tensor([1e4]))] == [0, ROWS]


@every_dtype
def test_strips_are_all_rows_in_order(form, dtype, cut):
    matrix, explicit, _ = make(form, torch.float32)
    strips = list(matrix.strips(dtype))
    assert (len(strips) > 1) == (cut == "many strips" and matrix.centres_entries)
    assert [at.start for at, _ in strips] == [0, *(at.stop for at, _ in strips[:-1])]
    assert strips[-1][0].stop == ROWS
    for at, strip in strips:
        assert strip.shape == explicit[at].shape
        close(strip.dense(), explicit[at], dtype)
    close(torch.cat([strip.dense() for _, strip in matrix.strips()]), explicit, torch.float32)


# Strips -------------------------------------------------------------------------------------------


def strips_of(form, dtype):
    matrix, explicit, rng = make(form, dtype)
    for at, strip in matrix.strips():
        yield strip, explicit[at], rng


@every_dtype
def test_strip_products(form, dtype, cut):
    for strip, rows, rng in strips_of(form, dtype):
        h, n = rows.shape
        X, R, about = rng.normal(size=(n, 3)), rng.normal(size=(h, 3)), rng.normal(size=n)
        close(strip.mv(tensor(X, dtype)), rows @ X, dtype)
        close(strip.rmv(tensor(R, dtype)), rows.T @ R, dtype)
        close(strip.sums(tensor(R, dtype), tensor(about, dtype)), (rows - about).T @ R, dtype)
        close(strip.squares(tensor(R, dtype)), (rows**2).T @ R, dtype)
        close(strip.squares(tensor(R, dtype), tensor(about, dtype)), ((rows - about) ** 2).T @ R, dtype)


@every_dtype
def test_cross_products_with_several_others(form, dtype, cut):
    for strip, rows, rng in strips_of(form, dtype):
        h, n = rows.shape
        other, weights = rng.normal(size=(h, 2)), rng.normal(size=(h, 4))
        few, few_rows = sparse(rng, dtype)
        index = torch.tensor([0, 3, n - 1])
        others = [strip, DenseStrip(tensor(other, dtype)), strip.columns(index), next(few.rows(0, h).strips())[1]]
        explicit = [rows, other, rows[:, index], few_rows[:h]]
        expected = np.hstack([rows.T @ (weights[:, [k]] * part) for k, part in enumerate(explicit)])
        close(strip.cross(others, tensor(weights, dtype)), expected, dtype)
        close(strip.cross(others[:1], tensor(weights, dtype)), expected[:, :n], dtype)


@every_dtype
def test_columns_of_a_strip(form, dtype):
    for strip, rows, rng in strips_of(form, dtype):
        n = rows.shape[1]
        for index in ([0, 2, 3], [n - 1], list(range(n)), []):
            chosen = strip.columns(torch.tensor(index, dtype=torch.long))
            assert chosen.shape == (len(rows), len(index))
            close(chosen.dense(), rows[:, index], dtype)
            X = rng.normal(size=(len(index), 2))
            close(chosen.mv(tensor(X, dtype)), rows[:, index] @ X, dtype)


@pytest.mark.parametrize("constant", [0.0, 2.5])
@pytest.mark.parametrize("build", [dense, sparse], ids=["dense", "sparse"])
def test_a_strip_standardised(build, constant):
    rng = np.random.default_rng(4)
    matrix, rows = build(rng, torch.float64)
    shift, scale = rng.normal(size=(2, COLUMNS)), rng.uniform(0.5, 2, size=(2, COLUMNS))
    strip = next(matrix.strips())[1].standardise(tensor(shift[0]), tensor(scale[0]), 0.0)
    strip = strip.standardise(tensor(shift[1]), tensor(scale[1]), constant)
    rows = ((rows - shift[0]) / scale[0] - shift[1]) / scale[1]
    rows = np.hstack([rows, np.full((ROWS, 1), constant)]) if constant else rows
    assert strip.shape == rows.shape
    close(strip.dense(), rows, torch.float64)
    X, R = rng.normal(size=(rows.shape[1], 2)), rng.normal(size=(ROWS, 2))
    close(strip.mv(tensor(X)), rows @ X, torch.float64)
    close(strip.rmv(tensor(R)), rows.T @ R, torch.float64)


@every_dtype
def test_magnitudes_are_a_bound(form, dtype):
    for strip, rows, rng in strips_of(form, dtype):
        X = rng.normal(size=(rows.shape[1], 2))
        least, bound = np.abs(rows) @ np.abs(X), strip.magnitudes(tensor(X, dtype)).double().numpy()
        assert (bound >= least * (1 - 1e2 * torch.finfo(dtype).eps)).all()
        # Shifts are drawn from a normal distribution and scales are at least 0.5.
        assert (bound <= least + 20 * np.abs(X).sum(0)).all()


def test_magnitudes_know_of_the_means():
    """Where a mean is subtracted from a product, rounding is proportional to both and not to their difference."""
    rows = scipy.sparse.csr_matrix(np.full((3, 1), 1e6))
    strip = next(Sparse.of(rows, CPU, None).strips())[1].standardise(tensor([1e6]), tensor([2.0]), 0.0)
    assert strip.magnitudes(tensor([[-3.0]])).tolist() == [[3e6]] * 3
    assert strip.mv(tensor([[-3.0]])).tolist() == [[0.0]] * 3


@every_dtype
def test_strips_beside_chosen_columns(form, dtype, cut):
    matrix, explicit, _ = make(form, dtype)
    index = [1, 4, explicit.shape[1] - 1]
    seen = 0
    for at, strip, beside in matrix.strips_with_columns(torch.tensor(index)):
        close(strip.dense(), explicit[at], dtype)
        close(beside.dense(), explicit[at][:, index], dtype)
        seen += at.stop - at.start
    assert seen == ROWS


# Columns and rows ---------------------------------------------------------------------------------

SLICES = [slice(None), slice(0, 2), slice(2, 5), slice(3, None), slice(-2, None), slice(2, 2)]
STEPS = [slice(None, None, 2), slice(1, 6, 3)]


@pytest.mark.parametrize("index", [*SLICES, slice(5, 6), slice(6, 7), *STEPS], ids=str)
def test_columns_by_slice(form, index):
    matrix, explicit, rng = make(form)
    check_equal(matrix.columns(index), explicit[:, index], rng)


@pytest.mark.parametrize("index", [[], [0], [1, 3, 4], [0, 5], [5], list(range(6))], ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["", "and last"])
def test_columns_by_index(form, index, last):
    matrix, explicit, rng = make(form)
    index = sorted({*index, explicit.shape[1] - 1}) if last else index
    chosen = matrix.columns(torch.tensor(index, dtype=torch.long))
    check_equal(chosen, explicit[:, index], rng)


def test_columns_of_columns(form):
    matrix, explicit, rng = make(form)
    chosen = matrix.columns(slice(1, None)).columns(torch.tensor([0, 2, 4]))
    check_equal(chosen, explicit[:, [1, 3, 5]], rng)


@pytest.mark.parametrize(("start", "stop"), [(0, ROWS), (0, 1), (37, 412), (ROWS - 1, ROWS)])
def test_rows(form, start, stop):
    matrix, explicit, rng = make(form)
    check_equal(matrix.rows(start, stop), explicit[start:stop], rng)
    close(matrix.chunk(start, stop, torch.float64), explicit[start:stop], torch.float64)
    inner = matrix.rows(start, stop).rows(0, 1)
    check_equal(inner, explicit[start : start + 1], rng)


def test_only_small_matrices_in_double_precision_keep_a_copy(monkeypatch):
    rng = np.random.default_rng(0)
    kept = {dtype: affine(True)(rng, dtype)[0].kept for dtype in (torch.float32, torch.float64)}
    assert kept[torch.float32] is None
    assert kept[torch.float64] is not None
    assert affine(True, sparse)(rng, torch.float64)[0].kept is None
    monkeypatch.setattr(module, "MOST_KEPT", ROWS * (COLUMNS + 1) - 1)
    assert affine(True)(rng, torch.float64)[0].kept is None
    assert affine(False)(rng, torch.float64)[0].kept is not None


def test_dense_uses_the_tensor_in_place():
    values = torch.zeros(3, 2)
    matrix = Dense(values)
    values[1, 0] = 5.0
    assert matrix.rows(1, 3).chunk(0, 2, torch.float32)[0, 0] == 5
    assert matrix.columns(slice(0, 1)).chunk(0, 3, torch.float32)[1, 0] == 5
    assert matrix.mv(torch.ones(2, 1))[1, 0] == 5


# Sparse -------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("kind", ["scipy", "torch"])
def test_sparse_formats(kind, index):
    rng = np.random.default_rng(0)
    explicit = sparse_array(rng)
    rows = scipy.sparse.csr_matrix(explicit)
    rows.indices, rows.indptr = rows.indices.astype(index), rows.indptr.astype(index)
    if kind == "torch":
        parts = [torch.from_numpy(part) for part in (rows.indptr, rows.indices, rows.data)]
        rows = torch.sparse_csr_tensor(*parts, size=explicit.shape, check_invariants=True)
    check_equal(Sparse.of(rows, CPU, None), explicit, rng)
    assert Sparse.of(rows, CPU, torch.float32).mv(torch.ones(COLUMNS, 1)).dtype == torch.float32


@pytest.mark.parametrize("shape", [(5, 4), (1, 4), (5, 1)])
def test_no_entries_at_all(shape):
    m, n = shape
    matrix, rng = Sparse.of(scipy.sparse.csr_matrix(shape), CPU, torch.float64), np.random.default_rng(0)
    check_equal(matrix, np.zeros(shape), rng)
    check_equal(matrix.columns(torch.tensor([0])), np.zeros((m, 1)), rng)
    check_equal(matrix.rows(0, 1), np.zeros((1, n)), rng)
    shift, weight = rng.normal(size=n), rng.uniform(size=(m, 1))
    standard = Affine(matrix, tensor(shift), torch.ones(n, dtype=torch.float64), 2.0)
    explicit = np.hstack([np.tile(-shift, (m, 1)), np.full((m, 1), 2.0)])
    check_equal(standard, explicit, rng)
    close(standard.gram(tensor(weight)), explicit.T @ (weight * explicit), torch.float64)
    sums, squares = standard.column_moments(tensor(weight), torch.zeros(n + 1, dtype=torch.float64))
    close(sums, (weight * explicit).sum(0), torch.float64)
    close(squares, (weight * explicit**2).sum(0), torch.float64)


def test_entries_out_of_order_and_twice():
    rng = np.random.default_rng(0)
    starts, places, values = [0, 3, 3, 5], [2, 0, 2, 1, 0], [1.0, 2.0, 4.0, 8.0, 16.0]
    rows = scipy.sparse.csr_matrix((values, places, starts), shape=(3, 3))
    explicit = np.array([[2.0, 0, 5], [0, 0, 0], [16, 8, 0]])
    matrix = Sparse.of(rows, CPU, None)
    check_equal(matrix, explicit, rng)
    weight = rng.uniform(size=(3, 1))
    close(matrix.gram(tensor(weight)), explicit.T @ (weight * explicit), torch.float64)
    _, squares = matrix.column_moments(tensor(weight), tensor([1.0, 2.0, 3.0]))
    close(squares, (weight * (explicit - [1, 2, 3]) ** 2).sum(0), torch.float64)


def test_sparse_rows_of_rows_and_columns_of_columns():
    rng = np.random.default_rng(0)
    matrix, explicit = sparse(rng, torch.float64)
    index, inner = torch.tensor([0, 2, 3, 5]), torch.tensor([1, 3])
    chosen = matrix.rows(1, 600).columns(index).rows(2, 400).columns(inner)
    check_equal(chosen, explicit[3:401][:, [2, 5]], rng)
    check_equal(matrix.columns(index).columns(inner).rows(0, 5), explicit[:5, [2, 5]], rng)


# Streams ------------------------------------------------------------------------------------------


class Torn(ArrayRows):
    """Rows whose last ones cannot be read."""

    def read(self, start, stop):
        if stop > 10:
            raise OSError("the disk is gone")
        return super().read(start, stop)


@pytest.mark.parametrize("pass_over", [lambda A: A.mv(torch.ones(2, 1)), lambda A: list(A.strips()), Streamed.load])
def test_an_error_of_the_reading_thread_reaches_the_caller(pass_over, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 4 * 2 * 4)
    matrix = Streamed(Torn(np.ones((50, 2), np.float32)), CPU, torch.float32, MUCH)
    with pytest.raises(OSError, match="the disk is gone"):
        pass_over(matrix)


def test_a_pass_abandoned_halfway_leaves_no_thread(monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 4 * 2 * 4)
    before = threading.active_count()
    strips = Streamed(ArrayRows(np.ones((50, 2), np.float32)), CPU, torch.float32, 0).strips()
    next(strips)
    next(strips)
    assert threading.active_count() == before + 1
    strips.close()
    assert threading.active_count() == before


def test_rows_are_counted_as_they_are_read(monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 7 * 2 * 4)
    matrix = Streamed(ArrayRows(np.ones((50, 2), np.float32)), CPU, torch.float32, MUCH)
    assert matrix.rows_read == 0
    matrix.mv(torch.ones(2, 1))
    assert matrix.rows_read == 50
    held = matrix.rows(10, 30).columns(torch.tensor([1]))
    assert matrix.rows_read == 70
    held.mv(torch.ones(1, 1))
    assert matrix.rows_read == 70


@pytest.mark.parametrize(("budget", "held"), [(50 * 4, True), (50 * 4 - 1, False)])
def test_columns_are_held_if_they_fit(budget, held):
    matrix = Streamed(ArrayRows(np.ones((50, 2), np.float32)), CPU, torch.float32, budget)
    assert matrix.columns(torch.tensor([1])).streamed is not held


def test_room_for_columns_leaves_some_for_the_iteration():
    rows, column = ArrayRows(np.ones((50, 2), np.float32)), 50 * 4
    for budget, room in ((0, 0), (streams.WORKING_NUMBERS * column, 0), ((streams.WORKING_NUMBERS + 3) * column, 3)):
        assert Streamed(rows, CPU, torch.float32, budget).column_room == room


def test_memory_maps_are_read_only(tmp_path):
    values = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
    np.save(tmp_path / "X.npy", values)
    rows = ArrayRows(np.load(tmp_path / "X.npy", mmap_mode="r"))
    check_equal(Streamed(rows, CPU, torch.float64, 0), values, np.random.default_rng(1))


# Nodes --------------------------------------------------------------------------------------------

BOUNDS = (0, 13, 300, 301, ROWS)


def divided(form, bounds=BOUNDS):
    matrix, explicit, rng = make(form)
    weight = rng.uniform(size=(ROWS, 1))
    source = Source(matrix, tensor(rng.normal(size=(ROWS, 2))), tensor(weight), bounds)
    return source, explicit, weight, rng


def test_nodes_are_loops_over_rows(form):
    source, explicit, weight, rng = divided(form)
    split = source.split(4)
    ranges, n = list(pairwise(BOUNDS)), explicit.shape[1]
    assert (split.nodes, split.heights) == (4, [b - a for a, b in ranges])
    X, R = rng.normal(size=(4, n, 2)), rng.normal(size=(ROWS, 2))
    predictors = np.vstack([explicit[a:b] @ X[i] for i, (a, b) in enumerate(ranges)])
    close(split.mv(tensor(X)), predictors, torch.float64)
    close(split.rmv(tensor(R)), np.stack([explicit[a:b].T @ R[a:b] for a, b in ranges]), torch.float64)
    twice = [explicit[a:b].T @ (2 * weight[a:b] * explicit[a:b]) for a, b in ranges]
    close(split.G, np.stack(twice), torch.float64)
    close(split.weighted_gram(tensor(2 * weight)), np.stack(twice), torch.float64)
    target = source.target.numpy()
    sides = [explicit[a:b].T @ (2 * weight[a:b] * target[a:b]) for a, b in ranges]
    close(split.Q, np.stack(sides), torch.float64)
    close(split.powers, np.stack([(weight[a:b] * target[a:b] ** 2).sum(0) for a, b in ranges]), torch.float64)
    close(split.sum_rows(tensor(R)), np.stack([R[a:b].sum(0) for a, b in ranges]), torch.float64)


def test_per_node_hands_out_matrix_and_rows(form):
    source, explicit, _, rng = divided(form)
    R = rng.normal(size=(ROWS, 1))
    parts = source.split(4).per_node(lambda A, rows: A.rmv(tensor(R)[rows]))
    for part, (a, b) in zip(parts, pairwise(BOUNDS), strict=True):
        close(part, explicit[a:b].T @ R[a:b], torch.float64)


def test_columns_of_nodes_keep_their_rows(form):
    source, explicit, weight, rng = divided(form)
    some = source.split(4).columns(slice(2, 5))
    X = rng.normal(size=(4, 3, 1))
    expected = [explicit[a:b, 2:5] @ X[i] for i, (a, b) in enumerate(pairwise(BOUNDS))]
    close(some.mv(tensor(X)), np.vstack(expected), torch.float64)
    part = explicit[13:300, 2:5]
    close(some.G[1], 2 * part.T @ (weight[13:300] * part), torch.float64)


def test_rows_are_dealt_evenly_without_bounds(form):
    source, *_ = divided(form, None)
    heights = source.split(3).heights
    assert sum(heights) == ROWS
    assert max(heights) - min(heights) <= 1
    assert source.split(1).heights == [ROWS]
    assert source.outputs == 2


@pytest.mark.parametrize(("bounds", "tall"), [((0, 6, 10), True), ((0, 5, 10), False)])
def test_tall_is_decided_by_the_highest_node(bounds, tall):
    values = torch.zeros(10, 6)
    split = Source(Dense(values), values[:, :1], values[:, :1], bounds).split(2)
    assert split.tall == tall


@pytest.mark.parametrize(
    ("bounds", "nodes"),
    [
        ((0, 5, 10), 1),
        ((0, 5, 10), 3),
        ((1, 5, 10), 2),
        ((0, 5, 9), 2),
        ((0, 5, 11), 2),
        ((0, 7, 4, 10), 3),
        ((0, 4, 4, 10), 3),
        (None, 11),
    ],
)
def test_bad_bounds_are_refused(bounds, nodes):
    values = torch.zeros(10, 2)
    with pytest.raises(ValueError, match=r"bounds=|nodes="):
        Source(Dense(values), values[:, :1], values[:, :1], bounds).split(nodes)


def test_products_of_sparse_matrices_are_freed():
    rows = scipy.sparse.random_array((3000, 500), density=0.01, format="csr", rng=np.random.default_rng(0))
    matrix, weight = Sparse.of(rows, CPU, torch.float64), torch.ones(3000, 1, dtype=torch.float64)

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    np.testing.assert_allclose(matrix.gram(weight), (rows.T @ rows).toarray(), atol=1e-12)
    before = resident()
    for _ in range(80):
        matrix.gram(weight)
    # Each of them takes at least half a megabyte until it is freed; the allocator itself may keep a few megabytes.
    assert resident() - before < 30e6
