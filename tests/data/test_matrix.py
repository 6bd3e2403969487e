"""Design matrices against the NumPy arrays that they stand for, and nodes against loops."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch

from psfit.data import Affine, Dense, DesignMatrix, Source
from psfit.data import matrix as module

ROWS, COLUMNS = 700, 6  # more rows than a chunk's least height of 256


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


def affine(ones: bool):
    def build(rng, dtype):
        base, values = dense(rng, dtype)
        # Statistics are float64 whatever the precision of the data.
        shift, scale = rng.normal(size=COLUMNS), rng.uniform(0.5, 2, size=COLUMNS)
        explicit = (values - shift) / scale
        if ones:
            explicit = np.hstack([explicit, np.ones((ROWS, 1))])
        return Affine(base, torch.tensor(shift), torch.tensor(scale), ones), explicit

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
    Form("affine of affine", nested),
]
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])


@pytest.fixture(params=FORMS, ids=lambda form: form.name)
def form(request):
    return request.param


@pytest.fixture(params=["one chunk", "many chunks"])
def chunking(request, monkeypatch):
    """Whether statistics see the rows at once or 256 at a time."""
    if request.param == "many chunks":
        monkeypatch.setitem(module.CHUNK_BYTES, "cpu", 1)
    return request.param


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
def test_gram(form, dtype, chunking):
    matrix, explicit, rng = make(form, dtype)
    weights = rng.uniform(size=(ROWS, 1))
    weights[::7] = 0
    close(matrix.gram(tensor(weights, dtype)), explicit.T @ (weights * explicit), dtype)


@every_dtype
def test_column_statistics_are_float64(form, dtype, chunking):
    matrix, explicit, rng = make(form, dtype)
    weights, shift = rng.uniform(size=(ROWS, 1)), rng.normal(size=explicit.shape[1])
    close(matrix.column_sums(tensor(weights)), (weights * explicit).sum(0), torch.float64)
    expected = (weights * (explicit - shift) ** 2).sum(0)
    close(matrix.squared_norms(tensor(weights), tensor(shift)), expected, torch.float64)


def test_column_statistics_do_not_cancel(chunking):
    # Sums in float32 would lose the spread of a column that is far from zero.
    values = torch.full((ROWS, 1), 1e4) + torch.tensor([[1.0], [-1.0]]).repeat(ROWS // 2, 1)
    ones = torch.ones(ROWS, 1, dtype=torch.float64)
    assert Dense(values).column_sums(ones).item() == ROWS * 1e4
    assert Dense(values).squared_norms(ones, tensor([1e4])).item() == ROWS


@every_dtype
def test_chunks_are_all_rows_in_order(form, dtype, chunking):
    matrix, explicit, _ = make(form, torch.float32)
    chunks = list(matrix.chunks(dtype))
    assert len(chunks) == (1 if chunking == "one chunk" else 3)
    assert [at.start for at, _ in chunks] == [0, *(at.stop for at, _ in chunks[:-1])]
    assert chunks[-1][0].stop == ROWS
    for at, block in chunks:
        close(block, explicit[at], torch.float32 if dtype == torch.float32 else torch.float64)
    close(torch.cat([block for _, block in matrix.chunks()]), explicit, torch.float32)


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


def test_dense_uses_the_tensor_in_place():
    values = torch.zeros(3, 2)
    matrix = Dense(values)
    values[1, 0] = 5.0
    assert matrix.rows(1, 3).chunk(0, 2, torch.float32)[0, 0] == 5
    assert matrix.columns(slice(0, 1)).chunk(0, 3, torch.float32)[1, 0] == 5
    assert matrix.mv(torch.ones(2, 1))[1, 0] == 5


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
    grams = [explicit[a:b].T @ (weight[a:b] * explicit[a:b]) for a, b in ranges]
    close(split.gram, np.stack(grams), torch.float64)
    twice = [explicit[a:b].T @ (2 * weight[a:b] * explicit[a:b]) for a, b in ranges]
    close(split.weighted_gram(tensor(2 * weight)), np.stack(twice), torch.float64)
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
    close(some.gram[1], part.T @ (weight[13:300] * part), torch.float64)


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
