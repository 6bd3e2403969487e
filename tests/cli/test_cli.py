"""The command line in one process: what it reads and writes, and its errors."""

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from console import psfit as psfit_script
from sklearn.datasets import load_iris

import psfit


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
    options = ["--kappa", 3, "--gamma", 10, "--device", "cpu", "--out", model]
    code, out, _ = call("fit", tmp_path / "data.npz", *options)
    assert code == 0
    assert "proved" in out
    assert str(model) in out
    loaded = psfit.load(model)
    np.testing.assert_array_equal(loaded.coef_, expected.coef_)
    assert loaded.gap_ == expected.gap_
    code, _, _ = call("predict", model, tmp_path / "data.npz", "--out", predictions)
    assert code == 0
    title, *values = predictions.read_text().split()
    assert title == "prediction"
    np.testing.assert_allclose(np.array(values, dtype=float), expected.predict(X), rtol=1e-12)


def test_columns_of_a_csv_are_found_by_name(call, numbers, tmp_path):
    X, y = numbers
    model = tmp_path / "model.psfit"
    options = ["--kappa", 3, "--target", "answer", "--device", "cpu", "--out", model]
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
    options = ["--loss", "logistic", "--kappa", 6, "--device", "cpu", "--nodes", 2, "--out", model]
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
        (["data.csv", "--target", "nobody"], "--target 'nobody': there is no such column"),
        (["data.npz", "--kappa", "many"], "--kappa"),
        (["data.npz", "--kappa", "9"], "--kappa 9 must be between 1 and 6"),
        (["data.npz", "--gamma", "-1"], "--gamma -1.0"),
        (["data.npz", "--backend", "smoke"], "--backend 'smoke'"),
        (["data.npz", "--json", "--quiet"], "--json and --quiet exclude each other"),
        (["data.npz", "--out", "nowhere/model.psfit"], "--out"),
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
    rest = ["--groups", "none", "--memory", "1KB", "--kappa", 2, "--device", "cpu", "--out", model]
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


def test_json_for_programs(call, numbers, tmp_path):
    code, out, err = call("fit", tmp_path / "data.npz", "--kappa", 3, "--device", "cpu", "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    expected = psfit.SparseLinearRegression(3).fit(*numbers)
    assert facts["support"] == expected.support_.tolist()
    assert facts["objective"] == pytest.approx(expected.objective_, rel=1e-12)
    np.testing.assert_allclose(np.ravel(facts["coefficients"]), expected.coef_[expected.support_])
    code, out, _ = call("fit", tmp_path / "data.npz", "--no-certify", "--device", "cpu", "--json")
    assert json.loads(out)["lower_bound"] is None


def test_quiet_says_nothing(call, numbers, tmp_path):
    model = tmp_path / "model.psfit"
    assert call("fit", tmp_path / "data.npz", "--quiet", "--device", "cpu", "--out", model) == (0, "", "")
    assert psfit.load(model).n_features_in_ == 6


def test_settings_from_a_file(call, numbers, tmp_path):
    config = tmp_path / "fit.toml"
    config.write_text('kappa = "2"\ngamma = 5.0\ndevice = "cpu"\nloss = "huber"\nmax-iter = 40\njson = true\n')
    code, out, _ = call("fit", tmp_path / "data.npz", "--config", config)
    assert code == 0
    facts = json.loads(out)
    assert (facts["kappa"], facts["gamma"], facts["loss"]) == ([2], 5.0, "huber")
    # The command line has precedence over the file.
    assert json.loads(call("fit", tmp_path / "data.npz", "--config", config, "--kappa", 1)[1])["kappa"] == [1]
    config.write_text("kapa = 3")
    code, _, err = call("fit", tmp_path / "data.npz", "--config", config)
    assert code == 2
    assert "kapa" in err
    config.write_text("kappa = = 3")
    assert call("fit", tmp_path / "data.npz", "--config", config)[0] == 2


class TestPath:
    def test_a_table_and_a_picture(self, call, numbers, tmp_path):
        table, picture = tmp_path / "path.csv", tmp_path / "path.png"
        options = ["--kappas", "1:3,5", "--gammas", "1,10", "--device", "cpu", "--out", table, "--picture", picture]
        code, out, _ = call("path", tmp_path / "data.csv", "--target", "answer", *options)
        assert code == 0
        assert "4 limits, 2 gamma(s)" in out
        rows = pd.read_csv(table)
        assert rows["kappa"].tolist() == [1, 2, 3, 5] * 2
        assert rows["features"][2] == "f0; f1; f2"
        assert picture.stat().st_size > 10_000

    def test_cross_validation(self, call, numbers, tmp_path):
        model, picture = tmp_path / "model.psfit", tmp_path / "choice.png"
        options = ["--cv", 4, "--one-standard-error", "--scoring", "r2", "--device", "cpu"]
        code, out, _ = call("path", tmp_path / "data.npz", *options, "--out", model, "--picture", picture)
        assert code == 0
        assert "<- chosen" in out
        expected = psfit.SparseLinearRegressionCV(cv=4, scoring="r2", one_standard_error=True).fit(*numbers)
        chosen = psfit.load(model)
        assert chosen.kappa_ == expected.kappa_
        np.testing.assert_allclose(chosen.coef_, expected.coef_)
        np.testing.assert_allclose(chosen.selection_.scores, expected.selection_.scores)
        assert picture.stat().st_size > 10_000

    def test_a_criterion_in_json(self, call, numbers, tmp_path):
        code, out, _ = call("path", tmp_path / "data.npz", "--criterion", "bic", "--device", "cpu", "--json")
        assert code == 0
        facts = json.loads(out)
        assert facts["label"] == "BIC"
        best = min(facts["table"], key=lambda row: row["value"])
        assert best["chosen"]
        assert facts["chosen"]["kappa"] == [best["kappa"]] == [3]

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--kappas", "1:x"], "--kappas: '1:x'"),
            (["--kappas", "1:2:3:4"], "--kappas"),
            (["--kappas", "1:99"], "between 1 and 6"),
            (["--gammas", "1;2"], "--gammas"),
            (["--scoring", "r2"], "need --cv"),
            (["--cv", "3", "--criterion", "aic"], "exclude each other"),
            (["--cv", "3", "--out", "path.csv"], "ends with .psfit"),
            (["--out", "model.psfit"], "ends with .csv"),
            (["--cv", "3", "--scoring", "nonsense"], "nonsense"),
            (["--picture", "nowhere/x.png"], "--picture: there is no folder"),
        ],
    )
    def test_mistakes(self, call, numbers, tmp_path, arguments, said):
        code, _, err = call("path", tmp_path / "data.npz", "--device", "cpu", *arguments)
        assert code == 1
        assert len(err.strip().splitlines()) == 1
        assert said in err


class TestInspect:
    def test_a_model(self, call, numbers, tmp_path):
        X, y = load_iris(return_X_y=True, as_frame=True)
        model = psfit.SparseLogisticRegression(2).fit(X, np.where(y > 1, "virginica", "other"))
        psfit.save(model, tmp_path / "model.psfit")
        code, out, _ = call("inspect", tmp_path / "model.psfit")
        assert code == 0
        assert "a SparseLogisticRegression" in out
        assert "other, virginica" in out
        for j in model.support_:
            assert X.columns[j] in out
        facts = json.loads(call("inspect", tmp_path / "model.psfit", "--json")[1])
        assert facts["kind"] == "model"
        assert facts["gap"] == model.gap_

    def test_samples(self, call, numbers, tmp_path):
        X, y = numbers
        code, out, _ = call("inspect", tmp_path / "data.csv", "--target", "answer")
        assert code == 0
        assert "60 rows x 7 columns, target 'answer'" in out
        facts = json.loads(call("inspect", tmp_path / "data.npz", "--json")[1])
        np.testing.assert_allclose([row["mean"] for row in facts["columns"]], X.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose([row["spread"] for row in facts["columns"]], X.std(axis=0))
        assert facts["target"]["most"] == y.max()
        np.savez(tmp_path / "classes.npz", X=np.column_stack([X, np.ones(60)]), y=np.arange(60) % 3)
        code, out, _ = call("inspect", tmp_path / "classes.npz")
        assert "0 (20), 1 (20), 2 (20)" in out
        assert re.search(r"constant +6", out)

    def test_a_checkpoint(self, call, numbers, tmp_path):
        options = ["--kappa", 3, "--device", "cpu", "--checkpoint", tmp_path / "kept", "--checkpoint-every", 3]
        call("fit", tmp_path / "data.npz", *options)
        # The folder of a tree has the same manifest, and the number of explored nodes in its name.
        kept = next((tmp_path / "kept").glob("iteration-*"))
        shutil.copytree(kept, tmp_path / "kept" / "tree-0" / "iteration-00000012")
        code, out, _ = call("inspect", tmp_path / "kept")
        assert code == 0
        assert "a checkpoint after iteration" in out
        assert re.search(r"tree +12 nodes explored", out)
        assert json.loads(call("inspect", tmp_path / "kept", "--json")[1])["run"]["kappa"] == 3

    def test_mistakes(self, call, tmp_path):
        (tmp_path / "broken.psfit").write_text("x")
        for name, said in (("nothing", "there is no file"), ("broken.psfit", "is not a model file")):
            code, _, err = call("inspect", tmp_path / name)
            assert code == 1
            assert said in err


def test_probabilities_and_several_targets(call, tmp_path):
    X, y = load_iris(return_X_y=True)
    psfit.save(psfit.SparseLogisticRegression(4).fit(X, y), tmp_path / "three.psfit")
    np.save(tmp_path / "X.npy", X)
    code, out, _ = call("predict", tmp_path / "three.psfit", tmp_path / "X.npy", "--proba")
    assert code == 0
    frame = pd.read_csv(io.StringIO(out))
    assert frame.columns.tolist() == ["prediction", "probability_0", "probability_1", "probability_2"]
    np.testing.assert_allclose(frame.iloc[:, 1:].sum(axis=1), 1)
    pair = psfit.SparseLinearRegression(2).fit(X, X[:, :2] + 1)
    psfit.save(pair, tmp_path / "pair.psfit")
    frame = pd.read_csv(io.StringIO(call("predict", tmp_path / "pair.psfit", tmp_path / "X.npy")[1]))
    np.testing.assert_allclose(frame[["prediction_0", "prediction_1"]], pair.predict(X))
    code, _, err = call("predict", tmp_path / "pair.psfit", tmp_path / "X.npy", "--proba")
    assert (code, "--proba" in err) == (1, True)


SCRIPT = Path(sys.executable).parent / "psfit"


def test_the_console_script_and_its_help(call, tmp_path):
    commands = ("fit", "path", "predict", "inspect", "report", "demo", "bench")
    done = subprocess.run([SCRIPT, "--help"], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert all(f" {command} " in done.stdout for command in commands)
    for command in commands:
        code, out, _ = call(command, "--help")
        assert (code, f"psfit {command}" in out) == (0, True)
    done = psfit_script("fit", "--kapa", "3", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    done = psfit_script("--version", cwd=tmp_path)
    assert done.stdout == f"psfit {psfit.__version__}\n"


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    X = np.zeros((200_000, 1))
    psfit.save(psfit.SparseLinearRegression(1).fit(np.eye(3)[:, :1], [1.0, 0.0, 0.0]), tmp_path / "model.psfit")
    np.save(tmp_path / "X.npy", X)
    line = f"{SCRIPT} predict {tmp_path / 'model.psfit'} {tmp_path / 'X.npy'} | head -n 2"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == ""
    assert done.stdout.startswith("prediction\n")
