"""Files that real ranks share: each reads its own part, all get the same model or the same refusal."""

import json

import numpy as np
import pandas as pd
import pytest
from launch import BACKENDS, HERE, command, run

import psfit
from psfit import BiCADMM, SparseLinearRegression

ROWS, RANKS = 90, 3
NAMES = list("abcdefgh")


def numbers():
    """Few columns have entries everywhere: the last occurs in the first rows only, the first in the last only."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(ROWS, len(NAMES)))
    X[20:, -1] = 0.0
    X[:70, 0] = 0.0
    y = 2 * X[:, 1] - X[:, 4] + 3 * X[:, 6] + 0.1 * rng.normal(size=ROWS)
    return X, y


def colours():
    """Two texts that only the first or the last rank sees, two that all do."""
    colour = np.where(np.arange(ROWS) % 2 == 0, "green", "blue")
    colour[3], colour[-4] = "red", "violet"
    return colour


def codes():
    """Codes that are numbers but for two, which only the last third holds; and what one-hot columns make of them."""
    code = np.array([str(k % 2 + 1) for k in range(ROWS)], dtype="U3")
    code[70], code[80] = "X", "010"
    names = ["010", "1", "2", "X"]
    return code, np.column_stack([code == name for name in names]).astype(float), [f"code={name}" for name in names]


def gaps(frame, folder):
    """Write a table with missing values, in one file and in three; what is made of it, filled by hand."""
    frame = frame[["colour", "e", "g", "b", "y"]].copy()
    frame.loc[[1, 75, 76, 80], "b"] = np.nan
    frame.loc[[72, 73], "colour"] = None
    frame.to_csv(folder / "gaps.csv.gz", index=False)
    (folder / "gaps").mkdir()
    for k in range(RANKS):
        frame[30 * k : 30 * (k + 1)].to_csv(folder / "gaps" / f"part{k}.csv", index=False)
    most = frame["colour"].mode()[0]
    levels = sorted(frame["colour"].dropna().unique())
    columns = {f"colour={level}": frame["colour"].fillna(most) == level for level in levels}
    columns |= {"colour:missing": frame["colour"].isna(), "e": frame["e"], "g": frame["g"]}
    columns |= {"b": frame["b"].fillna(frame["b"].median()), "b:missing": frame["b"].isna()}
    return pd.DataFrame(columns).astype(float).to_numpy(), list(columns)


def svmlight(X, y, base):
    return "".join(
        " ".join([repr(t), *(f"{j + base}:{value!r}" for j, value in enumerate(row) if value)]) + "\n"
        for row, t in zip(X.tolist(), y.tolist(), strict=True)
    )


def answers_of(backend, cases, folder):
    """What every rank reports for every case."""
    program = [str(HERE / "read_files.py"), backend, str(folder / "answers.json"), json.dumps(cases)]
    done = run(command(backend, RANKS, *program), timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "answers.json").read_text())


def check(answers, X, y, names, counts=None):
    """The parts are all of the rows in order, and the model is that of one process with the arrays."""
    heights = [len(answer["y"]) for answer in answers]
    assert all(0 < height < ROWS / 2 for height in heights) if counts is None else heights == counts
    np.testing.assert_array_equal(np.vstack([answer["rows"] for answer in answers]), X)
    np.testing.assert_array_equal(np.concatenate([answer["y"] for answer in answers]), y)
    expected = SparseLinearRegression(3, gamma=10.0, solver=BiCADMM(effort="low")).fit(X, y)
    for answer in answers:
        assert answer["names"] == names
        assert answer["objective"] == pytest.approx(expected.objective_, rel=1e-9)
        assert answer["support"] == expected.support_.tolist()


@pytest.mark.parametrize("backend", ["torch"])
def test_ranks_read_their_own_parts(backend, tmp_path):
    X, y = numbers()
    frame = pd.DataFrame(X, columns=NAMES).assign(y=y)
    coloured = frame.assign(colour=colours())[["colour", *NAMES, "y"]]
    encoded = pd.get_dummies(coloured, columns=["colour"], prefix_sep="=", dtype=float).drop(columns="y")
    encoded = encoded[[*sorted(column for column in encoded if "=" in column), *NAMES]]
    frame.to_csv(tmp_path / "data.csv", index=False)
    frame.to_parquet(tmp_path / "data.parquet", row_group_size=7)
    (tmp_path / "folder").mkdir()
    # Precision that differs between the files of different ranks, as far as it changes no number.
    single = frame.astype(np.float32).astype(float)
    for k, (at, dtype) in enumerate([(slice(0, 31), "f4"), (slice(31, 32), "f4"), (slice(32, ROWS), "f8")]):
        single[at].astype(dict.fromkeys(NAMES, dtype)).reset_index(drop=True).to_feather(
            tmp_path / "folder" / f"part{k}.feather"
        )
    (tmp_path / "pair").mkdir()
    for k, at in enumerate([slice(0, 50), slice(50, ROWS)]):
        frame[at].to_parquet(tmp_path / "pair" / f"part{k}.parquet", index=False)
    coloured.to_csv(tmp_path / "coloured.csv", index=False)
    coloured.astype({"colour": "category"}).to_parquet(tmp_path / "coloured.parquet")
    code, indicators, levels = codes()
    coded = frame.assign(code=code)[["code", *NAMES, "y"]]
    coded.to_csv(tmp_path / "coded.csv", index=False)
    for folder, ending in (("lines", "csv"), ("typed", "parquet")):
        (tmp_path / folder).mkdir()
        for k, at in enumerate([slice(0, 30), slice(30, 60), slice(60, ROWS)]):
            part, file = coded[at].astype({"code": str if k == 2 else int}), tmp_path / folder / f"part{k}.{ending}"
            part.to_csv(file, index=False) if ending == "csv" else part.to_parquet(file)
    np.savez(tmp_path / "data.npz", X=X, y=y)
    cases = {
        name: {"path": str(tmp_path / name)} for name in ("data.csv", "data.parquet", "data.npz", "folder", "pair")
    }
    cases["streamed"] = {"path": str(tmp_path / "data.parquet"), "memory": 100}
    for name in ("coloured.csv", "coloured.parquet", "coded.csv", "lines", "typed"):
        cases[name] = {"path": str(tmp_path / name), "one_hot": True}
    for base in (0, 1):
        (tmp_path / f"from{base}.svm").write_text(svmlight(X, y, base))
        cases[f"from{base}.svm"] = {"path": str(tmp_path / f"from{base}.svm")}
    filled, made = gaps(coloured, tmp_path)
    for name in ("gaps.csv.gz", "gaps"):
        cases[name] = {"path": str(tmp_path / name), "one_hot": True, "missing": "indicator"}
    answers = answers_of(backend, cases, tmp_path)
    check(answers["gaps.csv.gz"], filled, y, made)
    check(answers["gaps"], filled, y, made, [30, 30, 30])
    check(answers["data.csv"], X, y, NAMES)
    check(answers["data.parquet"], X, y, NAMES)
    check(answers["streamed"], X, y, NAMES)
    check(answers["data.npz"], X, y, None)
    # With at least one file for each rank, each rank reads whole files; fewer files are divided.
    check(answers["folder"], single[NAMES].to_numpy(), single["y"].to_numpy(), NAMES, [31, 1, ROWS - 32])
    check(answers["pair"], X, y, NAMES)
    check(answers["coloured.csv"], encoded.to_numpy(), y, list(encoded.columns))
    check(answers["coloured.parquet"], encoded.to_numpy(), y, list(encoded.columns))
    # Kinds and levels are those of all files, though two ranks see nothing but numbers.
    for name, counts in (("coded.csv", None), ("lines", [30, 30, 30]), ("typed", [30, 30, 30])):
        check(answers[name], np.hstack([indicators, X]), y, [*levels, *NAMES], counts)
    check(answers["from0.svm"], X, y, None)
    check(answers["from1.svm"], X, y, None)


def test_what_one_rank_cannot_read_all_refuse(tmp_path):
    X, y = numbers()
    good = pd.DataFrame(X, columns=NAMES).assign(y=y)
    bad, swapped, fewer = good.copy(), good[[*NAMES[::-1], "y"]], good[["a", "y"]]
    bad.loc[85, "c"] = np.nan
    bad.to_csv(tmp_path / "bad.csv", index=False)
    bad.to_parquet(tmp_path / "bad.parquet", row_group_size=7)
    good[:2].to_csv(tmp_path / "short.csv", index=False)
    good[:2].to_parquet(tmp_path / "short.parquet")
    (tmp_path / "empty").mkdir()
    (tmp_path / "labels.svm").write_text("1\n" * 30)
    for name, other in (("swapped", swapped), ("fewer", fewer)):
        (tmp_path / name).mkdir()
        for k, frame in enumerate([good, good, other]):
            frame.to_parquet(tmp_path / name / f"part{k}.parquet")
    good.assign(y=[*good["y"][:85], "oops", *good["y"][86:]]).to_csv(tmp_path / "y.csv", index=False)
    (tmp_path / "text").mkdir()
    for k, frame in enumerate([good, good, good.astype({"c": object}).assign(c=["1", "oops", *["2"] * 88])]):
        frame.to_parquet(tmp_path / "text" / f"part{k}.parquet")
    place = "column 'c' has a missing value, first in row 85 (counted from 0)"
    said = {
        "bad.csv": [2, f"bad.csv: {place}"],
        "bad.parquet": [2, f"bad.parquet: {place}"],
        "short.csv": [None, "row(s) are left for rank"],
        "short.parquet": [0, "0 row(s) are left for rank 0, which hosts 1 node(s)"],
        "empty": [None, "empty: the folder has no data file"],
        "labels.svm": [None, "no feature"],
        "swapped": [None, "the files differ"],
        "fewer": [None, "the files differ"],
        "y.csv": [None, "y.csv: column 'y' holds text ('oops') in place of a number, first in row 85 "],
        "text": [2, "part2.parquet: column 'c' holds text ('oops') in place of a number, first in row 1 "],
        "no target": [None, "target='z': there is no such column"],
    }
    cases = {name: {"path": str(tmp_path / name)} for name in said}
    cases["no target"] = {"path": str(tmp_path / "bad.csv"), "target": "z"}
    for name, answers in answers_of("torch", cases, tmp_path).items():
        alone, message = said[name]
        errors = [answer.get("error", "none") for answer in answers]
        assert all(message in error for error in errors), (name, errors)
        if alone is not None:
            remote = [f"RemoteError: rank {alone} failed" in error for error in errors]
            assert remote == [rank != alone for rank in range(RANKS)], (name, errors)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_every_rank_leaves_out_its_rows_without_a_target(ending, tmp_path):
    """With weights, offsets and ids; the last rank has most of these rows."""
    X, y = numbers()
    frame = pd.DataFrame(X, columns=NAMES).assign(key=range(len(y)), w=1 + np.arange(len(y)) % 3, e=0.5, y=y)
    without = [0, 1, 31, *range(70, 85)]
    holes = frame.assign(y=np.where(np.isin(np.arange(len(y)), without), np.nan, y))
    rest = frame.drop(index=without)
    for name, rows in (("holes", holes), ("rest", rest)):
        path = tmp_path / f"{name}{ending}"
        rows.to_csv(path, index=False) if ending == ".csv" else rows.to_parquet(path, row_group_size=7)
    options = ["--weight", "w", "--offset", "e", "--id", "key", "--kappa", "2", "--gamma", "1", "--device", "cpu"]
    models = []
    for name, more, ranks in (("holes", ["--missing-target", "drop"], RANKS), ("rest", [], 1)):
        out = str(tmp_path / f"{name}.psfit")
        program = ["-m", "psfit", "fit", str(tmp_path / f"{name}{ending}"), *options, *more, "--out", out]
        done = run(command("torch", ranks, *program), timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("18 row(s) without a target are left out") == (name == "holes")
        models.append(psfit.load(out))
    assert [model.learned_.features.schema.left_out for model in models] == [18, 0]
    assert [model.result_.samples for model in models] == [72, 72]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bad_entry_that_is_met_on_the_way_ends_all_ranks(backend, tmp_path):
    X, y = numbers()
    X[85, 2] = np.nan
    pd.DataFrame(X, columns=NAMES).assign(y=y).to_parquet(tmp_path / "data.parquet")
    options = ["--memory", "100B", "--device", "cpu", "--out", str(tmp_path / "model.psfit")]
    program = ["-m", "psfit", "fit", str(tmp_path / "data.parquet"), *options]
    done = run(command(backend, RANKS, *program), timeout=60)
    assert done.returncode != 0
    assert "column 'c' has a missing value, first in row 85 (counted from 0)" in done.stderr
    assert not (tmp_path / "model.psfit").exists()
