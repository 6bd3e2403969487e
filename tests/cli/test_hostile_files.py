"""Files that nobody should have: `psfit inspect` says something about each, `psfit fit` refuses it in a few words."""

import gzip
import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

NOISE = random.Random(0).randbytes(3000)
WIDE = ",".join(f"c{j}" for j in range(2000))
CONTENT = {
    "empty.csv": b"",
    "blank.csv": b"\n\n\n",
    "binary.csv": NOISE,
    "header.csv": b"a,b,c\n",
    "one.csv": b"a\n1\n2\n3\n",
    "ragged.csv": b"a,b,c\n1,2\n1,2,3\n1,2,3,4\n",
    "quote.csv": b'a,b\n"1,2\n3,4\n',
    "nul.csv": b"a,b\n1,\x002\n3,4\n",
    "twice.csv": b"a,a,b\n1,2,3\n4,5,6\n",
    "infinite.csv": b"a,b\ninf,1\n-inf,2\nnan,3\n",
    "long.csv": b"a,b\n" + b"x" * 300_000 + b",1\n",
    "wide.csv": f"{WIDE}\n{','.join('1' * 2000)}\n{','.join('2' * 2000)}\n".encode(),
    "cut.csv.gz": gzip.compress(b"a,b\n1,2\n" * 100)[:-20],
    "plain.csv.gz": b"a,b\n1,2\n",
    "noise.csv.zst": b"noise",
    "noise.csv.zip": b"noise",
    "noise.parquet": b"PAR1noise",
    "nothing.parquet": b"",
    "noise.feather": b"noise",
    "noise.npy": b"noise",
    "noise.npz": b"noise",
    "noise.svm": b"1 a:b\n",
    "ending.xyz": b"a,b\n1,2\n",
}
READABLE = {"one.csv", "ragged.csv", "nul.csv", "twice.csv", "infinite.csv", "long.csv", "wide.csv", "nested.parquet"}


@pytest.fixture
def file(request, tmp_path):
    path = tmp_path / request.param
    if request.param == "folder":
        path.mkdir()
    elif request.param == "nested.parquet":
        pq.write_table(pa.table({"a": [1, 2], "n": [{"x": 1}, {"x": 2}], "y": [1.0, 2.0]}), path)
    elif request.param == "empty.npy":
        np.save(path, np.zeros((0, 3)))
    else:
        path.write_bytes(CONTENT[request.param])
    return path


@pytest.mark.parametrize("file", [*CONTENT, "folder", "nested.parquet", "empty.npy"], indirect=True)
def test_inspect_never_refuses(file, call, tmp_path):
    failed = file.name not in READABLE
    code, out, err = call("inspect", file)
    assert (code, err) == (failed, "")
    assert out.startswith(f"{file}: ")
    assert ("cannot be read" not in out) == (file.name in READABLE)
    code, out, err = call("inspect", file, "--json")
    assert (code, err) == (failed, "")
    assert json.loads(out)["kind"] == ("table" if file.name in READABLE else "unreadable")


@pytest.mark.parametrize(
    "file",
    [name for name in CONTENT if name not in ("one.csv", "wide.csv")] + ["folder", "nested.parquet", "empty.npy"],
    indirect=True,
)
def test_a_fit_refuses_with_words_and_leaves_nothing(file, call, tmp_path):
    before = sorted(tmp_path.iterdir())
    code, out, err = call("fit", file, "--out", tmp_path / "model.psfit")
    assert (code, out) == (1, "")
    assert "psfit: error: " in err
    assert file.name in err or file.suffix == ".npy"
    assert sorted(tmp_path.iterdir()) == before
