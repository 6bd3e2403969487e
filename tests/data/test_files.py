"""Data files against the arrays that were written to them."""

import zipfile
from itertools import pairwise

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import torch

import psfit
from psfit.comm import GridSpec
from psfit.data import FileSource, memory, streamed
from psfit.data.io import DataFileError, ReadRequest, learn_schema, open_file, tables, text
from psfit.data.schema import Schema

ROWS = 57
GRID = GridSpec(backend="serial", device="cpu").build()
RNG = np.random.default_rng(5)
# Every kind of number, a target between the features, weights last.
FRAME = pd.DataFrame(
    {
        "a": RNG.normal(size=ROWS),
        "b": RNG.integers(-1000, 1000, ROWS),
        "y": RNG.normal(size=ROWS),
        "c": RNG.random(ROWS) < 0.5,
        "d.e": RNG.normal(size=ROWS).astype(np.float32).astype(np.float64),
        "w": RNG.uniform(size=ROWS),
    }
)
NAMES = ("a", "b", "c", "d.e")
X = FRAME[list(NAMES)].to_numpy(float)
Y, W = FRAME["y"].to_numpy(), FRAME["w"].to_numpy()
TABLES = [".csv", ".tsv", ".parquet", ".feather", ".arrow"]
ARRAYS = [".npy", ".npz", ".h5"]
every_table = pytest.mark.parametrize("ending", TABLES)
every_array = pytest.mark.parametrize("ending", ARRAYS)


def write_table(path, frame):
    """Several row groups or batches of 10 rows each, where the format knows such."""
    if path.suffix in (".csv", ".tsv"):
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    elif path.suffix == ".parquet":
        frame.to_parquet(path, row_group_size=10)
    elif path.suffix == ".feather":
        frame.to_feather(path, chunksize=10)
    else:
        table = pa.Table.from_pandas(frame, preserve_index=False)
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=10)
    return path


def write_arrays(path, X, **beside):
    """X with y and sample_weight beside it: in the same file, or in .npy files of their own."""
    if path.suffix == ".npz":
        np.savez(path, X=X, **beside)
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            for name, values in {"X": X, **beside}.items():
                file[name] = values
    else:
        np.save(path, X)
        for name, values in beside.items():
            np.save(path.with_name(f"{name}.npy"), values)
    return path


def write_svmlight(path, X, y, base=1, start="", newline="\n"):
    lines = [" ".join([repr(float(t)), *(f"{j + base}:{row[j]!r}" for j in np.flatnonzero(row))]) for row, t in zip(
        X.tolist(), y, strict=True
    )]  # fmt: skip
    path.write_bytes((start + newline.join(lines) + newline).encode())
    return path


def read(path, names=None, labelled=True, features=None, schema=None, **options):
    return FileSource(path, **options).read(GRID, names, labelled, features, schema=schema)


def values(samples):
    return samples.matrix.chunk(0, samples.matrix.shape[0], torch.float64).numpy()


def whole(file):
    """The schema of all rows of a file."""
    return learn_schema([(file, 0, file.length)], GRID)


def refused(said, path, **options):
    """Reading fails with a message that has all of `said`."""
    with pytest.raises(DataFileError) as error:
        values(read(path, **options))
    for part in said:
        assert part in str(error.value)


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request, monkeypatch):
    """Whether text is read at once or a few lines at a time."""
    if request.param == "many blocks":
        monkeypatch.setattr(text, "BLOCK", 1)
    return request.param


# What was written comes back ----------------------------------------------------------------------


@every_table
def test_a_table_comes_back(ending, tmp_path, blocks):
    path = write_table(tmp_path / f"data{ending}", FRAME)
    samples = read(path, target="y", sample_weight="w")
    assert samples.names == NAMES
    assert samples.matrix.dtype == torch.float64
    np.testing.assert_array_equal(values(samples), X)
    np.testing.assert_array_equal(samples.y, Y)
    np.testing.assert_array_equal(samples.weight, W)


@every_table
def test_the_last_column_is_the_target_and_columns_choose(ending, tmp_path):
    path = write_table(tmp_path / f"data{ending}", FRAME)
    assert read(path).names == ("a", "b", "y", "c", "d.e")
    np.testing.assert_array_equal(read(path).y, W)
    samples = read(path, columns=["c", "a"], target="b")
    assert (samples.names, samples.weight) == (("c", "a"), None)
    np.testing.assert_array_equal(values(samples), X[:, [2, 0]])
    np.testing.assert_array_equal(samples.y, X[:, 1])


@every_table
def test_a_target_passed_beside_the_file_makes_no_column_a_target(ending, tmp_path):
    path = write_table(tmp_path / f"data{ending}", FRAME)
    samples = read(path, labelled=False)
    assert (samples.names, samples.y) == (tuple(FRAME.columns), None)
    assert read(path, labelled=False, target="y").names == ("a", "b", "c", "d.e", "w")


@every_table
@pytest.mark.parametrize("labels", [["no", "yes"], ["é", "ß, ü"], [False, True]], ids=str)
def test_labels_come_back(ending, labels, tmp_path):
    y = np.array(labels)[RNG.integers(0, 2, ROWS)]
    path = write_table(tmp_path / f"data{ending}", FRAME[["a"]].assign(kind=y))
    np.testing.assert_array_equal(read(path).y, y)


@every_array
def test_arrays_come_back(ending, tmp_path):
    path = write_arrays(tmp_path / f"data{ending}", X, y=Y, sample_weight=W)
    named = {"target": "y.npy", "sample_weight": "sample_weight.npy"} if ending == ".npy" else {}
    samples = read(path, **named)
    np.testing.assert_array_equal(values(samples), X)
    np.testing.assert_array_equal(samples.y, Y)
    np.testing.assert_array_equal(samples.weight, W)
    assert samples.names is None


@every_array
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.float32, ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_every_kind(ending, dtype, order, tmp_path):
    X = np.asarray(RNG.integers(0, 100, (ROWS, 3)), dtype=dtype, order=order)
    path = write_arrays(tmp_path / f"data{ending}", X)
    samples = read(path, labelled=False)
    assert samples.matrix.dtype == (torch.float32 if dtype == np.float32 else torch.float64)
    np.testing.assert_array_equal(values(samples), X.astype(float))


@pytest.mark.parametrize("target", [2, "2", -3, "-3"])
def test_a_column_of_a_npy_file_is_the_target(target, tmp_path):
    path = write_arrays(tmp_path / "data.npy", FRAME.drop(columns="w").to_numpy(float))
    samples = read(path, target=target)
    np.testing.assert_array_equal(values(samples), X)
    np.testing.assert_array_equal(samples.y, Y)


@pytest.mark.parametrize("ending", [".npz", ".h5"])
@pytest.mark.parametrize("kind", [str, bytes])
def test_arrays_have_names_and_other_targets(ending, kind, tmp_path):
    names = ["p", "q", "r", "s"]
    kept = names if kind is str else np.array(names, dtype="S")
    path = tmp_path / f"data{ending}"
    if ending == ".npz":
        np.savez(path, X=X, feature_names=kept, t=Y)
    else:
        with h5py.File(path, "w") as file:
            file["X"], file["t"] = X, Y
            file["X"].attrs["feature_names"] = kept
    samples = read(path, target="t", columns=("s", "p"))
    assert samples.names == ("s", "p")
    np.testing.assert_array_equal(values(samples), X[:, [3, 0]])
    np.testing.assert_array_equal(samples.y, Y)


@pytest.mark.parametrize("ending", [".npz", ".h5"])
def test_arrays_of_text_are_labels(ending, tmp_path):
    y = np.array(["no", "yes"])[RNG.integers(0, 2, ROWS)]
    path = write_arrays(tmp_path / f"data{ending}", X, y=y if ending == ".npz" else y.tolist())
    assert read(path).y.tolist() == y.tolist()


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr"])
def test_a_sparse_archive_comes_back(form, tmp_path):
    sparse = scipy.sparse.random(ROWS, 9, density=0.3, format=form, rng=RNG)
    scipy.sparse.save_npz(tmp_path / "data.npz", sparse)
    np.save(tmp_path / "y.npy", Y)
    samples = read(tmp_path / "data.npz", target="y.npy")
    np.testing.assert_array_equal(values(samples), sparse.toarray())
    np.testing.assert_array_equal(samples.y, Y)


def sparse_rows(rows=ROWS, columns=9):
    """Rows with few entries, the first and the last column among them; one row is empty."""
    X = scipy.sparse.random(rows, columns, density=0.3, rng=np.random.default_rng(1)).toarray()
    X[0, 0], X[-1, -1], X[1] = 1.0, 2.0, 0.0
    return X


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("ending", [".svm", ".libsvm", ".svmlight"])
def test_svmlight_comes_back(base, ending, tmp_path):
    X = sparse_rows()
    samples = read(write_svmlight(tmp_path / f"data{ending}", X, Y, base))
    np.testing.assert_array_equal(values(samples), X)
    np.testing.assert_array_equal(samples.y, Y)


def test_svmlight_has_at_least_as_many_columns_as_the_model(tmp_path):
    X = sparse_rows(columns=5)
    path = write_svmlight(tmp_path / "data.svm", X, Y)
    samples = read(path, features=8, schema=Schema(first_index=1))
    np.testing.assert_array_equal(values(samples), np.hstack([X, np.zeros((ROWS, 3))]))


def test_tables_know_decimals_categories_and_single_precision(tmp_path):
    frame = pd.DataFrame({"f": X[:, 0].astype(np.float32), "g": X[:, 1].astype(np.float16), "y": Y})
    samples = read(write_table(tmp_path / "single.feather", frame))
    assert samples.matrix.dtype == torch.float32
    np.testing.assert_array_equal(values(samples), frame[["f", "g"]].to_numpy(np.float32))
    tenths = pa.array(FRAME["b"]).cast(pa.decimal128(23, 2))
    table = pa.table({"tenths": tenths, "category": pa.array(FRAME["b"]).dictionary_encode(), "y": tenths})
    pq.write_table(table, tmp_path / "mixed.parquet")
    samples = read(tmp_path / "mixed.parquet")
    np.testing.assert_array_equal(values(samples), np.column_stack([FRAME["b"], FRAME["b"]]))
    np.testing.assert_array_equal(samples.y, FRAME["b"])


@pytest.mark.parametrize("name", [None, "number"])
def test_the_index_of_a_frame_is_no_column(name, tmp_path):
    frame = FRAME.set_index(pd.Index(RNG.permutation(ROWS), name=name))
    samples = read(write_table(tmp_path / "data.parquet", frame), target="y", sample_weight="w")
    assert samples.names == NAMES
    np.testing.assert_array_equal(read(tmp_path / "data.parquet").y, W)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("final", [True, False], ids=["final newline", "no final newline"])
def test_csv_as_other_programs_write_it(encoding, newline, final, tmp_path):
    lines = ['größe,"b,c",y', '1, 2 ,"3"', "", "4,5e0,6"]
    (tmp_path / "data.csv").write_bytes((newline.join(lines) + newline * final).encode(encoding))
    samples = read(tmp_path / "data.csv")
    assert samples.names == ("größe", "b,c")
    np.testing.assert_array_equal(values(samples), [[1, 2], [4, 5]])
    np.testing.assert_array_equal(samples.y, [3, 6])


def test_integers_may_have_fractions_further_down(tmp_path, blocks):
    (tmp_path / "data.csv").write_text("a,y\n" + "1,2\n" * 100 + "1.5,2.5\n")
    samples = read(tmp_path / "data.csv")
    assert (values(samples)[-1, 0], samples.y[-1]) == (1.5, 2.5)


# Parts --------------------------------------------------------------------------------------------


def parts(path, cuts, wanted):
    """Features and targets of consecutive ranges, one after the other."""
    file = open_file(path, wanted)
    schema = whole(file)
    found = [file.part(a, b, schema, 1 << 30) for a, b in pairwise([0, *cuts, file.length])]
    width = max(part.features.shape[1] for part in found)
    rows = []
    for part in found:
        dense = part.features.toarray() if part.open_ended else part.features.read(0, part.features.shape[0])
        rows.append(np.hstack([dense, np.zeros((len(dense), width - dense.shape[1]))]))
    return np.vstack(rows), np.concatenate([part.y for part in found])


@pytest.mark.parametrize("ending", [".parquet", ".feather", ".arrow", *ARRAYS])
@pytest.mark.parametrize("cuts", [[10], [0, 1, 2], [9, 30, 30, 41], [20, 40, 57], list(range(ROWS))], ids=str)
def test_ranges_of_rows_are_a_partition(ending, cuts, tmp_path):
    if ending in ARRAYS:
        path = write_arrays(tmp_path / f"data{ending}", X, y=Y)
        wanted = ReadRequest("y.npy" if ending == ".npy" else None)
    else:
        path, wanted = write_table(tmp_path / f"data{ending}", FRAME), ReadRequest("y", columns=NAMES)
    found, y = parts(path, cuts, wanted)
    np.testing.assert_array_equal(found, X)
    np.testing.assert_array_equal(y, Y)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("final", ["", "\n", "\n\n"], ids=repr)
def test_every_cut_of_a_csv_is_a_partition(newline, final, tmp_path):
    rows = [[1.0, 20.0, 3.0], [400.5, 5.0, 6.0], [7.0, 8.0, 9000.0], [1.0, 1.0, 1.0]]
    body = "\n".join(",".join(map(repr, row)) for row in rows) + final
    path = tmp_path / "data.csv"
    path.write_bytes(("a,b,y\n" + body).replace("\n", newline).encode())
    length = open_file(path, ReadRequest()).length
    assert length == len(body.replace("\n", newline))
    for cut in range(length + 1):
        found, y = parts(path, [cut, min(cut + 3, length)], ReadRequest())
        np.testing.assert_array_equal(np.column_stack([found, y]), rows)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_cut_of_svmlight_is_a_partition(newline, tmp_path):
    X, y = sparse_rows(5, 4), np.arange(5.0)
    path = write_svmlight(tmp_path / "data.svm", X, y, 0, newline=newline)
    path.write_bytes(path.read_bytes().replace(b"2.0 ", f"# 7 1:3{newline}{newline}2.0 ".encode()))
    length = path.stat().st_size
    for cut in range(length + 1):
        found, labels = parts(path, [cut, min(cut + 3, length)], ReadRequest())
        np.testing.assert_array_equal(found, X)
        np.testing.assert_array_equal(labels, y)


@pytest.mark.parametrize("ending", [*TABLES, *ARRAYS, ".svm"])
@pytest.mark.parametrize("given", ["folder", "list"])
def test_several_files_are_read_one_after_the_other(ending, given, tmp_path):
    ranges = [slice(0, 20), slice(20, 21), slice(21, ROWS)]
    paths = [tmp_path / f"part{k}{ending}" for k in range(3)]
    X, options = FRAME[list(NAMES)].to_numpy(float), {}
    for path, at in zip(paths, ranges, strict=True):
        if ending in TABLES:
            write_table(path, FRAME[at].reset_index(drop=True))
            options = {"target": "y", "columns": NAMES}
        elif ending in ARRAYS:
            write_arrays(path, FRAME.drop(columns="w")[at].to_numpy(float) if ending == ".npy" else X[at], y=Y[at])
            options = {"target": 2} if ending == ".npy" else {}
        else:
            write_svmlight(path, X[at], Y[at])
    if ending == ".npy":
        (tmp_path / "y.npy").unlink()
    (tmp_path / "_SUCCESS").write_text("no data file")
    samples = read(tmp_path if given == "folder" else paths, **options)
    np.testing.assert_array_equal(values(samples), X)
    np.testing.assert_array_equal(samples.y, Y)


# One-hot ------------------------------------------------------------------------------------------


def coloured(rows=30):
    colours = np.array(["red", "green", "blue=ish", "ö"])[np.random.default_rng(0).integers(0, 4, rows)]
    return pd.DataFrame({"colour": colours, "size": np.arange(rows) % 7, "y": np.arange(rows) % 5 + (colours == "red")})


@every_table
@pytest.mark.parametrize("kind", ["text", "category"])
def test_texts_become_columns(ending, kind, tmp_path, blocks):
    frame = coloured()
    if kind == "category":
        # A category that does not occur is not a feature.
        frame["colour"] = pd.Categorical(frame["colour"], categories=["white", "ö", "red", "green", "blue=ish"])
    samples = read(write_table(tmp_path / f"data{ending}", frame), one_hot=True)
    texts = ["blue=ish", "green", "red", "ö"]
    assert samples.names == (*(f"colour={text}" for text in texts), "size")
    columns = [frame["colour"].to_numpy() == text for text in texts]
    np.testing.assert_array_equal(values(samples), np.column_stack([*columns, frame["size"]]).astype(float))


@every_table
def test_a_model_of_texts_predicts_from_other_files(ending, tmp_path):
    frame = coloured()
    model = psfit.SparseLinearRegression(3, gamma=10.0, certify=False, groups=None)
    model.fit(FileSource(write_table(tmp_path / f"fit{ending}", frame), one_hot=True))
    coef = dict(zip(model.feature_names_in_, model.coef_, strict=True))
    new = pd.DataFrame({"size": [1, 2, 3], "other": ["x", "y", "z"], "colour": ["red", "ö", "green"]})
    expected = [
        model.intercept_ + coef["size"] * row.size_ + coef.get(f"colour={row.colour}", 0.0)
        for row in new.rename(columns={"size": "size_"}).itertuples()
    ]
    path = write_table(tmp_path / f"new{ending}", new)
    np.testing.assert_allclose(model.predict(path), expected, rtol=1e-12)
    np.testing.assert_allclose(model.predict(FileSource(path, one_hot=True)), expected, rtol=1e-12)
    # The same columns, encoded already.
    encoded = np.column_stack([new["colour"] == name.partition("=")[2] for name in model.feature_names_in_[:-1]])
    arrays = np.column_stack([encoded, new["size"]])
    np.savez(tmp_path / "new.npz", X=arrays, feature_names=model.feature_names_in_.astype(str))
    np.testing.assert_allclose(model.predict(tmp_path / "new.npz"), expected, rtol=1e-12)


@every_table
def test_prediction_needs_only_the_features_that_count(ending, tmp_path):
    model = psfit.SparseLinearRegression(1, certify=False)
    model.fit(write_table(tmp_path / f"fit{ending}", FRAME), target="y")
    (used,) = model.feature_names_in_[model.support_]
    unused = next(name for name in model.feature_names_in_ if name != used)
    path = write_table(tmp_path / f"few{ending}", FRAME.drop(columns=unused))
    np.testing.assert_allclose(model.predict(path), FRAME[used] * model.coef_[model.support_[0]] + model.intercept_)
    with pytest.raises(DataFileError, match=rf"new{ending}: the model needs 1 column.s. that are not there: '{used}'"):
        model.predict(write_table(tmp_path / f"new{ending}", FRAME.drop(columns=used)))


def test_a_model_of_nothing_predicts_its_intercept(tmp_path):
    path = write_table(tmp_path / "fit.csv", FRAME.assign(y=3.0))
    with pytest.warns(UserWarning, match="column 'y' is the same number in all samples"):
        model = psfit.SparseLinearRegression(1, certify=False).fit(path, target="y")
    assert len(model.support_) == 0
    np.testing.assert_allclose(model.predict(path), 3.0)


# Streaming ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [*TABLES, *ARRAYS])
def test_what_does_not_fit_is_read_in_any_order(ending, tmp_path, monkeypatch, blocks):
    monkeypatch.setattr(streamed, "BLOCK_BYTES", 100)
    monkeypatch.setattr(tables, "BLOCK_BYTES", 100)
    if ending in TABLES:
        samples = read(write_table(tmp_path / f"data{ending}", FRAME), columns=NAMES, target="y", memory=1)
    else:
        samples = read(write_arrays(tmp_path / f"data{ending}", X), labelled=False, memory=1)
    assert samples.matrix.streamed
    ranges = [(0, 5), (5, 9), (9, 30), (12, 13), (13, 13), (13, 57), (0, 1), (1, 57), (40, 41), (0, 57), (56, 57)]
    for start, stop in [*ranges, *reversed(ranges)]:
        np.testing.assert_array_equal(samples.matrix.chunk(start, stop, torch.float64), X[start:stop])
    np.testing.assert_array_equal(np.vstack([block for _, block in samples.matrix.blocks()]), X)
    coef = RNG.normal(size=(4, 2))
    np.testing.assert_allclose(samples.matrix.mv(torch.tensor(coef)), X @ coef, rtol=1e-12, atol=1e-12)


def test_text_goes_to_disk_when_it_does_not_fit(tmp_path, blocks):
    file = open_file(write_table(tmp_path / "data.csv", FRAME), ReadRequest("y", columns=NAMES))
    size = X.nbytes
    for budget, kind in ((1, streamed.BinaryRows), (size, streamed.BinaryRows), (2 * size, streamed.ArrayRows)):
        rows = file.part(0, file.length, whole(file), budget).features
        assert type(rows) is kind
        np.testing.assert_array_equal(rows.read(0, ROWS), X)


def test_several_streamed_files_are_read_in_any_order(tmp_path):
    for k, at in enumerate([slice(0, 20), slice(20, 21), slice(21, ROWS)]):
        write_table(tmp_path / f"part{k}.parquet", FRAME[at].reset_index(drop=True))
    matrix = read(tmp_path, columns=NAMES, memory=1).matrix
    for start, stop in [(0, 57), (19, 22), (20, 21), (5, 20), (21, 40), (20, 20), (57, 57), (0, 1)]:
        np.testing.assert_array_equal(matrix.chunk(start, stop, torch.float64), X[start:stop])


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather", ".npy", ".svm"])
def test_a_fit_does_not_depend_on_where_the_data_are(ending, tmp_path):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 7))
    y = X[:, 1] - 2 * X[:, 4] + 0.1 * rng.normal(size=80)
    path, target = tmp_path / f"data{ending}", None
    if ending == ".npy":
        target = "y.npy"
        write_arrays(path, X, y=y)
    elif ending == ".svm":
        write_svmlight(path, X, y)
    else:
        write_table(path, pd.DataFrame(X, columns=list("abcdefg")).assign(y=y))
    expected = psfit.SparseLinearRegression(2).fit(X, y)
    for source in (path, FileSource(path, memory="100B", target=target)):
        model = psfit.SparseLinearRegression(2).fit(source, target=target if source is path else None)
        assert model.objective_ == pytest.approx(expected.objective_, rel=1e-9)
        np.testing.assert_array_equal(model.support_, expected.support_)
        np.testing.assert_allclose(model.predict(source), expected.predict(X), rtol=1e-9, atol=1e-12)


def test_weights_by_name_and_by_hand(tmp_path):
    path = write_table(tmp_path / "data.csv", FRAME)
    kept = FileSource(path, target="y", columns=NAMES)
    expected = psfit.SparseLinearRegression(2).fit(X, Y, W).objective_
    assert psfit.SparseLinearRegression(2).fit(path, target="y", sample_weight="w").objective_ == pytest.approx(
        expected
    )
    assert psfit.SparseLinearRegression(2).fit(kept, sample_weight=W).objective_ == pytest.approx(expected)
    kept = FileSource(path, sample_weight="w", columns=NAMES)
    assert psfit.SparseLinearRegression(2).fit(kept, Y).objective_ == pytest.approx(expected)


# Entries that are no numbers ----------------------------------------------------------------------


@every_table
@pytest.mark.parametrize("row", [0, 23, ROWS - 1])
@pytest.mark.parametrize("column", ["a", "b", "y", "w"])
@pytest.mark.parametrize(("entry", "kind"), [(None, "a missing value"), (np.inf, "infinity")], ids=["gap", "infinity"])
def test_the_place_of_a_bad_entry_is_told(ending, row, column, entry, kind, tmp_path, blocks):
    frame = FRAME.astype({"b": float})
    frame.loc[row, column] = entry
    path = write_table(tmp_path / f"data{ending}", frame)
    said = [f"column '{column}' has {kind}, first in row {row} "]
    if column == "y":
        # All rows without a target are counted.
        said = [f"the target 'y' has 1 {'missing' if entry is None else 'infinite'} value(s)", f"first in row {row}"]
    refused([path.name, *said], path, target="y", sample_weight="w")


@every_table
def test_a_missing_text_is_told(ending, tmp_path):
    frame = coloured()
    frame.loc[17, "colour"] = None
    path = write_table(tmp_path / f"data{ending}", frame)
    refused(["'colour' has a missing value, first in row 17 "], path, one_hot=True)
    refused(["'colour' has 1 missing value(s)", "first in row 17"], path, columns=["size"], target="colour")


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow", ".npy", ".svm"])
def test_rows_are_counted_in_the_whole_file_whichever_part_is_read(ending, tmp_path):
    bad = X.copy()
    bad[40, 2] = np.nan
    path = tmp_path / f"data{ending}"
    if ending == ".npy":
        write_arrays(path, bad)
    elif ending == ".svm":
        write_svmlight(path, bad, Y, start="# rows of numbers\n\n")
    else:
        write_table(path, pd.DataFrame(bad, columns=list("abcd")).assign(y=Y))
    file = open_file(path, ReadRequest(labelled=ending != ".npy"))

    def look(start, stop):
        features = file.part(start, stop, whole(file), 1 << 30).features
        return features if ending == ".svm" else features.read(0, features.shape[0])

    assert 20 < look(0, file.length // 2).shape[0] < 40
    with pytest.raises(DataFileError, match="first in row 40 "):
        look(file.length // 2, file.length)


def test_the_file_of_a_bad_entry_is_told(tmp_path):
    write_table(tmp_path / "a.csv", FRAME)
    bad = FRAME.copy()
    bad.loc[3, "a"] = np.nan
    write_table(tmp_path / "b.csv", bad)
    refused(["b.csv: column 'a'", "row 3 "], tmp_path)


@pytest.mark.parametrize("ending", [*ARRAYS, "sparse"])
def test_bad_entries_of_arrays_are_told(ending, tmp_path):
    bad = X.copy()
    bad[31, 0] = np.inf
    if ending == "sparse":
        path = tmp_path / "data.npz"
        scipy.sparse.save_npz(path, scipy.sparse.csr_array(bad))
    else:
        path = write_arrays(tmp_path / f"data{ending}", bad)
    refused([f"{path.name}: column 0 has infinity, first in row 31 "], path, labelled=False)
    if ending != "sparse":
        y = Y.copy()
        y[8] = np.nan
        path = write_arrays(tmp_path / f"other{ending}", X, y=y)
        target = "y.npy" if ending == ".npy" else None
        refused(["has a missing value, first in row 8 "], path, target=target)


def test_a_second_look_at_a_bad_entry_fails_too(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 100)
    frame = FRAME.astype({"b": float})
    frame.loc[13, "b"] = np.nan
    matrix = read(write_table(tmp_path / "data.parquet", frame), columns=NAMES, memory=1).matrix
    matrix.chunk(0, 5, torch.float64)
    for _ in range(2):
        with pytest.raises(DataFileError, match="first in row 13 "):
            matrix.chunk(5, 20, torch.float64)


# Mistakes -----------------------------------------------------------------------------------------


def times(rows):
    return pd.DataFrame({"when": pd.date_range("2020-01-01", periods=rows), "a": X[:rows, 0], "y": Y[:rows]})


@every_table
@pytest.mark.parametrize(
    ("frame", "options", "said"),
    [
        (FRAME, {"target": "z"}, ["target='z'", "'a', 'b', 'y'"]),
        (FRAME, {"target": 3}, ["target=3"]),
        (FRAME, {"sample_weight": "z"}, ["sample_weight='z'"]),
        (FRAME, {"columns": ["a", "z"]}, ["columns='z'"]),
        (FRAME, {"columns": ()}, ["no column left for features"]),
        (FRAME, {"columns": ["a", "y"], "target": "y"}, ["column 'y' is the target"]),
        (FRAME[["a"]], {}, ["no column left for features besides 'a'"]),
        (coloured(), {}, ["column 'colour' holds text", "--categories group"]),
        (coloured(), {"sample_weight": "colour", "columns": ["size"]}, ["column 'colour' holds text"]),
        (times(9), {}, ["column 'when' holds dates", "--dates"]),
        (times(9), {"one_hot": True}, ["column 'when' holds"]),
        (times(9), {"target": "when"}, ["column 'when' holds", "numbers or text"]),
    ],
)
def test_columns_that_cannot_be_used(ending, frame, options, said, tmp_path):
    path = write_table(tmp_path / f"data{ending}", frame)
    refused([path.name, *said], path, **options)


@every_table
def test_a_table_without_rows_is_refused(ending, tmp_path):
    path = write_table(tmp_path / f"data{ending}", FRAME[:0])
    refused(["row"], path)
    refused(["row"], write_table(tmp_path / f"text{ending}", coloured(1)[:0][["colour", "y"]]), one_hot=True)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow"])
def test_a_name_that_occurs_twice_is_refused(ending, tmp_path):
    path, table = tmp_path / f"data{ending}", pa.table([[1.0], [2.0], [3.0]], names=["a", "b", "a"])
    if ending == ".csv":
        path.write_text("a,b,a\n1,2,3\n")
    elif ending == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    refused([path.name, "column 'a' occurs twice"], path)


def test_a_table_without_columns_is_refused(tmp_path):
    pq.write_table(pa.table({}), tmp_path / "data.parquet")
    refused(["data.parquet: the table has no columns"], tmp_path / "data.parquet")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "needs a header and at least one row"),
        (b"a,b\n", "needs a header and at least one row"),
        (b"a,b", "needs a header and at least one row"),
        (b"a,b\n\n\r\n", "needs a header and at least one row"),
        (b"\n1,2\n", "not a header in UTF-8"),
        (b"a,b\n1,2\n3\n", "row 1 (counted from 0), line 3: Expected 2 columns, got 1"),
        (b"a,b\n1,2\n\n3,4,5\n", "row 1 (counted from 0): Expected 2 columns, got 3"),
        (b"a:b\n1:2\n", "no column left for features besides 'a:b'"),
        (b"5.1,3.5,0\n4.9,3.0,0\n", "first line holds numbers (5.1, ...); write the columns' names above it"),
    ],
)
def test_text_that_cannot_be_used(content, said, tmp_path):
    (tmp_path / "data.csv").write_bytes(content)
    refused(["data.csv: ", said], tmp_path / "data.csv")


@pytest.mark.parametrize("header", ["0,1,2", "900.5,902.5,y", "900.5,902.5,target=1.5"])
def test_names_may_be_numbers(header, tmp_path):
    (tmp_path / "data.csv").write_text(f"{header}\n1,2,3\n4,5,6\n")
    read = FileSource(tmp_path / "data.csv").read(GridSpec(device="cpu").build())
    assert read.names == tuple(header.split(",")[:2])


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (b"1,x\n", "column 'b' holds text ('x') in place of a number, first in row 200 (counted from 0)"),
        (b"1\n", "row 200 (counted from 0), line 202: Expected 2 columns, got 1"),
        (b"1,\n", "column 'b' has a missing value, first in row 200 (counted from 0)"),
    ],
)
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_mistakes_after_the_first_block_are_told(last, said, share, tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 1)
    path = tmp_path / "data.csv"
    path.write_bytes(b"a,b\n" + b"1,2\n" * 200 + last)
    file = open_file(path, ReadRequest())
    with pytest.raises(DataFileError) as error:
        file.part(int(share * file.length), file.length, whole(file), 1 << 30)
    assert "data.csv: " in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("1 1:2\n1 x:3\n", "cannot be read as svmlight"),
        ("1 1:2 1:3\n", "cannot be read as svmlight"),
        ("1 -1:2\n", "cannot be read as svmlight"),
        ("yes 1:2\n", "cannot be read as svmlight"),
        ("1\n2\n", "no feature"),
        ("# nothing\n", "the data have no rows"),
    ],
)
def test_svmlight_that_cannot_be_used(content, said, tmp_path):
    (tmp_path / "data.svm").write_text(content)
    refused([said], tmp_path / "data.svm")


@pytest.mark.parametrize("option", [{"target": "y"}, {"sample_weight": "w"}, {"columns": ["a"]}, {"one_hot": True}])
def test_svmlight_names_nothing(option, tmp_path):
    refused(["data.svm: svmlight files name no columns"], write_svmlight(tmp_path / "data.svm", X, Y), **option)


@pytest.mark.parametrize(
    ("arrays", "options", "said"),
    [
        ({"Z": X}, {}, "'X'; it holds Z"),
        ({"X": X[:, 0]}, {}, "two dimensions"),
        ({"X": X.astype(str).astype("S")}, {}, "not numbers"),
        ({"X": X * 1j}, {}, "not numbers"),
        ({"X": X, "y": Y[1:]}, {}, "X has 57 rows, but y has 56"),
        ({"X": X, "y": Y, "w": W[:9]}, {"sample_weight": "w"}, "X has 57 rows, but w has 9"),
        ({"X": X, "y": 3.0}, {}, "y is not an array"),
        ({"X": X, "y": Y}, {"target": "t"}, "there is no array 't'; it holds X, y"),
        ({"X": X, "y": Y}, {"sample_weight": "t"}, "there is no array 't'"),
        ({"X": X, "y": Y}, {"target": "t.npy"}, "there is no file"),
        ({"X": X, "y": Y}, {"one_hot": True}, "categories: this is for tables"),
        ({"X": X, "y": Y}, {"columns": ["a"]}, "have no names"),
        ({"X": X[:0], "y": Y[:0]}, {}, "the data have no rows"),
    ],
)
@pytest.mark.parametrize("ending", [".npz", ".h5"])
def test_archives_that_cannot_be_used(ending, arrays, options, said, tmp_path):
    path = tmp_path / f"data{ending}"
    if ending == ".npz":
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    refused([said], path, **options)


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        (X[:, 0], {}, "two dimensions"),
        (X, {"target": 4}, "target=4 is not one of its 4 columns"),
        (X, {"target": -5}, "target=-5 is not one of its 4 columns"),
        (X, {"target": "t"}, "there is no array 't'; give the name of a .npy file"),
        (X, {"target": "t.npy"}, "there is no file"),
        (X, {"target": "short.npy"}, "X has 57 rows, but short.npy has 5"),
        (X, {"target": "scalar.npy"}, "scalar.npy is not an array"),
        (X.astype("S"), {}, "not numbers"),
        (np.array(X.tolist(), dtype=object), {}, "not numbers"),
    ],
)
def test_npy_files_that_cannot_be_used(values, options, said, tmp_path):
    np.save(tmp_path / "short.npy", Y[:5])
    np.save(tmp_path / "scalar.npy", 3.0)
    np.save(tmp_path / "data.npy", values)
    refused(["data.npy: ", said], tmp_path / "data.npy", **options)


def test_names_for_other_columns_than_there_are_are_refused(tmp_path):
    np.savez(tmp_path / "data.npz", X=X, y=Y, feature_names=["a", "b"])
    refused(["X has 4 columns, but feature_names has 2"], tmp_path / "data.npz")


@pytest.mark.parametrize("ending", [".npz", ".h5"])
def test_names_that_occur_twice_are_refused(ending, tmp_path):
    """Columns are found by their names to predict; the first would be taken for both."""
    path = write_arrays(tmp_path / f"data{ending}", X, y=Y, feature_names=["a", "b", "b", "c"])
    if ending == ".h5":
        with h5py.File(path, "a") as file:
            file["X"].attrs["feature_names"] = ["a", "b", "b", "c"]
    refused([f"data{ending}: feature_names holds 'b' twice"], path)


def test_columns_that_are_named_twice_are_refused():
    with pytest.raises(ValueError, match="columns names 'a' twice"):
        FileSource("data.csv", columns=("a", "b", "a"))


def test_a_group_is_no_dataset(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X/data"] = X
    refused(["data.h5: there is no dataset 'X'; it holds X"], tmp_path / "data.h5")


def test_files_that_are_not_there(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("a,b\n")
    refused(["there is no file", "absent.csv"], tmp_path / "absent.csv")
    refused(["empty: the folder has no data file", ".parquet"], tmp_path / "empty")
    refused(["notes.txt: unknown ending '.txt'", ".parquet"], tmp_path / "notes.txt")
    (tmp_path / "book.xlsx").write_bytes(b"PK")
    refused(["book.xlsx: unknown ending '.xlsx'; save the sheet as .csv"], tmp_path / "book.xlsx")
    refused(["path=()"], [])


@pytest.mark.parametrize("given", ["folder", "list"])
def test_formats_are_not_mixed(given, tmp_path):
    paths = [write_table(tmp_path / f"data{ending}", FRAME) for ending in (".csv", ".parquet")]
    refused([str(tmp_path), "several formats (.csv, .parquet)"], tmp_path if given == "folder" else paths)


@pytest.mark.parametrize(
    "other",
    [FRAME[["a", "b"]], FRAME.rename(columns={"a": "z"}), FRAME[["b", "a", "y", "c", "d.e", "w"]]],
    ids=["fewer", "renamed", "another order"],
)
def test_files_with_other_columns_are_refused(other, tmp_path):
    write_table(tmp_path / "a.csv", FRAME)
    write_table(tmp_path / "b.csv", other)
    refused(["files differ"], tmp_path)


def test_arrays_that_differ_are_refused(tmp_path):
    paths = [tmp_path / "a.npz", tmp_path / "b.npz"]
    np.savez(paths[0], X=X, y=Y)
    for other in ({"X": X[:, 1:], "y": Y}, {"X": X}, {"X": X, "y": Y, "sample_weight": W}):
        np.savez(paths[1], **other)
        refused(["files differ"], paths)
    scipy.sparse.save_npz(paths[1], scipy.sparse.csr_array(X))
    refused(["files differ"], paths, labelled=False)


def test_a_target_of_the_wrong_length_is_refused(tmp_path):
    path = write_table(tmp_path / "data.csv", FRAME)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        psfit.SparseLinearRegression(1).fit(path, Y[1:])


def test_columns_must_be_several():
    with pytest.raises(TypeError, match="columns='a'"):
        FileSource("data.csv", columns="a")


# Damaged files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".parquet", ".feather", ".arrow", *ARRAYS])
def test_a_file_cut_short_is_refused(ending, tmp_path):
    path = tmp_path / f"data{ending}"
    if ending in ARRAYS:
        write_arrays(path, X)
    else:
        write_table(path, FRAME)
    whole = path.read_bytes()
    sizes = {*range(0, 140, 7), *range(0, len(whole), 1 + len(whole) // 50), len(whole) - 1}
    for size in sizes:
        path.write_bytes(whole[:size])
        refused([path.name], path, labelled=False)


@pytest.mark.parametrize("ending", [".csv", ".svm"])
def test_text_cut_short_gives_whole_rows_or_an_error(ending, tmp_path):
    """Nothing tells that a last number has lost digits, but no row before it may change."""
    path = tmp_path / f"data{ending}"
    X = sparse_rows(6, 3)
    if ending == ".svm":
        write_svmlight(path, X, np.arange(6.0))
    else:
        write_table(path, pd.DataFrame(X, columns=list("abc")).assign(y=np.arange(6.0)))
    whole, errors = path.read_bytes(), []
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        try:
            samples = read(path, features=3, schema=Schema(first_index=1))
        except DataFileError as error:
            errors.append(str(error))
            continue
        kept = len(samples.y)
        assert whole[:size].count(b"\n") - (ending == ".csv") <= kept <= 6
        np.testing.assert_array_equal(values(samples)[: kept - 1], X[: kept - 1])
        np.testing.assert_array_equal(samples.y[: kept - 1], np.arange(kept - 1))
    assert len(errors) > 10
    assert all(path.name in error or "no feature" in error for error in errors)


@pytest.mark.parametrize("ending", [".parquet", ".feather", ".npz"])
def test_damage_inside_a_file_is_no_other_error(ending, tmp_path):
    path = tmp_path / f"data{ending}"
    rows = pd.DataFrame({"a": RNG.normal(size=500), "y": RNG.normal(size=500)})
    if ending == ".npz":
        np.savez_compressed(path, X=rows.to_numpy())
    else:
        write_table(path, rows)
    whole, errors = path.read_bytes(), []
    for place in range(100, len(whole), len(whole) // 40):
        path.write_bytes(whole[:place] + bytes(255 - byte for byte in whole[place : place + 40]) + whole[place + 40 :])
        try:
            values(read(path, labelled=False))
        except DataFileError as error:
            errors.append(str(error))
    assert errors
    assert all(path.name in error for error in errors)


@pytest.mark.parametrize("ending", [".parquet", ".feather", *ARRAYS, ".svm"])
def test_text_under_another_name_is_refused(ending, tmp_path):
    path = tmp_path / f"data{ending}"
    path.write_text("These are no data.\n" * 20)
    refused([path.name], path)


def test_archives_and_arrays_are_not_taken_for_each_other(tmp_path):
    np.save(tmp_path / "array.npy", X)
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    refused(["array.npz: cannot be read as .npz"], tmp_path / "array.npz")
    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "archive.npy", "w", kind) as file:
            file.writestr("X.npy", b"1,2,3")
        refused(["archive.npy: "], tmp_path / "archive.npy")
        np.save(tmp_path / "data.npy", X)
        refused(["archive.npy"], tmp_path / "data.npy", target="archive.npy")


# Memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (1, 1),
        (10**12, 10**12),
        (2.5e9, 2_500_000_000),
        ("700", 700),
        ("700b", 700),
        ("3GB", 3_000_000_000),
        (" 1.5 gb ", 1_500_000_000),
        ("512 MiB", 512 * 2**20),
        ("2K", 2000),
        ("2kib", 2048),
        ("1TB", 10**12),
    ],
)
def test_amounts_of_memory(amount, expected):
    assert memory.parse(amount) == expected


@pytest.mark.parametrize("amount", [0, -1, 0.5, True, "", "GB", "-2GB", "2XB", "lots", "nan", "inf", np.inf, np.nan])
def test_amounts_that_are_none(amount):
    with pytest.raises(ValueError, match="memory="):
        FileSource("data.csv", memory=amount)


def test_memory_that_is_free():
    with open("/proc/meminfo") as file:
        total = 1024 * int(file.readline().split()[1])
    assert 0 < memory.budget(torch.device("cpu")) <= total / 2
