"""Files that are written: safely, in the format they are named after, and refused before the work for them begins."""

import csv
import os
import stat
import sys

import numpy as np
import pandas as pd
import pytest

import psfit
from psfit.common.output_files import require_writable, table_lines, write_whole
from psfit.estimators.model import SparseModel

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 4))
LABELS = np.where(X[:, 0] > 0, "=SUM(A1)", "-1")


@pytest.fixture
def samples(tmp_path, monkeypatch):
    """A table in the current folder."""
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(X, columns=["=a", "b", "c", "d"]).assign(y=X[:, 0] + 0.1 * X[:, 1]).to_csv("data.csv", index=False)
    return tmp_path


@pytest.fixture
def model(samples):
    """A classifier with a label that looks like a formula."""
    psfit.save(psfit.SparseLogisticRegression(2).fit(X, LABELS), "model.psfit")
    np.save("new.npy", X)
    return psfit.load("model.psfit")


@pytest.fixture
def no_fit(monkeypatch):
    """A fit would be too late."""

    def refuse(*args, **kwargs):
        raise AssertionError("the fit began")

    monkeypatch.setattr(SparseModel, "_pose", refuse)


def test_a_link_beside_the_file_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "model.psfit.partial").symlink_to(tmp_path / "precious")
    (tmp_path / "model.psfit").symlink_to(tmp_path / "precious")
    write_whole(tmp_path / "model.psfit", lambda file: file.write(b"new"))
    assert (tmp_path / "precious").read_text() == "kept"
    assert not (tmp_path / "model.psfit").is_symlink()
    assert (tmp_path / "model.psfit").read_text() == "new"


def test_what_fails_leaves_nothing_and_what_is_written_has_the_usual_rights(tmp_path):
    def fail(file):
        file.write(b"half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_whole(tmp_path / "a", fail)
    assert not list(tmp_path.iterdir())
    mask = os.umask(0o027)
    try:
        write_whole(tmp_path / "a", lambda file: file.write(b"x"))
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    require_writable("--out", tmp_path / "b")
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit", "data.csv", "--out", "folder.psfit"], "--out: folder.psfit is a folder"),
        (["fit", "data.csv", "--out", "nowhere/m.psfit"], "--out: there is no folder"),
        (["fit", "data.csv", "--out", "/proc/m.psfit"], "--out: nothing can be written in /proc"),
        (["fit", "data.csv", "--out", "model.pkl"], "--out: 'model.pkl' must end with .psfit"),
        (["fit", "data.csv", "--out", "model"], "--out: 'model' must end with .psfit"),
        (["fit", "data.csv", "--report", "/proc/page.html"], "--report: nothing can be written in /proc"),
        (["path", "data.csv", "--out", "folder.csv"], "--out: folder.csv is a folder"),
        (["path", "data.csv", "--out", "/proc/t.csv"], "--out: nothing can be written in /proc"),
        (["path", "data.csv", "--picture", "folder.png"], "--picture: folder.png is a folder"),
        (["path", "data.csv", "--picture", "p.xyz"], "--picture: '.xyz' is not a format for pictures"),
        (["path", "data.csv", "--picture", "/proc/p.png"], "--picture: nothing can be written in /proc"),
    ],
)
def test_outputs_are_checked_before_the_fit(call, samples, no_fit, arguments, said):
    for name in ("folder.psfit", "folder.csv", "folder.png"):
        (samples / name).mkdir()
    code, _, err = call(*arguments)
    assert code == 1
    assert said in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["predict", "model.psfit", "new.csv", "--out", "folder.csv"], "--out: folder.csv is a folder"),
        (["predict", "model.psfit", "new.csv", "--out", "p.xlsx"], "must end with .csv or .tsv or .parquet"),
        (["predict", "model.psfit", "new.csv", "--out", "/proc/p.csv"], "--out: nothing can be written in /proc"),
        (["report", "model.psfit", "--out", "/proc/r.html"], "--out: nothing can be written in /proc"),
    ],
)
def test_outputs_are_checked_before_the_model_is_read(call, samples, arguments, said):
    (samples / "folder.csv").mkdir()
    (samples / "model.psfit").write_text("no model at all")
    code, _, err = call(*arguments)
    assert code == 1
    assert said in err


def test_the_demo_checks_its_files_first(call, samples, monkeypatch):
    monkeypatch.setattr(sys.modules["psfit.cli.demo"], "_fit_generated", lambda *args: pytest.fail("the fit began"))
    (samples / "here" / "diabetes.psfit").mkdir(parents=True)
    code, _, err = call("demo", "--out", "here")
    assert (code, "diabetes.psfit is a folder" in err) == (1, True)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".feather", ".arrow"])
def test_predictions_have_the_format_of_their_name(call, model, samples, ending):
    code, _, err = call("predict", "model.psfit", "new.npy", "--proba", "--out", f"p{ending}")
    assert (code, err) == (0, "")
    readers = {".csv": pd.read_csv, ".tsv": lambda path: pd.read_csv(path, sep="\t"), ".parquet": pd.read_parquet}
    frame = readers.get(ending, pd.read_feather)(f"p{ending}")
    assert frame.columns.tolist() == ["prediction", "probability_-1", "probability_=SUM(A1)"]
    # Only spreadsheets need the apostrophe, and only they open text.
    expected = np.where(model.predict(X) == "-1", "-1", "'=SUM(A1)" if ending in (".csv", ".tsv") else "=SUM(A1)")
    assert frame["prediction"].astype(str).tolist() == expected.tolist()
    np.testing.assert_allclose(frame.iloc[:, 1:], model.predict_proba(X), rtol=1e-12)


def test_numbers_are_written_as_numbers(call, samples):
    pair = psfit.SparseLinearRegression(2).fit(X, X[:, :2])
    psfit.save(pair, "pair.psfit")
    np.save("new.npy", X)
    assert call("predict", "pair.psfit", "new.npy", "--out", "p.parquet")[0] == 0
    np.testing.assert_array_equal(pd.read_parquet("p.parquet")[["prediction_0", "prediction_1"]], pair.predict(X))


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_names_are_no_formulas(call, samples, start):
    names = [f"{start}cmd|' /C calc'!A0", "b", "c", "d"]
    psfit.SparseLinearRegression(1, fit_intercept=False).fit(pd.DataFrame(-X, columns=names), X[:, 0]).to_csv("c.csv")
    with open("c.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[2][1] == f"'{names[0]}"
    # Numbers stay numbers, below zero as well.
    assert float(rows[2][2]) < 0


def test_names_in_the_table_of_a_path_are_no_formulas(call, samples):
    assert call("path", "data.csv", "--kappas", "1:2", "--out", "path.csv")[0] == 0
    assert pd.read_csv("path.csv")["features"].tolist() == ["'=a", "'=a; b"]


def test_texts_that_are_numbers_are_left_alone():
    assert "".join(table_lines([["-1", "+2.5", "-", -3.0, "-inf", "a=b", "@x"]])) == "-1,+2.5,'-,-3.0,-inf,a=b,'@x\n"


def test_predictions_do_not_replace_the_samples(call, model, samples):
    psfit.save(psfit.SparseLinearRegression(2, certify=False).fit("data.csv"), "line.psfit")
    before = (samples / "data.csv").read_bytes()
    code, _, err = call("predict", "line.psfit", "data.csv", "--out", samples / "data.csv")
    assert code == 1
    assert "is one of the files to read; name another file" in err
    assert (samples / "data.csv").read_bytes() == before
