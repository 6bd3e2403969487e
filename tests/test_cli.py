"""The command line in one process: what it reads, writes and complains about."""

import re
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

import psfit
from psfit.cli import main


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command line; its exit status and what it printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["psfit", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture
def numbers(tmp_path):
    """A regression with three true features of six, as .npz and .csv."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    y = X[:, :3] @ [2.0, -1.0, 3.0] + 0.1 * rng.normal(size=60)
    np.savez(tmp_path / "data.npz", X=X, y=y)
    lines = ["f0,f1,f2,answer,f3,f4,f5"]
    lines += [
        ",".join(map(repr, [*row[:3].tolist(), float(t), *row[3:].tolist()])) for row, t in zip(X, y, strict=True)
    ]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    return X, y


def test_fit_and_predict_give_what_the_estimator_gives(call, numbers, tmp_path):
    X, y = numbers
    expected = psfit.SparseLinearRegression(3, gamma=10.0, grid=psfit.GridSpec(device="cpu")).fit(X, y)
    model, predictions = tmp_path / "model.psfit", tmp_path / "predictions.csv"
    options = ["--kappa", 3, "--gamma", 10, "--device", "cpu", "--output", model]
    code, out, _ = call("fit", tmp_path / "data.npz", *options)
    assert code == 0
    assert "proved" in out
    assert str(model) in out
    loaded = psfit.load(model)
    np.testing.assert_array_equal(loaded.coef_, expected.coef_)
    assert loaded.gap_ == expected.gap_
    code, _, _ = call("predict", model, tmp_path / "data.npz", "--output", predictions)
    assert code == 0
    title, *values = predictions.read_text().split()
    assert title == "prediction"
    np.testing.assert_allclose(np.array(values, dtype=float), expected.predict(X), rtol=1e-12)


def test_columns_of_a_csv_are_found_by_name(call, numbers, tmp_path):
    X, y = numbers
    model = tmp_path / "model.psfit"
    options = ["--kappa", 3, "--target", "answer", "--device", "cpu", "--output", model]
    assert call("fit", tmp_path / "data.csv", *options)[0] == 0
    assert psfit.load(model).feature_names_in_.tolist() == ["f0", "f1", "f2", "f3", "f4", "f5"]
    shuffled = tmp_path / "shuffled.csv"
    shuffled.write_text("f5,f4,f3,f2,f1,f0\n" + "\n".join(",".join(map(repr, row[::-1].tolist())) for row in X))
    code, out, _ = call("predict", model, shuffled)
    assert code == 0
    expected = psfit.SparseLinearRegression(3).fit(X, y).predict(X)
    np.testing.assert_allclose(np.array(out.split()[1:], dtype=float), expected, rtol=1e-9)


def test_text_labels_and_several_files(call, tmp_path):
    X, y = load_iris(return_X_y=True)
    labels = np.array(["setosa", "versicolor", "virginica"])[y]
    for k in range(3):
        lines = ["a,b,c,d,kind", *(",".join([*map(repr, X[i].tolist()), labels[i]]) for i in range(k, 150, 3))]
        (tmp_path / f"part{k}.csv").write_text("\n".join(lines))
    model = tmp_path / "model.psfit"
    files = [tmp_path / f"part{k}.csv" for k in range(3)]
    options = ["--model", "logistic", "--kappa", 6, "--device", "cpu", "--nodes", 2, "--output", model]
    assert call("fit", *files, *options)[0] == 0
    code, out, _ = call("predict", model, files[0])
    assert code == 0
    assert np.mean(np.array(out.split()[1:]) == labels[::3]) > 0.9


def test_options_reach_the_solver(call, numbers, tmp_path):
    options = ["--kappa", "0.5", "--exact", "--effort", "low", "--no-intercept", "--dtype", "float32"]
    code, out, _ = call("fit", tmp_path / "data.npz", *options, "--device", "cpu", "--blocks", 2, "--no-certify")
    assert code == 0
    assert "PROVED" in out
    assert "1 node x 2 blocks" in out
    assert "at most 3 nonzero" in out


def test_a_checkpoint_folder_is_used(call, numbers, tmp_path):
    options = ["--kappa", 3, "--device", "cpu", "--checkpoint", tmp_path / "kept", "--checkpoint-every", 3]
    assert call("fit", tmp_path / "data.npz", *options)[0] == 0
    assert any((tmp_path / "kept").glob("iteration-*/manifest.json"))
    code, _, err = call("fit", tmp_path / "data.npz", *options[2:], "--kappa", 2)
    assert code == 1
    assert "belongs to another run: its kappa" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.npz"], "there is no file"),
        (["data.txt"], "unknown ending '.txt'"),
        (["data.csv", "--target", "nobody"], "target='nobody': there is no such column"),
        (["data.npz", "--kappa", "many"], "--kappa"),
        (["data.npz", "--kappa", "9"], "kappa=9 must be between 1 and 6"),
        (["data.npz", "--gamma", "-1"], "gamma=-1.0"),
        (["data.npz", "--backend", "smoke"], "backend='smoke'"),
        (["data.npz", "--model", "poisson", "--loss", "huber"], "--loss"),
        (["data.npz", "--output", "nowhere/model.psfit"], "--output"),
        (["no-y.npz"], "holds no target"),
        (["uneven.csv"], "Expected 2 columns, got 1"),
        (["words.csv"], "column 'a' holds text"),
    ],
)
def test_mistakes_are_said_in_one_line(call, numbers, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.txt").write_text("")
    np.savez(tmp_path / "no-y.npz", X=numbers[0])
    (tmp_path / "uneven.csv").write_text("a,b\n1,2\n3\n")
    (tmp_path / "words.csv").write_text("a,b\nx,2\n")
    code, _, err = call("fit", *arguments, "--device", "cpu")
    assert code == 1
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("psfit: error: ")
    assert re.search(said, err)


def test_a_file_that_is_no_model_is_refused(call, numbers, tmp_path):
    (tmp_path / "model.psfit").write_text("{}")
    code, _, err = call("predict", tmp_path / "model.psfit", tmp_path / "data.npz")
    assert code == 1
    assert "is not a model file" in err


def test_a_table_with_text_weights_and_more_columns_than_needed(call, tmp_path):
    rng = np.random.default_rng(0)
    size, colour, weight = rng.normal(size=80), rng.choice(["red", "green"], 80), rng.uniform(0.5, 2, 80)
    answer = 2 * size + 3 * (colour == "red") + 0.1 * rng.normal(size=80)
    table = pd.DataFrame(
        {"size": size, "answer": answer, "colour": colour, "weight": weight, "noise": rng.normal(size=80)}
    )
    table.to_parquet(tmp_path / "table.parquet")
    model = tmp_path / "model.psfit"
    options = ["--target", "answer", "--weight", "weight", "--columns", "size, colour", "--one-hot", "--standardize"]
    rest = ["--memory", "1KB", "--kappa", 2, "--device", "cpu", "--output", model]
    code, out, _ = call("fit", tmp_path / "table.parquet", *options, *rest)
    assert code == 0
    assert "data read" in out
    X = np.column_stack([size, colour == "green", colour == "red"]).astype(float)
    expected = psfit.SparseLinearRegression(2, standardize=True).fit(X, answer, weight)
    loaded = psfit.load(model)
    assert loaded.feature_names_in_.tolist() == ["size", "colour=green", "colour=red"]
    assert loaded.standardize
    assert loaded.objective_ == pytest.approx(expected.objective_, rel=1e-9)
    code, out, _ = call("predict", model, tmp_path / "table.parquet")
    np.testing.assert_allclose(np.array(out.split()[1:], dtype=float), expected.predict(X), rtol=1e-6)
