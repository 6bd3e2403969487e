"""Tables on the command line: profiles, choices of columns, scores, and models for other programs."""

import json
import subprocess
import sys

import awkward
import duckdb
import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from typer.main import get_command

import psfit
from psfit.cli import app
from psfit.cli.examples import EXAMPLES
from psfit.data import TableSource

RULES = {"categories": "columns", "dates": ["year", "month", "weekday", "trend"], "missing": "indicator"}


@pytest.fixture
def table(tmp_path):
    frame = awkward.truth(gaps=True)
    frame.to_parquet(tmp_path / "data.parquet")
    return frame


def test_the_profile_names_what_looks_wrong(call, tmp_path):
    frame = awkward.truth(gaps=True).assign(one=1.0, empty=None)
    frame["twin"], frame["leak"] = frame["age"], 3 * frame["price"] + 1
    frame["mixed"] = frame["age"].astype(str)
    frame.loc[5, "mixed"] = "unknown"
    frame.to_csv(tmp_path / "data.csv", index=False)
    code, out, _ = call("inspect", tmp_path / "data.csv", "--target", "price", "--json")
    columns = {row["name"]: row for row in json.loads(out)["columns"]}
    assert code == 0
    kinds = {"key": "text", "size": "number", "city": "category", "new": "boolean", "when": "date", "empty": "empty"}
    assert {name: columns[name]["kind"] for name in kinds} == kinds
    said = {"key": "id-like", "one": "constant", "twin": "the same as 'age'", "leak": "tells the target"}
    for name, warning in said.items():
        assert warning in columns[name]["warnings"][0]
    assert columns["mixed"]["warnings"] == ["1 cell(s) are no numbers"]
    assert columns["age"]["warnings"] == columns["size"]["warnings"] == []
    assert columns["size"]["missing"] == int(frame["size"].isna().sum())
    assert columns["size"]["mean"] == pytest.approx(frame["size"].mean())
    assert columns["city"]["levels"] == frame["city"].value_counts().to_dict()
    code, out, _ = call(
        "inspect", tmp_path / "data.csv", "--target", "price", "--columns", "s*,age", "--exclude", "size"
    )
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["column", "age"]


def test_columns_are_chosen_by_patterns_and_by_a_file_of_names(call, tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 5)), columns=["x1", "x2", "a, b", "z", "y"])
    frame.to_csv(tmp_path / "data.csv", index=False)
    (tmp_path / "names.txt").write_text("a, b\nz\n")
    for option, names in (("x?", ["x1", "x2"]), ('"a, b",z', ["a, b", "z"]), (f"@{tmp_path}/names.txt", ["a, b", "z"])):
        code, _, err = call(
            "fit", tmp_path / "data.csv", "--columns", option, "--quiet", "--kappa", 1, "--out", tmp_path / "m.psfit"
        )
        assert code == 0, err
        assert psfit.load(tmp_path / "m.psfit").feature_names_in_.tolist() == names
    code, _, err = call("fit", tmp_path / "data.csv", "--exclude", "q*")
    assert (code, "exclude='q*': there is no such column" in err) == (1, True)


def test_scores_are_those_of_scikit_learn(call, table, tmp_path):
    table = table.assign(dear=np.where(table["price"] > table["price"].median(), "yes", "no")).drop(columns="price")
    model = psfit.SparseLogisticRegression(3, standardize=True, certify=False)
    model.fit(TableSource(table, target="dear", ids=["key"], **RULES))
    psfit.save(model, tmp_path / "model.psfit")
    table.to_csv(tmp_path / "test.csv", index=False)
    code, out, _ = call("score", tmp_path / "model.psfit", tmp_path / "test.csv", "--json")
    found = json.loads(out)
    share = model.predict_proba(table)
    assert (code, found["target"], found["samples"]) == (0, "dear", len(table))
    assert found["scores"]["accuracy"] == accuracy_score(table["dear"], model.predict(table))
    assert found["scores"]["roc_auc"] == pytest.approx(roc_auc_score(table["dear"] == "yes", share[:, 1]))
    assert found["scores"]["log_loss"] == pytest.approx(log_loss(table["dear"], share))


def test_models_for_other_programs_predict_the_same(call, table, tmp_path):
    """The SQL runs in a database, the function in a Python that has nothing, on the table as it is."""
    model = psfit.SparseLinearRegression(30, standardize=True, certify=False, groups=None)
    model.fit(TableSource(table, target="price", ids=["key"], **RULES))
    assert {"city", "when"} <= {name.split("=")[0].split(":")[0] for name in model.feature_names_in_[model.support_]}
    psfit.save(model, tmp_path / "model.psfit")
    for ending in ("sql", "py", "joblib", "onnx", "csv"):
        code, _, err = call("export", tmp_path / "model.psfit", "--out", tmp_path / f"model.{ending}")
        assert code == 0, err
    expression = (tmp_path / "model.sql").read_text()
    found = duckdb.sql(f"SELECT {expression} FROM '{tmp_path}/data.parquet'").fetchall()
    np.testing.assert_allclose(np.ravel(found), model.predict(table), rtol=1e-9)
    rows = json.loads(table.to_json(orient="records", date_format="iso"))
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    program = "import json, model; print(json.dumps([model.predict(row) for row in json.load(open('rows.json'))]))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
    )
    np.testing.assert_allclose(json.loads(done.stdout), model.predict(table), rtol=1e-9)
    loaded = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_allclose(loaded.coef_, model.coef_)
    code, _, err = call("export", tmp_path / "model.psfit", "--out", tmp_path / "model.txt")
    assert (code, ".sql or .py" in err) == (1, True)


def find_command(name):
    """A command by its words; the program itself has no name here."""
    command = get_command(app)
    for word in () if name == "psfit" else name.replace("_", "-").split():
        command = command.commands[word]
    return command


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_help_ends_with_examples_that_use_known_options(name):
    command = find_command(name)
    for line in EXAMPLES[name]:
        assert line in command.epilog
        words = line.split("psfit ", 1)[1].split()
        called = get_command(app)
        while words and words[0] in getattr(called, "commands", {}):
            called = called.commands[words.pop(0)]
        known = {option for parameter in called.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known


def test_every_command_has_examples():
    top = get_command(app).commands
    names = [name.replace("-", "_") for name in top] + [f"federated {name}" for name in top["federated"].commands]
    assert sorted(EXAMPLES) == sorted(["psfit", *names])
