"""What is said about tables that cannot be read as they are: what it is, where it is, what to do."""

import gzip
import io
import json
import shlex

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import psfit
from psfit.data.io import ReadRequest, open_file

WRONG = {
    "gzip": (gzip.compress(b"a,y\n1,2\n"), "compressed by gzip; let its name end with .csv.gz"),
    "zstd": (
        pa.compress(b"a,y\n1,2\n", codec="zstd", asbytes=True),
        "compressed by zstd; let its name end with .csv.zst",
    ),
    "zip": (b"PK\x03\x04\x14\x00 data.csv", "a zip archive; let its name end with .csv.zip"),
    "xlsx": (b"PK\x03\x04\x14\x00 [Content_Types].xml", "a workbook of Excel or LibreOffice; save the sheet as .csv"),
    "zero bytes": (b"a,y\n\x00\x01,2\n", "it holds many zero bytes, so it is no text"),
    "UTF-16": ("a,y\n1,2\n".encode("utf-16-le"), "if it is UTF-16, say so (--csv encoding=utf-16-le)"),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("command", ["fit", "inspect"])
def test_a_file_that_is_no_text_is_named_and_not_printed(kind, command, call, tmp_path):
    content, said = WRONG[kind]
    (tmp_path / "data.csv").write_bytes(content)
    code, out, err = call(command, tmp_path / "data.csv")
    assert code == 1
    assert said in out + err
    assert all(letter.isprintable() or letter == "\n" for letter in out + err)


def test_utf_16_that_is_said_to_be_so_is_read(call, tmp_path):
    (tmp_path / "data.csv").write_bytes("a,y\n1,2\n3,4\n".encode("utf-16-le"))
    assert call("inspect", tmp_path / "data.csv", "--csv", "encoding=utf-16-le")[0] == 0


@pytest.mark.parametrize(("content", "said"), [("", "is empty"), ("a,b\n", "has a header, but no row below it")])
def test_an_empty_file_and_a_header_alone_are_told_apart(content, said, call, tmp_path):
    (tmp_path / "data.csv").write_text(content)
    for command in ("fit", "inspect"):
        code, out, err = call(command, tmp_path / "data.csv")
        assert code == 1
        assert f"data.csv: {said}; a table needs a header and at least one row below it" in out + err


@pytest.mark.parametrize(
    ("header", "warned"),
    [
        ("41,2022-04-27,40,118,North", True),
        ("5,3,North,4.1", True),
        ("city,2019,2020,2021", False),
        ("y,4000.5,3999.1,3998", False),
        ("a,b,3", False),
    ],
)
def test_a_first_line_of_numbers_is_probably_a_row(header, warned, call, tmp_path):
    row = ",".join(map(str, range(header.count(",") + 1)))
    (tmp_path / "data.csv").write_text(f"{header}\n" + f"{row}\n{row[::-1]}\n" * 5)
    said = "its first line is mostly numbers"
    code, _, err = call("fit", tmp_path / "data.csv", "--kappa", 1, "-q", "--no-certify")
    assert (code, said in err) == (0, warned)
    assert (said in call("inspect", tmp_path / "data.csv")[1]) == warned


def test_a_name_with_a_comma_is_shown_as_options_take_it(call, tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 3)), columns=["a, net", "b", "y"])
    frame.to_csv(tmp_path / "data.csv", index=False)
    command = ["fit", tmp_path / "data.csv", "--kappa", 1, "-q", "--no-certify"]
    for option in ("--exclude", "--include", "--id"):
        code, _, err = call(*command, option, "a, net")
        assert code == 1
        remedy = err.split("on the command line: ")[1].split(")")[0]
        # As a shell reads it.
        assert call(*command, option, *shlex.split(remedy))[0] == 0


@pytest.mark.parametrize(
    ("lines", "row", "line"),
    [
        (["a,y", "1,2", "3,x", "5,6"], 1, 3),
        (["a,y", "1,2", "", "3,x", "5,6"], 1, None),
        (['"a ""b""",y', '"1",2', "3,x", "5,6"], 1, 3),
    ],
)
def test_a_line_is_named_if_it_is_known(lines, row, line, call, tmp_path):
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    code, _, err = call("fit", tmp_path / "data.csv")
    said = f"first in row {row} (counted from 0)" + ("; " if line is None else f", line {line}; ")
    assert (code, said in err) == (1, True), err


def test_a_line_after_a_line_break_in_a_cell_is_not_known(tmp_path):
    (tmp_path / "data.csv").write_text('a,y\n1,2\n"x\nz",3\n4,5\n')
    file = open_file(tmp_path / "data.csv", ReadRequest(lenient=True, labelled=False))
    assert [file.find_line(row) for row in range(3)] == [2, None, None]


def test_the_problems_of_the_target_come_first(call, tmp_path):
    frame = pd.DataFrame({"a": [None, None, 3.0, 4], "b": ["x", "y", "z", "x"], "y": [1.0, None, 3, 4]})
    frame.to_csv(tmp_path / "data.csv", index=False)
    lines = call("fit", tmp_path / "data.csv")[2].splitlines()[1:]
    names = [line.split("'")[1] for line in lines]
    assert names == ["y", "b", "a"]


@pytest.mark.parametrize("mark", ["k.A.", "n/d", "-", "?", "keine Angabe", "unbekannt"])
def test_marks_of_missing_values_are_recognised_everywhere(mark, call, tmp_path):
    """In fits, predictions, scores and profiles, among numbers and among texts."""
    frame = pd.DataFrame({"a": np.arange(60.0), "b": ["x", "y", "z"] * 20, "y": np.arange(60.0)})
    frame.to_csv(tmp_path / "good.csv", index=False)
    frame.astype({"a": object}).assign(a=[mark, *range(59)]).to_csv(tmp_path / "bad.csv", index=False)
    quoted = "'" if mark in ("?", "keine Angabe") else ""
    remedy = f"--csv {quoted}missing={mark}{quoted}"
    model = tmp_path / "model.psfit"
    options = ["--categories", "group", "--kappa", 2, "--no-certify", "-q"]
    assert call("fit", tmp_path / "good.csv", *options, "--out", model)[0] == 0
    for command in (["fit", tmp_path / "bad.csv", *options], ["predict", model, tmp_path / "bad.csv"]):
        code, _, err = call(*command)
        assert (code, remedy in err) == (1, True), err
    assert remedy in call("score", model, tmp_path / "bad.csv")[2]
    assert remedy in call("inspect", tmp_path / "bad.csv")[1]
    frame.assign(b=["x", "y", mark] * 20).to_csv(tmp_path / "level.csv", index=False)
    columns = json.loads(call("inspect", tmp_path / "level.csv", "--json")[1])["columns"]
    assert f"if {mark!r} means a missing value, use {remedy} (missing_marks=[{mark!r}])" in columns[1]["warnings"]


def test_a_score_needs_only_the_features_that_the_model_uses(call, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(50, 3)), columns=["a", "b", "y"]).assign(y=lambda one: 3 * one["a"])
    model = psfit.SparseLinearRegression(1, certify=False).fit(psfit.TableSource(frame, target="y"))
    psfit.save(model, tmp_path / "model.psfit")
    expected = model.score(frame)
    for other in (frame.assign(b="no number"), frame.drop(columns="b")):
        other.to_csv(tmp_path / "new.csv", index=False)
        assert model.score(tmp_path / "new.csv") == pytest.approx(expected)
        code, out, _ = call("score", tmp_path / "model.psfit", tmp_path / "new.csv", "--json")
        assert (code, json.loads(out)["scores"]["R2"]) == (0, pytest.approx(expected))


def test_a_fit_names_the_form_of_dates(call, tmp_path):
    days = pd.date_range("2020-01-01", periods=200).strftime("%d/%m/%Y")
    pd.DataFrame({"when": days, "y": np.arange(200.0)}).to_csv(tmp_path / "data.csv", index=False)
    command = ["fit", tmp_path / "data.csv", "--kappa", 1, "-q", "--no-certify", "--categories", "group"]
    code, _, err = call(*command)
    assert code == 1
    assert "if these are dates, use --csv dates=%d/%m/%Y (date_format='%d/%m/%Y') and --dates year,month," in err
    assert call(*command, "--csv", "dates=%d/%m/%Y", "--dates", "trend")[0] == 0


def test_a_profile_suggests_the_target_that_was_meant(call, tmp_path):
    pd.DataFrame({"a": [1, 2], "claims": [3, 4]}).to_csv(tmp_path / "data.csv", index=False)
    assert (
        "there is no column 'claim' (did you mean 'claims'?)"
        in call("inspect", tmp_path / "data.csv", "--target", "claim")[1]
    )


def test_a_profile_names_a_category_that_nearly_tells_the_target(call, tmp_path):
    """One text goes with both targets, in 6 rows of 200; another column tells little."""
    target = ["yes", "no"] * 100
    place = ["clinic" if one == "yes" else "home" for one in target]
    for row in (0, 2, 4, 1, 3, 5):
        place[row] = "other"
    frame = pd.DataFrame({"to": place, "ward": (["a"] * 3 + ["b"]) * 50, "y": target})
    frame.to_csv(tmp_path / "data.csv", index=False)
    rows = json.loads(call("inspect", tmp_path / "data.csv", "--json")[1])["columns"]
    # The best guess from the text is wrong in three of the six rows.
    assert rows[0]["warnings"] == ["nearly tells the target (of 98.5% of the rows)", "needs --categories"]
    assert rows[1]["warnings"] == ["needs --categories"]


def test_how_a_file_is_written_is_one_line(call, tmp_path):
    text = io.StringIO()
    pd.DataFrame({"gr\u00f6\u00dfe": [1200.5, 1300.25], "y": [1.5, 2.5]}).to_csv(
        text, sep=";", decimal=",", index=False
    )
    (tmp_path / "data.csv").write_bytes(text.getvalue().replace("1200", "1.200").encode("cp1252"))
    err = call("fit", tmp_path / "data.csv", "--kappa", 1, "--no-certify")[2]
    notes = [line for line in err.splitlines() if "note" in line]
    assert len(notes) == 1
    assert notes[0].endswith("data.csv: not in UTF-8, so read as cp1252; decimal comma; '.' between thousands")
