"""Files as people have them: the same 60 rows written in thirty awkward ways, and files that must be refused."""

import gzip
import io
import zipfile
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

ROWS = 60
TARGET = "price"


def truth(gaps=False):
    """The rows as they are meant; with `gaps`, some numbers, texts and booleans are missing."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "key": [f"k{j:03d}" for j in range(ROWS)],
            "size": rng.uniform(1e3, 9e6, ROWS).round(2),
            "age": rng.integers(1, 90, ROWS).astype(float),
            "city": rng.choice(["Köln", "Nice", "San José"], ROWS, p=[0.5, 0.3, 0.2]),
            "new": rng.integers(0, 2, ROWS).astype(bool),
            "when": pd.date_range("2021-03-01", periods=ROWS, freq="13D"),
        }
    )
    frame[TARGET] = (
        1e-5 * frame["size"] + 0.3 * frame["age"] + 7 * (frame["city"] == "Nice") + rng.normal(size=ROWS)
    ).round(3)
    if gaps:
        frame["new"] = frame["new"].astype(object)
        for column, step in (("size", 7), ("city", 9), ("new", 11)):
            frame.loc[::step, column] = None
    return frame


@dataclass
class Case:
    """A file, the options that read it, the rules of the pipeline, and what a refusal must say."""

    name: str
    content: bytes
    options: list = field(default_factory=list)
    gaps: bool = False
    features: tuple = ("size", "age")
    indicator: bool = False
    dates: tuple = ()
    ids: bool = False


def text(frame, separator=",", decimal=".", thousands="", date="%Y-%m-%d", missing="", end="\n", quote=False):
    """A frame as CSV, with numbers, dates and gaps as asked for."""

    def cell(value):
        if value is None or value is pd.NaT or (isinstance(value, float) and np.isnan(value)):
            return missing
        if isinstance(value, pd.Timestamp):
            return value.strftime(date)
        if isinstance(value, (float, np.floating)):
            plain = f"{value:,.3f}" if thousands else f"{value:.3f}"
            return plain.replace(",", "\0").replace(".", decimal).replace("\0", thousands)
        return str(value)

    def quoted(value):
        return f'"{value}"' if quote or any(mark in value for mark in (separator, '"')) else value

    rows = [list(frame.columns), *([cell(value) for value in row] for row in frame.itertuples(index=False))]
    return end.join(separator.join(map(quoted, row)) for row in rows) + end


def pack_zip(name, content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def good_cases():
    """Files that must be read, and give what a pipeline written by hand gives."""
    numbers = truth()[["size", "age", TARGET]]
    named = numbers.rename(columns={"size": "size, m2"})
    full, gaps = truth(), truth(gaps=True)
    texts = truth()[["size", "age", "city", TARGET]]
    plain, german = text(numbers), text(numbers, ";", ",", ".")
    category = ["--categories", "group"]
    fill = ["--missing", "fill", *category]
    everything = [*category, "--dates", "all", "--id", "key"]
    city = ("size", "age", "city")
    flags = ("size", "age", "city", "new")
    holes, dated = gaps.drop(columns=["key", "when"]), full[["age", "when", TARGET]]
    marked, month_first = [*fill, "--csv", "missing=?"], ["--dates", "all", "--csv", "dates=%m/%d/%Y"]
    indicator = ["--missing", "indicator", *category]
    when = {"features": ("age",), "dates": ("when",)}
    cases = [
        Case("plain.csv", plain.encode()),
        Case("semicolon.csv", text(numbers, ";").encode()),
        Case("tab.tsv", text(numbers, "\t").encode()),
        Case("tab.csv", text(numbers, "\t").encode()),
        Case("pipe.csv", text(numbers, "|").encode()),
        Case("line-ends.csv", text(numbers, end="\r\n").encode()),
        Case("decimal-comma.csv", text(numbers, ";", ",").encode()),
        Case("german.csv", german.encode()),
        Case("thousands.csv", text(numbers, thousands=",").encode()),
        Case("spaces.csv", text(numbers, thousands=" ").encode()),
        Case("apostrophes.csv", text(numbers, thousands="'").encode()),
        Case("quoted.csv", text(numbers, quote=True).encode()),
        Case("packed.csv.gz", gzip.compress(plain.encode())),
        Case("packed.csv.zst", pa.compress(plain.encode(), codec="zstd", asbytes=True)),
        Case("packed.zip", pack_zip("inner/plain.csv", plain.encode())),
        Case("mark.csv", b"\xef\xbb\xbf" + plain.encode()),
        Case("comma-in-name.csv", text(named).encode(), features=("size, m2", "age")),
        Case("windows.csv", text(texts).encode("cp1252"), category, features=city),
        Case("utf16.csv", text(texts).encode("utf-16"), category, features=city),
        Case("latin1.csv", text(texts).encode("latin-1"), [*category, "--csv", "encoding=latin-1"], features=city),
        Case("gaps.csv", text(holes).encode(), fill, True, flags),
        Case("quoted-gaps.csv", text(holes, quote=True).encode(), fill, True, flags),
        Case("marks.csv", text(holes, missing="?").encode(), marked, True, flags),
        Case("indicator.csv", text(holes).encode(), indicator, True, flags, True),
        Case("dates.csv", text(dated).encode(), ["--dates", "all"], **when),
        Case("points.csv", text(dated, date="%d.%m.%Y").encode(), ["--dates", "all"], **when),
        Case("slashes.csv", text(dated, date="%m/%d/%Y").encode(), month_first, **when),
        Case("exclude.csv", text(full).encode(), ["--exclude", "k*,when", *category], features=flags),
        Case("id.csv", text(full).encode(), everything, features=flags, dates=("when",), ids=True),
        Case(
            "everything.csv.gz",
            gzip.compress(text(gaps, ";", ",", ".", "%d.%m.%Y").encode("cp1252")),
            [*everything, "--missing", "fill"],
            True,
            flags,
            dates=("when",),
            ids=True,
        ),
    ]
    return cases


# The file, what reads it, and what its refusal must say.
BAD = [
    ("ragged.csv", b"a,b,y\n1,2,3\n4,5\n6,7,8\n", [], ["row 1 (counted from 0), line 3: Expected 3 columns, got 2"]),
    ("word.csv", b"a,b,y\n1,2,3\n4,five,6\n7,8,9\n", [], ["column 'b' holds text ('five')", "row 1", "--exclude b"]),
    ("unclear.csv", b"a;b;y\n1,234;2;3\n5,678;3;4\n", [], ["'1,234' can be a number", "--csv decimal=,"]),
    ("header.csv", b"a,b,y\n", [], ["needs a header and at least one row"]),
    ("twice.csv", b"a,a,y\n1,2,3\n4,5,6\n", [], ["column 'a' occurs twice", "rename"]),
    ("gap.csv", b"a,b,y\n1,,3\n4,5,6\n", [], ["column 'b' has a missing value", "row 0", "--missing fill"]),
    (
        "target.csv",
        b"a,b,y\n1,2,\n4,5,6\n",
        ["--missing", "fill"],
        ["the target 'y' has 1 missing value(s) (50%), first in row 0 (line 2); correct", "--missing-target drop"],
    ),
    ("dates.csv", b"a,b,y\n1,2020-01-01,3\n4,2020-01-02,6\n", [], ["column 'b' holds dates", "--dates", "--exclude b"]),
    ("empty.csv", b"a,b,y\n1,,3\n4,,6\n", ["--missing", "fill"], ["column 'b' has no value at all", "--exclude"]),
    (
        "useless.csv",
        b"a,b,y\n1,,no\n4,,yes\n",
        ["--missing", "fill"],
        [
            "column 'b' has no value at all; use --exclude b",
            "the target 'y' holds text in 2 row(s), first 'no' in row 0 (line 2); for classes use --loss logistic",
        ],
    ),
    (
        "cut.csv.gz",
        gzip.compress(b"a,b,y\n1,2,3\n4,5,6\n" * 50, mtime=0)[:-20],
        [],
        ["cannot be decompressed", "cut short"],
    ),
    (
        "several.csv",
        b"a,b,c,y\n1,,x,3\n4,5,z,6\n,,x,7\n,1,z,9\n",
        [],
        [
            "3 problems, worst first (rows are counted from 0, from the line below the names):",
            "column 'c' holds text",
            "column 'a' has 2 missing",
            "column 'b' has 2 missing",
        ],
    ),
    (
        "names.csv",
        b"a,b,y\n" + b"".join(b"%d,name %d,%d\n" % (k, k, k) for k in range(60)),
        ["--categories", "group"],
        ["column 'b' is no category: it holds 60 different texts in 60 cells; use --id b (ids=['b']) or --exclude b"],
    ),
    (
        "marks.csv",
        b"a,b,y\n" + b"".join(b"%d,%s,%d\n" % (k, b"?" if k == 3 else b"%d" % (2 * k), k) for k in range(60)),
        ["--categories", "columns"],
        [
            "column 'b' is no category",
            "1 of its 60 cells are no numbers, first '?' in row 3 (line 5)",
            "--csv 'missing=?' (missing_marks",
        ],
    ),
    (
        "both.csv",
        b"a,b,y\n" + b"".join(b"%s,name %d,%d\n" % (b"n/d" if k < 2 else b"%d" % k, k, k) for k in range(60)),
        ["--categories", "group"],
        [
            "2 problems, worst first",
            "column 'a' is no category: it holds 59 different texts in 60 cells",
            "--csv missing=n/d",
            "column 'b' is no category",
        ],
    ),
    (
        "money.csv",
        b"a,b,y\n" + b"".join(b"%d,$%d.50,%d\n" % (k, k, k) for k in range(60)),
        ["--categories", "group"],
        ["column 'b' is no category", "if '$0.50' is a number, write it without the sign, else use --exclude b"],
    ),
    ("percent.csv", b"a,b,y\n1,3 %,3\n4,5.5 %,6\n", [], ["if '3 %' is a number, write it without the sign"]),
    ("mark.csv", b"a,b,y\n1,-,3\n4,5,6\n", [], ["column 'b' holds text ('-')", "use --csv missing=-"]),
    ("infinite.csv", b"a,b,y\n1,inf,3\n4,5,6\n", ["--missing", "fill"], ["column 'b' has infinity", "row 0"]),
]
