"""Tables on the command line: profiles, choices of columns, scores, and models for other programs."""

import json
import subprocess
import sys

import awkward
import duckdb
import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
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
    assert columns["mixed"]["warnings"] == [
        "1 cell(s) are no numbers, first 'unknown'",
        "if 'unknown' means a missing value, use --csv missing=unknown (missing_marks=['unknown'])",
    ]
    assert columns["age"]["warnings"] == []
    # What a fit would refuse.
    needs = {"size": ["needs --missing"], "when": ["needs --dates"], "new": ["needs --missing"]}
    assert {name: columns[name]["warnings"] for name in needs} == needs
    assert columns["city"]["warnings"][-2:] == ["needs --categories", "needs --missing"]
    assert columns["key"]["warnings"] == ["id-like", "needs --id or --exclude"]
    assert columns["size"]["missing"] == int(frame["size"].isna().sum())
    assert columns["size"]["mean"] == pytest.approx(frame["size"].mean())
    assert columns["city"]["levels"] == frame["city"].value_counts().to_dict()
    code, out, _ = call(
        "inspect", tmp_path / "data.csv", "--target", "price", "--columns", "s*,age", "--exclude", "size"
    )
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["column", "age"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_of_numbers_with_a_few_texts_is_no_category(ending, call, tmp_path):
    """The message has the count and the first place; repeated texts may be marks, others are mistakes."""
    cells = [str(k % 37) for k in range(100)]
    cells[7] = cells[50] = cells[80] = "n.b."
    path = tmp_path / f"data.{ending}"

    def fit(cells, *options):
        frame = pd.DataFrame({"size": cells, "y": np.arange(100.0)})
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        return call("fit", path, "--categories", "group", "--kappa", 1, "--no-certify", "-q", *options)

    code, _, err = fit(cells)
    assert code == 1
    place = "row 7 (line 9)" if ending == "csv" else "row 7"
    assert (
        "column 'size' is no category: it holds 38 different texts in 100 cells, and 3 of its 100 cells are no " in err
    )
    assert f"numbers, first 'n.b.' in {place}; if 'n.b.' means a missing value, " in err
    remedy = "use --csv missing=n.b. (missing_marks=['n.b.'])" if ending == "csv" else "write it as one"
    assert f"{remedy}, else correct them, or use --exclude size" in err
    if ending == "csv":
        assert fit(cells, "--csv", "missing=n.b.", "--missing", "fill")[0] == 0
    for row, mistake in ((7, "21.7 kg"), (50, "9 kg"), (80, "1 mm")):
        cells[row] = mistake
    code, _, err = fit(cells)
    assert (code, "missing value" in err) == (1, False)
    assert f"first '21.7 kg' in {place}; correct them if they are mistakes, or use --exclude size" in err


def test_a_category_that_is_perhaps_numbers_is_warned_of_also_if_quiet(call, tmp_path):
    def fit(cells):
        pd.DataFrame({"size": cells, "y": np.arange(120.0)}).to_csv(tmp_path / "data.csv", index=False)
        return call("fit", tmp_path / "data.csv", "--categories", "group", "--kappa", 1, "--no-certify", "--quiet")

    code, _, err = fit(["-" if k % 3 == 0 else k % 7 for k in range(120)])
    assert (code, err.count("\n")) == (0, 1)
    said = "column 'size' is used as a category of 8 levels: 40 of its 120 cells are no numbers, such as '-'; if '-' "
    assert err.startswith("psfit: warning: ")
    assert f"{said}means a missing value, use --csv missing=- (missing_marks=['-'])" in err
    # Codes of a few levels are no mistake.
    assert fit(["X" if k == 9 else k % 5 for k in range(120)])[::2] == (0, "")


def test_levels_that_are_not_shown_are_counted(call, tmp_path):
    pd.DataFrame({"x": [f"l{k % 60}" for k in range(600)], "y": range(600)}).to_csv(tmp_path / "a.csv", index=False)
    assert "l0 (10), l1 (10), l10 (10), l11 (10) and 56 more" in call("inspect", tmp_path / "a.csv")[1]


def test_rare_levels_are_counted(call, tmp_path):
    cells = ["a"] * 50 + ["b"] * 56 + ["c"] * 4 + ["d"]
    pd.DataFrame({"x": cells, "y": range(111)}).to_csv(tmp_path / "data.csv", index=False)
    assert (
        call("inspect", tmp_path / "data.csv")[1]
        .splitlines()[2]
        .endswith("  2 of 4 levels in fewer than 5 rows, needs --categories")
    )


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_profile_finds_what_tells_a_target_of_text(ending, call, tmp_path):
    rng = np.random.default_rng(0)
    left = rng.random(60) < 0.4
    table = pd.DataFrame({
        "code": np.where(left, 2.0, 1.0),
        "words": np.where(left, "gone", "here"),
        "reason": np.where(left, rng.choice(["price", "moved"], 60), None),
        "state": np.where(left, rng.choice(["sold", "closed", "moved"], 60), rng.choice(["open", "new"], 60)),
        "colour": rng.choice(["red", "blue"], 60),
        "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 60), unit="D"),
        "income": 2e6 * rng.random(60),
        "left": np.where(left, "yes", "no"),
    })  # fmt: skip
    path = tmp_path / f"data.{ending}"
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path, index=False)
    columns = {row["name"]: row for row in json.loads(call("inspect", path, "--json")[1])["columns"]}
    # A target of text counts as 1 where it is the same as in the first row.
    sign = 1 if left[0] else -1
    assert [columns[name]["warnings"][0] for name in ("code", "words", "reason")] == [
        f"tells the target (correlation {sign:.4f})",
        "tells the target (correlation 1.0000)",
        "its missing values tell the target",
    ]
    assert columns["state"]["warnings"] == ["tells the target (each of its texts has one)", "needs --categories"]
    rest = {name: columns[name]["warnings"] for name in ("colour", "when", "left")}
    assert rest == {"colour": ["needs --categories"], "when": ["needs --dates"], "left": []}
    assert columns["when"]["last"] == str(table["when"].max().date())
    shown = call("inspect", path)[1]
    assert f"{table['income'].max():,.0f}, mean" in shown
    # In a few rows this is chance.
    table.head(5).to_csv(tmp_path / "few.csv", index=False)
    assert "tell" not in call("inspect", tmp_path / "few.csv")[1]


def test_columns_of_any_type_are_profiled(call, tmp_path):
    """A nested column is no date, and no target decides anything if it has no texts or many values."""
    rows = pa.table({
        "state": ["open", "new", "sold"] * 20,
        "parts": [[k % 3] for k in range(60)],
        "sure": [k % 3 == 2 for k in range(60)],
        "many": [float(k) for k in range(60)],
    })  # fmt: skip
    pq.write_table(rows, tmp_path / "data.parquet")
    tells = "tells the target (each of its texts has one)"
    for target, said in (("sure", [tells]), ("many", []), ("parts", [])):
        code, out, _ = call("inspect", tmp_path / "data.parquet", "--target", target, "--json")
        columns = {row["name"]: row for row in json.loads(out)["columns"]}
        assert (code, columns["state"]["warnings"]) == (0, [*said, "needs --categories"])
        assert columns["parts"]["warnings"] == ["nested (list<element: int64>): no fit can use it"]


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
    assert (code, "--exclude 'q*': there is no such column" in err) == (1, True)


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
    # Dates of any form that files may have.
    texts = (
        table["when"]
        .dt.strftime("%d.%m.%Y")
        .where(np.arange(len(table)) % 2 > 0, table["when"].dt.strftime("%Y/%m/%d"))
    )
    (tmp_path / "rows.json").write_text(table.assign(when=texts).to_json(orient="records"))
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


def test_every_output_names_the_target(call, tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 4)), columns=["a", "b", "price", "c"])
    frame.to_csv(tmp_path / "data.csv", index=False)
    data, model = tmp_path / "data.csv", tmp_path / "model.psfit"
    for command in (
        ["inspect", data, "--target", "price"],
        ["fit", data, "--target", "price", "--kappa", 1, "--out", model],
        ["path", data, "--target", "price"],
        ["path", data, "--target", "price", "--criterion", "bic"],
        ["score", model, data],
        ["predict", model, data, "--out", tmp_path / "new.csv"],
        ["near-optimal", model, data],
        ["export", model, "--out", tmp_path / "model.sql"],
        ["inspect", model],
    ):
        code, out, err = call(*command)
        assert (code, "price" in out) == (0, True), (command, err)
    assert json.loads(call("path", data, "--target", "price", "--json")[1])["target"] == "price"
