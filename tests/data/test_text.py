"""Text in columns: how Arrow gets it, and malformed headers."""

import numpy as np
import pyarrow as pa
import pytest

from psfit.comm import GridSpec
from psfit.data import FileSource
from psfit.data.io import DataFileError, text

GRID = GridSpec(backend="serial", device="cpu").build()


def write_text(path):
    path.write_text("a,b,y\n" + "1.5,red,2\n0.5,blue,1\n" * 30)
    return path


def test_arrow_is_handed_nothing_that_needs_the_interpreter(tmp_path, monkeypatch):
    """Arrow's threads let go of their input when they like; one that Python made would need Python, which may be ending
    by then, and the process would be aborted.
    """
    handed = []
    opened = text.csv.open_csv
    monkeypatch.setattr(
        text.csv, "open_csv", lambda stream, **options: handed.append(stream) or opened(stream, **options)
    )
    read = FileSource(write_text(tmp_path / "data.csv"), one_hot=True).read(GRID)
    assert read.names == ("a", "b=blue", "b=red")
    assert len(handed) >= 3
    for stream in handed:
        assert isinstance(stream, pa.NativeFile)
        assert not isinstance(stream, pa.PythonFile)


@pytest.mark.parametrize("header", ['"a\nb",c,y', 'c,"a\nb",y', '"a"",b\n,c",y', 'a,b,"y\n"'])
def test_a_header_over_several_lines_is_refused(header, tmp_path):
    (tmp_path / "data.csv").write_text(f"{header}\n1,2,3\n4,5,6\n7,8,1\n")
    with pytest.raises(DataFileError, match=r"data\.csv: a quote is not closed in its first line"):
        FileSource(tmp_path / "data.csv").read(GRID)


def test_quotes_inside_a_name_are_letters(tmp_path):
    (tmp_path / "data.csv").write_text('size 5",b,y\n1,2,3\n4,5,6\n7,8,1\n')
    assert FileSource(tmp_path / "data.csv").read(GRID).names == ('size 5"', "b")


def test_an_empty_line_of_one_column_is_a_missing_value(tmp_path):
    """If it were left out, all predictions after it would move."""
    path = tmp_path / "data.csv"
    path.write_text("a\n1\n\n3\n")
    with pytest.raises(DataFileError, match=r"column 'a' has a missing value, first in row 1 "):
        FileSource(path).read(GRID, labelled=False)
    path.write_text("a,b\n1,2\n\n3,4\n")
    assert FileSource(path).read(GRID, labelled=False).matrix.shape == (2, 2)


def test_a_comma_in_a_name_and_in_every_row_is_no_separator(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('id;"area, m2";rooms\na;45,5;2\nb;30,5;1\nc;51,5;3\n', encoding="utf-8")
    with pytest.warns(UserWarning, match="decimal comma"):
        read = FileSource(path, ids=["id"]).read(GRID)
    assert read.names == ("area, m2",)
    np.testing.assert_array_equal(read.matrix.values[:, 0], [45.5, 30.5, 51.5])
