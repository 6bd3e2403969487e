"""What a fit learns about the columns of its files, and how other files are read with it."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import psfit
from psfit.comm import GridSpec
from psfit.data import FileSource
from psfit.data.io import DataFileError, text
from psfit.data.io.cells import level_texts
from psfit.data.schema import Column, Schema, SchemaError
from psfit.reporting import describe

GRID = GridSpec(backend="serial", device="cpu").build()
every_table = pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])


def write(path, frame):
    frame = pd.DataFrame(frame)
    {".csv": lambda: frame.to_csv(path, index=False), ".parquet": lambda: frame.to_parquet(path, index=False)}.get(
        path.suffix, lambda: frame.to_feather(path)
    )()
    return path


def linear(path, kappa=2, **options):
    """A model that is the mean of y in each group: all indicators may count."""
    model = psfit.SparseLinearRegression(kappa, gamma=1e6, certify=False, groups=None)
    return model.fit(FileSource(path, one_hot=True, **options))


def refused(said, action):
    with pytest.raises(DataFileError) as error:
        action()
    for part in said:
        assert part in str(error.value)


# At fit -------------------------------------------------------------------------------------------


@every_table
def test_a_code_that_is_text_in_one_file_is_a_category_in_all(ending, tmp_path):
    a = write(tmp_path / f"a{ending}", {"code": [1, 2, 1, 2], "y": [10.0, 20.0, 10.0, 20.0]})
    b = write(tmp_path / f"b{ending}", {"code": ["X", "X"], "y": [40.0, 40.0]})
    for paths in ([a, b], [b, a]):
        model = linear(paths, 3)
        assert model.feature_names_in_.tolist() == ["code=1", "code=2", "code=X"]
        np.testing.assert_allclose(model.predict(a), [10, 20, 10, 20], rtol=1e-4)
        np.testing.assert_allclose(model.predict(b), [40, 40], rtol=1e-4)


@every_table
def test_text_in_one_of_several_files_is_refused_without_one_hot(ending, tmp_path):
    a = write(tmp_path / f"a{ending}", {"size": [1, 2, 3], "y": [1.0, 2.0, 3.0]})
    b = write(tmp_path / f"b{ending}", {"size": ["4", "five", "6"], "y": [1.0, 2.0, 3.0]})
    said = [f"b{ending}: column 'size' holds text ('five')", "first in row 1 ", "--categories group"]
    for paths in ([a, b], [b, a]):
        refused(said, lambda paths=paths: psfit.SparseLinearRegression(1).fit(paths))


def test_text_may_follow_after_the_lines_that_suggest_a_type(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 1)
    path = tmp_path / "data.csv"
    path.write_text("code,flag,size,y\n" + "1,0,1,10\n02,1,2,20\n" * 60 + "X,true,3,40\n")
    samples = FileSource(path, one_hot=True).read(GRID)
    assert samples.names == ("code=02", "code=1", "code=X", "flag", "size")
    assert [column.kind for column in samples.schema.columns] == ["category", "boolean", "number"]


@pytest.mark.parametrize("one_hot", [False, True])
@every_table
def test_booleans_and_numbers_in_several_files(ending, one_hot, tmp_path):
    a = write(tmp_path / f"a{ending}", {"flag": [True, False], "y": [1.0, 2.0]})
    b = write(tmp_path / f"b{ending}", {"flag": [0, 1], "y": [1.0, 2.0]})
    samples = FileSource([b, a], one_hot=one_hot).read(GRID)
    assert samples.schema.columns == (Column("flag", "boolean"),)
    assert samples.matrix.values.tolist() == [[0], [1], [1], [0]]
    c = write(tmp_path / f"c{ending}", {"flag": [0, 7], "y": [1.0, 2.0]})
    if one_hot and ending == ".csv":
        # Text as it is written can be a category; numbers and booleans that have types cannot be one column.
        assert FileSource([c, a], one_hot=True).read(GRID).names == ("flag=0", "flag=7", "flag=False", "flag=True")
    else:
        refused(
            [f"c{ending}: column 'flag' holds", "7", "in place of a boolean, first in row 1 "],
            lambda: FileSource([a, c], one_hot=one_hot).read(GRID).matrix.values,
        )


@every_table
def test_labels_are_text_in_all_files_if_they_are_in_one(ending, tmp_path):
    a = write(tmp_path / f"a{ending}", {"size": [1.0, 2.0, 3.0], "kind": [1, 2, 1]})
    b = write(tmp_path / f"b{ending}", {"size": [7.0, 8.0], "kind": ["X", "1"]})
    model = psfit.SparseLogisticRegression(1, certify=False).fit([a, b])
    assert model.classes_.tolist() == ["1", "2", "X"]
    # Samples for a report have the same labels, also if a file has no text.
    summary = describe(model, a, grid=GRID)
    assert summary.classes == (("1", 2), ("2", 1), ("X", 0))


def test_features_of_one_name_are_refused(tmp_path):
    path = write(tmp_path / "data.csv", {"a": ["b", "c"], "a=b": [1.0, 2.0], "y": [1.0, 2.0]})
    with pytest.raises(SchemaError, match="two features would be called 'a=b'"):
        FileSource(path, one_hot=True).read(GRID)


def test_some_levels_can_be_asked_for(tmp_path):
    path = write(tmp_path / "data.csv", {"a": ["b", "c", "b"], "s": [1, 2, 3], "y": [1.0, 2.0, 3.0]})
    samples = FileSource(path, one_hot=True, columns=("s", "a=c")).read(GRID)
    assert samples.names == ("s", "a=c")
    assert samples.matrix.values.tolist() == [[1, 0], [2, 1], [3, 0]]
    with pytest.raises(SchemaError, match="columns='a=z'"):
        FileSource(path, one_hot=True, columns=("a=z",)).read(GRID)


def test_a_number_that_is_missing_is_no_level(tmp_path):
    a, b = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(pa.table({"code": ["X", "Y"], "y": [1.0, 2.0]}), a)
    pq.write_table(pa.table({"code": [1.0, np.nan], "y": [1.0, 2.0]}), b)
    refused(
        ["b.parquet: column 'code' has a missing value, first in row 1 "],
        lambda: FileSource([a, b], one_hot=True).read(GRID),
    )


# The text of a level ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        (pa.array(["010", " x", "True"]), ["010", " x", "True"]),
        (pa.array(["a", "b"]).cast(pa.large_string()), ["a", "b"]),
        (pa.array([1, -2, 2**60]), ["1", "-2", str(2**60)]),
        (pa.array([1.0, -0.0, 0.1, 1e300]), ["1", "0", "0.1", "1e+300"]),
        (pa.array([1.0, 0.1], pa.float32()), ["1", "0.1"]),
        (pa.array(np.array([1, 0.5], np.float16)), ["1", "0.5"]),
        (pa.array([True, False]), ["True", "False"]),
    ],
)
def test_the_text_of_a_level(cells, texts):
    assert level_texts(cells).to_pylist() == texts


@every_table
def test_codes_with_leading_zeros_stay_text(ending, tmp_path):
    rows = {"code": ["010", "10", "7"] * 2, "y": [1.0, 5.0, 9.0] * 2}
    model = linear(write(tmp_path / "fit.parquet", rows), 3)
    path = write(tmp_path / f"new{ending}", {"code": ["010", "10"]})
    np.testing.assert_allclose(model.predict(path), [1, 5], rtol=1e-4)


@pytest.mark.parametrize("code", [[1, 2], [1.0, 2.0]], ids=["whole", "with a point"])
def test_numbers_with_types_find_their_levels(code, tmp_path):
    model = linear(write(tmp_path / "fit.csv", {"code": ["1", "2", "X"] * 2, "y": [1.0, 5.0, 9.0] * 2}), 3)
    for ending in (".parquet", ".feather"):
        path = write(tmp_path / f"new{ending}", {"code": code})
        np.testing.assert_allclose(model.predict(path), [1, 5], rtol=1e-4)


@every_table
def test_booleans_find_their_levels(ending, tmp_path):
    rows = {"sure": ["True", "False", "unknown"] * 2, "y": [1.0, 5.0, 9.0] * 2}
    model = linear(write(tmp_path / f"fit{ending}", rows), 3)
    for other in (".csv", ".parquet", ".feather"):
        path = write(tmp_path / f"new{other}", {"sure": [False, True]})
        np.testing.assert_allclose(model.predict(path), [5, 1], rtol=1e-4)
    path = write(tmp_path / "other.csv", {"sure": ["False", "true"]})
    refused(["other.csv: column 'sure' holds the level 'true'", "first in row 1 "], lambda: model.predict(path))


# At predict ---------------------------------------------------------------------------------------


@pytest.fixture
def houses(tmp_path):
    """A model of a number, a category and a boolean, from text."""
    rng = np.random.default_rng(0)
    rows = {
        "area": rng.uniform(50, 200, 30).round(1),
        "zone": np.array(["a", "b", "c"])[rng.integers(0, 3, 30)],
        "new": rng.integers(0, 2, 30).astype(bool),
    }
    rows["price"] = 2000 * rows["area"] + 9000 * (rows["zone"] == "a") + 5000 * rows["new"]
    model = linear(write(tmp_path / "fit.csv", rows), 5)
    assert len(model.support_) == 5
    return model


def value(model, area, zone, new):
    coef = dict(zip(model.feature_names_in_, model.coef_, strict=True))
    return model.intercept_ + coef["area"] * area + coef[f"zone={zone}"] + coef["new"] * new


@every_table
def test_columns_are_found_by_name_and_others_ignored(ending, houses, tmp_path):
    path = write(
        tmp_path / f"new{ending}", {"id": ["p", "q"], "new": [True, False], "zone": ["c", "a"], "area": [70, 80]}
    )
    expected = [value(houses, 70, "c", 1), value(houses, 80, "a", 0)]
    np.testing.assert_allclose(houses.predict(path), expected, rtol=1e-12)
    psfit.save(houses, tmp_path / "model.psfit")
    loaded = psfit.load(tmp_path / "model.psfit")
    assert loaded.learned_.features.schema == houses.learned_.features.schema
    np.testing.assert_array_equal(loaded.predict(path), houses.predict(path))


@every_table
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"area": ["70", "large", "80"]}, ["column 'area' holds text ('large') in place of a number, first in row 1 "]),
        ({"area": [True, False, True]}, ["column 'area' holds", "in place of a number, first in row 0 "]),
        ({"area": [70.0, None, 80.0]}, ["column 'area' has a missing value, first in row 1 "]),
        ({"new": [0, 1, 2]}, ["column 'new' holds", "2", "in place of a boolean, first in row 2 "]),
        ({"new": ["yes", "no", "no"]}, ["column 'new' holds text ('yes') in place of a boolean, first in row 0 "]),
        (
            {"zone": ["a", "b", "d"]},
            ["column 'zone' holds the level 'd', which the fit did not see", "row 2 ", "a, b, c"],
        ),
        ({"zone": ["a", "b", "A "]}, ["column 'zone' holds the level 'A '", "first in row 2 "]),
        ({"zone": [1, 2, 3]}, ["column 'zone' holds the level '1'", "first in row 0 "]),
        ({"zone": ["a", None, "b"]}, ["column 'zone' has a missing value, first in row 1 "]),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_with_its_place(ending, change, said, houses, tmp_path):
    rows = {"area": [70, 80, 90], "zone": ["a", "b", "c"], "new": [True, False, True]} | change
    path = write(tmp_path / f"new{ending}", rows)
    refused([f"new{ending}: ", *said], lambda: houses.predict(path))


@every_table
@pytest.mark.parametrize("column", ["area", "zone", "new"])
def test_a_column_that_is_not_there_is_refused(ending, column, houses, tmp_path):
    rows = {"area": [70, 80], "zone": ["a", "b"], "new": [True, False], "zone=a": [1, 0]}
    del rows[column]
    refused(
        [f"new{ending}: the model needs 1 column(s) that are not there: '{column}'", "add or rename them"],
        lambda: houses.predict(write(tmp_path / f"new{ending}", rows)),
    )


def test_all_columns_that_are_not_there_are_named_at_once(houses):
    refused(
        ["2 column(s)", "'area' (did you mean 'Area'?), 'zone';"],
        lambda: houses.predict(pd.DataFrame({"Area": [70], "new": [True]})),
    )


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%Y/%m/%d", "%Y-%m-%d"])
def test_dates_that_are_recognised_in_files_are_recognised_as_text_in_tables(form, tmp_path):
    days = pd.date_range("2020-01-20", periods=30)
    frame = pd.DataFrame({"when": days.strftime(form), "y": np.arange(30.0)})
    frame.to_csv(tmp_path / "fit.csv", index=False)
    rules = {"target": "y", "dates": ["trend"]}
    model = psfit.SparseLinearRegression(1, certify=False).fit(psfit.FileSource(tmp_path / "fit.csv", **rules))
    expected = model.predict(tmp_path / "fit.csv")
    np.testing.assert_allclose(expected, frame["y"], atol=0.1)
    np.testing.assert_allclose(model.predict(frame), expected, rtol=1e-12)
    of_table = psfit.SparseLinearRegression(1, certify=False).fit(psfit.TableSource(frame, **rules))
    np.testing.assert_allclose(of_table.predict(tmp_path / "fit.csv"), expected, rtol=1e-12)


def test_dates_of_several_forms_in_one_column(tmp_path):
    days = pd.date_range("2020-01-20", periods=30)
    texts = [day.strftime(form) for day, form in zip(days, ["%d.%m.%Y", "%Y/%m/%d", "%Y-%m-%d"] * 10, strict=True)]
    frame = pd.DataFrame({"when": texts, "y": np.arange(30.0)})
    model = psfit.SparseLinearRegression(1, certify=False).fit(psfit.TableSource(frame, target="y", dates="all"))
    np.testing.assert_allclose(model.predict(frame.assign(when=days)), model.predict(frame), rtol=1e-12)
    assert len(model.feature_names_in_) == 21
    frame.to_csv(tmp_path / "new.csv", index=False)
    np.testing.assert_allclose(model.predict(tmp_path / "new.csv"), model.predict(frame), rtol=1e-12)


def test_texts_that_are_dates_are_no_category():
    frame = pd.DataFrame({"when": [f"{year}-01-31" for year in range(1950, 2010)], "y": np.arange(60.0)})
    refused(
        [
            "the table: column 'when' holds dates; use --dates",
        ],
        lambda: psfit.SparseLinearRegression(1).fit(psfit.TableSource(frame, target="y", categories="group")),
    )


def test_files_of_which_only_all_together_have_a_category(tmp_path):
    """A text that is rare in one file, and files of one column of text that is none."""
    for name, cities in (("a", [f"c{k}" for k in range(60)]), ("b", [f"c{k % 60}" for k in range(180)])):
        write(tmp_path / f"{name}.csv", {"city": cities, "y": np.arange(float(len(cities)))})
    source = FileSource((tmp_path / "a.csv", tmp_path / "b.csv"), categories="columns")
    assert psfit.SparseLinearRegression(1, certify=False).fit(source).n_features_in_ == 60
    write(tmp_path / "b.csv", {"city": [f"d{k}" for k in range(60)], "y": np.arange(60.0)})
    refused(
        ["path: column 'city' is no category: it holds 120 different texts in 120 cells; use --id city"],
        lambda: psfit.SparseLinearRegression(1).fit(source),
    )


def test_dates_are_texts_where_the_fit_saw_texts(tmp_path):
    model = linear(
        write(tmp_path / "fit.csv", {"when": ["2020-01-01", "2020-01-02", "later"], "y": [1.0, 5.0, 9.0]}), 3
    )
    path = write(tmp_path / "new.csv", {"when": ["2020-01-02", "2020-01-01"]})
    np.testing.assert_allclose(model.predict(path), [5, 1], rtol=1e-4)
    pq.write_table(pa.table({"when": pd.date_range("2020-01-01", periods=2)}), tmp_path / "new.parquet")
    refused(["new.parquet: column 'when' holds", "row 0 "], lambda: model.predict(tmp_path / "new.parquet"))


def test_a_model_of_arrays_finds_no_categories_in_files(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b=x": [0.0, 1.0, 1.0]})
    model = psfit.SparseLinearRegression(2, certify=False).fit(frame, [1.0, 2.0, 4.0])
    path = write(tmp_path / "new.csv", {"a": [1, 2], "b": ["x", "y"]})
    refused(["the model needs 1 column(s) that are not there: 'b=x'"], lambda: model.predict(path))
    path = write(tmp_path / "new.csv", {"a": [1, 2], "b=x": ["0", "x"]})
    refused(["column 'b=x' holds text ('x')", "row 1 "], lambda: model.predict(path))


def test_a_path_reports_on_categories(tmp_path):
    source = FileSource(
        write(tmp_path / "fit.csv", {"code": ["1", "2", "X"] * 3, "y": [1.0, 5.0, 9.0] * 3}), one_hot=True
    )
    path = psfit.sparse_path(source, kappas=[1], certify=False)
    other = write(tmp_path / "other.csv", {"code": [1, 2], "y": [1.0, 5.0]})
    assert describe(path, other, grid=GRID).columns.means.tolist() == [0.5, 0.5, 0.0]


# Bad cells ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("column", ["size", "w", "y"])
def test_the_cell_that_is_no_number_is_named(ending, column, tmp_path):
    rows = {"size": ["1", "2", "3", "4"], "w": ["1"] * 4, "y": ["3", "4", "5", "6"]}
    rows[column][2] = "oops"
    frame = pd.DataFrame(rows)
    numbers = [name for name in rows if name != column]
    frame[numbers] = frame[numbers].astype(float)
    path = write(tmp_path / f"data{ending}", frame)
    refused(
        [f"data{ending}: column '{column}' holds text ('oops') in place of a number, first in row 2 (counted from 0)"],
        lambda: psfit.SparseLinearRegression(1).fit(path, sample_weight="w"),
    )


def test_the_entry_of_an_array_that_is_no_number_is_named():
    with pytest.raises(ValueError, match=r"y is not numeric: it holds text, such as 'oops' in row 2"):
        psfit.SparseLinearRegression(1).fit(np.eye(3), np.array(["3", "4", "oops"]))


# Svmlight -----------------------------------------------------------------------------------------


def test_svmlight_is_counted_as_at_fit(tmp_path):
    (tmp_path / "zero.svm").write_text("1 0:1\n2 1:1\n4 2:1\n")
    (tmp_path / "one.svm").write_text("1 1:1\n2 2:1\n4 3:1\n")
    (tmp_path / "few.svm").write_text("0 1:1\n0 1:2\n")
    zero, one = (psfit.SparseLinearRegression(3, gamma=1e6, certify=False) for _ in range(2))
    zero.fit(tmp_path / "zero.svm")
    one.fit([tmp_path / "one.svm", tmp_path / "few.svm"])
    psfit.save(zero, tmp_path / "zero.psfit")
    for model in (zero, psfit.load(tmp_path / "zero.psfit")):
        expected = model.predict(np.array([[0.0, 1, 0], [0, 2, 0]]))
        np.testing.assert_allclose(model.predict(tmp_path / "few.svm"), expected, rtol=1e-12)
    expected = one.predict(np.array([[1.0, 0, 0], [2, 0, 0]]))
    np.testing.assert_allclose(one.predict(tmp_path / "few.svm"), expected, rtol=1e-12)
    (tmp_path / "other.svm").write_text("# a comment\n0 1:1\n0 0:1 1:1\n")
    refused(
        ["other.svm: column 0 has an entry, first in row 1 ", "count columns from one"],
        lambda: one.predict(tmp_path / "other.svm"),
    )


def test_svmlight_for_a_model_of_arrays_must_tell_how_it_counts(tmp_path):
    model = psfit.SparseLinearRegression(3, certify=False).fit(np.eye(3), [1.0, 2.0, 4.0])
    for name, lines in (("zero", "0 0:1\n0 1:1\n"), ("one", "0 1:1\n0 2:1\n0 3:0\n")):
        (tmp_path / f"{name}.svm").write_text(lines)
        expected = model.predict(np.eye(3)[:2])
        np.testing.assert_allclose(model.predict(tmp_path / f"{name}.svm")[:2], expected, rtol=1e-12)
    (tmp_path / "few.svm").write_text("0 1:1\n0 2:1\n")
    refused(["from zero or from one", "n_features=3"], lambda: model.predict(tmp_path / "few.svm"))


# The object ---------------------------------------------------------------------------------------


def test_a_schema_survives_json():
    schema = Schema((Column("a", "number"), Column("b", "category", ("é", "x=y"))), "boolean", 1)
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    assert [feature.name for feature in schema.features()] == ["a", "b=é", "b=x=y"]


# The command line ---------------------------------------------------------------------------------


def test_the_command_line_predicts_by_the_schema(call, houses, tmp_path):
    psfit.save(houses, tmp_path / "model.psfit")
    path = write(tmp_path / "new.csv", {"new": ["true"], "zone": ["b"], "area": [100]})
    code, out, _ = call("predict", tmp_path / "model.psfit", path)
    assert code == 0
    assert float(out.split()[1]) == pytest.approx(value(houses, 100, "b", 1))
    path = write(tmp_path / "new.csv", {"new": ["true"], "zone": ["b"], "area": ["big"]})
    code, out, err = call("predict", tmp_path / "model.psfit", path)
    assert (code, out) == (1, "")
    assert "new.csv: column 'area' holds text ('big') in place of a number, first in row 0 (counted from 0)" in err


def test_probabilities_need_one_look_at_the_file(call, tmp_path, monkeypatch):
    path = write(tmp_path / "data.csv", {"a": [1.0, 2.0, 3.0, 4.0], "kind": ["p", "q", "p", "q"]})
    model = psfit.SparseLogisticRegression(1, certify=False).fit(path)
    psfit.save(model, tmp_path / "model.psfit")
    reads = []
    read = FileSource.read
    monkeypatch.setattr(FileSource, "read", lambda *given, **named: reads.append(1) or read(*given, **named))
    code, out, _ = call("predict", tmp_path / "model.psfit", path, "--proba")
    assert (code, len(reads)) == (0, 1)
    rows = [line.split(",") for line in out.split()]
    assert rows[0] == ["prediction", "probability_p", "probability_q"]
    assert [row[0] for row in rows[1:]] == model.predict(path).tolist()
    np.testing.assert_allclose(np.array([row[1:] for row in rows[1:]], float), model.predict_proba(path), rtol=1e-12)


def test_categories_are_groups_or_single_columns(tmp_path):
    levels = ["a", "b", "c"] * 8
    path = write(tmp_path / "fit.csv", {"code": levels, "y": [3.0 * (level == "b") for level in levels]})
    chosen = {}
    for categories in ("group", "columns"):
        model = psfit.SparseLinearRegression(1, gamma=1e6).fit(FileSource(path, categories=categories))
        psfit.save(model, tmp_path / "model.psfit")
        chosen[categories] = [str(model.feature_names_in_[j]) for j in model.support_]
        again = psfit.load(tmp_path / "model.psfit").learned_.features.schema
        assert again == model.learned_.features.schema
        assert again.single == ({"code"} if categories == "columns" else set())
        assert model.predict(FileSource(path))[1] == pytest.approx(3.0, abs=1e-4)
    # A single level is enough for this target; a group is in the model as a whole.
    assert chosen == {"group": ["code=a", "code=b", "code=c"], "columns": ["code=b"]}
