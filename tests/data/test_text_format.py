"""A model reads new text files as those of its fit were written; what has two meanings is never guessed."""

import numpy as np
import pandas as pd
import pytest

import psfit
from psfit.data import FileSource, TableSource
from psfit.data.io.dialect import Dialect, DialectError, find_dialect
from psfit.data.schema import TextFormat
from psfit.data.table_rules import TableRules
from psfit.estimators.persistence.archive import pack, unpack

pytestmark = pytest.mark.filterwarnings("ignore::psfit.ReadingWarning")
GERMAN, ENGLISH = (",", "."), (".", ",")


def write(number, decimal, thousands, digits):
    """A number with its decimals and thousands as they are asked for."""
    plain = f"{number:,.{digits}f}"
    return plain.replace(",", "\0").replace(".", decimal).replace("\0", thousands)


def write_file(path, areas, rates, signs, separator=";", y=None):
    """Areas are whole numbers, and rates have decimals."""
    rows = [[write(a, *signs, 0), write(b, *signs, 2)] for a, b in zip(areas, rates, strict=True)]
    names = ["area", "rate"]
    if y is not None:
        rows, names = [[*row, write(one, *signs, 3)] for row, one in zip(rows, y, strict=True)], [*names, "y"]
    quoted = [[f'"{cell}"' if separator in cell else cell for cell in row] for row in [names, *rows]]
    path.write_text("".join(separator.join(row) + "\n" for row in quoted))
    return path


@pytest.fixture(params=["file", "loaded"])
def fit(request, tmp_path):
    """A fit of ``y = 2 area - 3 rate`` to a file; the model also as its file gives it back."""

    def run(signs, separator=";", **rules):
        rng = np.random.default_rng(0)
        areas, rates = rng.integers(200, 5000, 50), rng.uniform(0.2, 90, 50).round(2)
        path = write_file(tmp_path / "fit.csv", areas, rates, signs, separator, 2 * areas - 3 * rates)
        source = FileSource(path, target="y", **rules)
        model = psfit.SparseLinearRegression(2, gamma=float("inf"), certify=False).fit(source)
        if request.param == "loaded":
            psfit.save(model, tmp_path / "model.psfit")
            model = psfit.load(tmp_path / "model.psfit")
        return model

    return run


@pytest.mark.parametrize(("signs", "separator"), [(GERMAN, ";"), (ENGLISH, ","), (ENGLISH, ";")])
def test_a_few_rows_are_read_like_the_files_of_the_fit(signs, separator, fit, tmp_path):
    """No cell of the new file shows what its point or comma means."""
    areas, rates = np.array([1179, 200, 1400]), np.array([8.0, 4, 2])
    path = tmp_path / "new.csv"
    path.write_text(separator.join(["area", "rate"]) + "\n")
    with path.open("a") as file:
        for area, rate in zip(areas, rates, strict=True):
            file.write(f'"{write(area, *signs, 0)}"{separator}{rate:.0f}\n')
    np.testing.assert_allclose(fit(signs, separator).predict(path), 2 * areas - 3 * rates, rtol=1e-8)


def test_a_point_of_the_fit_stays_a_point(fit, tmp_path):
    """1.179 in a file with semicolons has two meanings, but not for a model whose files had a point."""
    (tmp_path / "new.csv").write_text("area;rate\n500;1.179\n600;2.250\n")
    expected = [1000 - 3 * 1.179, 1200 - 3 * 2.25]
    np.testing.assert_allclose(fit((".", "")).predict(tmp_path / "new.csv"), expected, rtol=1e-8)


@pytest.mark.parametrize(
    ("fitted", "cells", "said"),
    [
        (GERMAN, ["1179", "8.5"], "'8.5' in row 1 (counted from 0) of column 'rate' has a decimal point"),
        (ENGLISH, ["1179", "8,5"], "'8,5' in row 1 (counted from 0) of column 'rate' has a decimal comma"),
        ((",", ""), ["1.179", "8"], "'1.179' in row 1 (counted from 0) of column 'area' can be a number"),
        ((".", ""), ["1,179", "8"], "'1,179' in row 1 (counted from 0) of column 'area' can be a number"),
    ],
)
def test_what_contradicts_the_fit_or_is_unclear_is_refused_and_can_be_said(fitted, cells, said, fit, tmp_path):
    model, path = fit(fitted), tmp_path / "new.csv"
    path.write_text(f"area;rate\n1000;8\n{';'.join(cells)}\n")
    with pytest.raises(ValueError, match=r"say which|if that is right") as raised:
        model.predict(path)
    assert said in str(raised.value)
    assert "--csv decimal=" in str(raised.value)
    # Here all of them mean 1179 and 8.5, or 1179 and 8.
    sign = "," if "," in cells[1] or "." in cells[0] else "."
    expected = 2 * 1179 - 3 * float(cells[1].replace(",", "."))
    assert model.predict(FileSource(path, decimal=sign))[1] == pytest.approx(expected)


def test_a_cell_in_the_other_format_is_refused_with_its_place_and_the_remedy(fit, tmp_path):
    (tmp_path / "new.csv").write_text("area;rate\n1.000;8,5\n1.179;9.75\n")
    with pytest.raises(ValueError, match=r"column 'rate' holds text \('9.75'\)") as raised:
        fit(GERMAN).predict(tmp_path / "new.csv")
    assert "row 1" in str(raised.value)
    remedy = "if this one has a point, use --csv decimal=point (decimal='.')"
    assert f"the files of the fit had a decimal comma; {remedy}" in str(raised.value)


def test_a_zero_does_not_begin_thousands():
    """0.125 is no 125, whatever separates thousands."""
    pattern = pd.Series(["0.125", "1.125", "12", ",5", "1.000,5"]).str.fullmatch(Dialect(";", ",", ".").number)
    assert pattern.tolist() == [False, True, True, True, True]


HEAD = {
    "points of three digits": ("a,b\n1.250,x\n2.500,y\n", ".", None, "default"),
    "a clear point": ("a,b\n1.250,x\n0.500,y\n", ".", None, "shown"),
    "whole numbers": ("a;b\n1250;x\n500;y\n", ".", None, "none"),
    "several points": ("a;b\n1.250.000;x\n500;y\n", ",", ".", "shown"),
    "several commas": ("a;b\n1,250,000;x\n500;y\n", ".", ",", "shown"),
    "spaces and a comma": ("a;b\n1 250,125;x\n500;y\n", ",", " ", "shown"),
}


@pytest.mark.parametrize("name", HEAD)
def test_what_the_first_lines_show(name):
    head, *expected = HEAD[name]
    found = find_dialect(head, ",", TableRules(), TextFormat())
    assert [found.decimal, found.thousands, found.basis] == expected


@pytest.mark.parametrize("cell", ["1.179", "120,567"])
def test_two_meanings_in_a_file_with_semicolons_are_refused(cell):
    with pytest.raises(DialectError, match=f"'{cell}' can be a number with decimals or with thousands; say which"):
        find_dialect(f"a;b\n{cell};x\n500;y\n", ",", TableRules(), TextFormat())


def test_files_of_one_fit_are_read_in_the_same_way(tmp_path):
    """One file shows the comma; the other could have points before decimals."""
    (tmp_path / "a.csv").write_text('area,y\n"1.200,5",1200.5\n"1.300,5",1300.5\n300,300\n'.replace("0.5\n", "0\n"))
    (tmp_path / "b.csv").write_text("area,y\n1.179,1179\n1.400,1400\n1.250,1250\n")
    paths = (tmp_path / "a.csv", tmp_path / "b.csv")
    model = psfit.SparseLinearRegression(1, gamma=float("inf"), certify=False).fit(FileSource(paths, target="y"))
    assert model.coef_[0] == pytest.approx(1, abs=1e-3)
    assert model.learned_.features.schema.text.decimal == ","


@pytest.fixture
def marked(tmp_path):
    """A file with a mark for missing values, and what it means; the fit fills with 'b' and with 6."""
    cells = [("a", 1.0), ("b", 6.0), ("k.A.", 3.0), ("b", None), ("b", 6.0), ("a", 9.0), ("b", 8.0)]
    rows = [f"{level},{'k.A.' if size is None else size},{k}" for k, (level, size) in enumerate(cells)]
    path = tmp_path / "fit.csv"
    path.write_text("\n".join(["level,size,y", *rows]) + "\n")
    rules = {"categories": "columns", "missing": "fill", "new_levels": "zero"}
    source = FileSource(path, target="y", missing_marks=["k.A."], **rules)
    return psfit.SparseLinearRegression(3, gamma=1.0, certify=False).fit(source)


def test_marks_of_missing_values_belong_to_the_model(marked, tmp_path):
    frame = pd.DataFrame({"level": ["k.A.", "a"], "size": [2.0, 3.0]})
    expected = marked.predict(pd.DataFrame({"level": ["b", "a"], "size": [2.0, 3.0]}))
    (tmp_path / "new.csv").write_text("level,size\nk.A.,2\na,3\n")
    frame.to_parquet(tmp_path / "new.parquet")
    typed = frame.astype({"level": "category"})
    for form in (tmp_path / "new.csv", tmp_path / "new.parquet", frame, typed):
        np.testing.assert_allclose(marked.predict(form), expected)
    # More marks can be said, and a mark among numbers is one, too.
    (tmp_path / "more.csv").write_text("level,size\n-,2\na,k.A.\n")
    filled = marked.predict(pd.DataFrame({"level": ["b", "a"], "size": [2.0, 6.0]}))
    np.testing.assert_allclose(marked.predict(FileSource(tmp_path / "more.csv", missing_marks=["-"])), filled)


def test_marks_of_a_table_are_missing_values():
    frame = pd.DataFrame({"level": ["a", "b", "-", "b"] * 3, "y": range(12)})
    model = psfit.SparseLinearRegression(2, groups=None, certify=False)
    model.fit(TableSource(frame, target="y", categories="columns", missing="fill", missing_marks=["-"]))
    assert model.feature_names_in_.tolist() == ["level=a", "level=b"]


def rewrite(path, change):
    """The model file with its schema changed."""
    content, arrays = unpack(path)
    change(content["schema"])
    path.write_bytes(pack(content, arrays, lambda value: value))


def test_a_model_file_without_the_format_is_read(marked, tmp_path):
    """As earlier versions wrote it: then new files show themselves how they are written."""
    frame = pd.DataFrame({"level": ["b", "a"], "size": [2.0, 3.0]})
    psfit.save(marked, tmp_path / "model.psfit")
    rewrite(tmp_path / "model.psfit", lambda schema: schema.pop("text"))
    old = psfit.load(tmp_path / "model.psfit")
    assert old.learned_.features.schema.text == TextFormat()
    np.testing.assert_allclose(old.predict(frame), marked.predict(frame))


@pytest.mark.parametrize(
    "text",
    [{"decimal": "x"}, {"decimal": ",", "thousands": ","}, {"thousands": ""}, {"missing_marks": "k"}, [], {"x": 1}],
)
def test_a_malformed_format_in_a_model_file_is_refused(text, marked, tmp_path):
    psfit.save(marked, tmp_path / "model.psfit")
    rewrite(tmp_path / "model.psfit", lambda schema: schema.update(text=text))
    with pytest.raises(ValueError, match="how its text files were written is malformed"):
        psfit.load(tmp_path / "model.psfit")


def test_what_a_prediction_fills_is_counted_in_the_format_of_the_fit(call, tmp_path):
    """Dates and marks of missing values are those of the fit, also where its changes are counted."""
    days = pd.date_range("2023-01-05", periods=60, freq="11D")
    frame = pd.DataFrame({"key": range(60), "day": days.strftime("%d/%m/%Y"), "size": np.arange(60.0) % 7})
    frame["y"] = 2 * frame["size"] + days.year
    frame = frame.astype({"size": object})
    frame.loc[[3, 8], "size"] = "n.c."
    frame.to_csv(tmp_path / "fit.csv", index=False)
    model, said = str(tmp_path / "model.psfit"), ["--csv", "dates=%d/%m/%Y", "--csv", "missing=n.c."]
    options = ["--target", "y", "--id", "key", "--dates", "year", "--missing", "fill", "--kappa", "2", "--out", model]
    code, _, err = call("fit", str(tmp_path / "fit.csv"), *options, *said)
    assert code == 0, err
    frame.iloc[:5].to_csv(tmp_path / "new.csv", index=False)
    code, out, err = call("predict", model, str(tmp_path / "new.csv"))
    assert code == 0, err
    assert "filled 1 missing cell in 1 column: size" in err
    code, out, err = call("score", model, str(tmp_path / "fit.csv"))
    assert code == 0, err
    assert "filled 2 missing cells in 1 column: size" in out


@pytest.mark.parametrize(("form", "typed"), [("%d/%m/%Y", ("dates=%d/%m/%Y",)), ("%d.%m.%Y", ())])
def test_a_day_that_its_month_does_not_have_is_refused(form, typed, call, tmp_path):
    days = pd.date_range("2024-01-29", periods=60, freq="11D")
    frame = pd.DataFrame({"day": days.strftime(form), "y": days.month.astype(float)})
    said = [part for one in typed for part in ("--csv", one)]
    model = str(tmp_path / "model.psfit")
    options = ["--target", "y", "--dates", "month", "--kappa", "1", "--out", model]
    frame.to_csv(tmp_path / "fit.csv", index=False)
    code, _, err = call("fit", str(tmp_path / "fit.csv"), *options, *said)
    assert code == 0, err
    # 2024 has a 29 February, 2023 has none.
    fine, wrong = form.replace("%d/%m", "29/02").replace("%d.%m", "29.02"), "31"
    for year, ends in (("2024", 0), ("2023", 1)):
        frame.assign(day=fine.replace("%Y", year)).iloc[:3].to_csv(tmp_path / "new.csv", index=False)
        code, _, err = call("predict", model, str(tmp_path / "new.csv"))
        assert code == ends
        assert (not ends) or f"holds text ('{fine.replace('%Y', year)}') in place of a date, first in row 0" in err
    frame.loc[7, "day"] = form.replace("%d", wrong).replace("%m", "04").replace("%Y", "2025")
    frame.to_csv(tmp_path / "fit.csv", index=False)
    code, _, err = call("fit", str(tmp_path / "fit.csv"), *options, *said)
    assert code == 1
    assert "first in row 7" in err
    # The same in memory.
    if not typed:
        with pytest.raises(ValueError, match=r"'31\.04\.2025'\) in place of a date|day"):
            psfit.load(model).predict(frame.drop(columns="y"))


def test_numbers_with_zeros_in_front_are_named(call, tmp_path):
    (tmp_path / "codes.csv").write_text("code,size,y\n" + "".join(f"0{k % 5}1,{k},{k % 3}\n" for k in range(40)))
    code, out, _ = call("inspect", str(tmp_path / "codes.csv"))
    lines = [line for line in out.splitlines() if "zeros in front" in line]
    assert code == 0
    assert len(lines) == 1
    assert "code" in lines[0]


@pytest.mark.parametrize("ids", ["day", "key,da*"])
def test_a_column_that_the_model_uses_cannot_be_an_id(ids, call, tmp_path):
    days = pd.date_range("2023-01-05", periods=60, freq="11D")
    frame = pd.DataFrame({"key": range(60), "day": days.strftime("%Y-%m-%d"), "other": 1.5, "y": days.year * 1.0})
    frame["other"] += np.arange(60) % 3
    frame.to_csv(tmp_path / "fit.csv", index=False)
    model, data = str(tmp_path / "model.psfit"), str(tmp_path / "fit.csv")
    options = ["--target", "y", "--id", "key", "--dates", "year", "--kappa", "1", "--out", model]
    assert call("fit", data, *options)[0] == 0
    code, out, err = call("predict", model, data, "--id", ids)
    assert (code, out) == (1, "")
    assert "--id: the model uses the column 'day'" in err
    # What the model does not use can be an id.
    assert call("predict", model, data, "--id", "other")[1].startswith("other,prediction")
