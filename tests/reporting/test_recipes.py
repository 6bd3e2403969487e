"""The Python code at the end of a report makes the same model: with weights, offsets, ids, rules and constraints."""

import re
import warnings
from html import unescape

import numpy as np
import pandas as pd
import pytest

import psfit


@pytest.fixture
def table(tmp_path):
    """Text with a mark of its own for missing cells, and a decimal comma."""
    rng = np.random.default_rng(4)
    made = pd.DataFrame({
        "key": [f"k{k}" for k in range(150)],
        "size": rng.normal(size=150),
        "rooms": rng.integers(1, 6, 150),
        "city": rng.choice(["Rome", "Nice", "Bonn"], 150),
        "note": "text",
        "time": rng.uniform(0.5, 2, 150),
        "weight": rng.choice([0.2, 1.0, 5.0], 150),
    })  # fmt: skip
    rate = np.exp(0.4 * made["size"] + 0.5 * (made["city"] == "Rome")) * made["time"]
    # The heavy samples have another relation, so that weights matter.
    made["count"] = rng.poisson(np.where(made["weight"] > 2, rate * made["rooms"] / 3, rate))
    made.loc[::9, "size"] = np.nan
    made.to_csv(tmp_path / "data.csv", sep=";", decimal=",", na_rep="k.A.", index=False)
    return made


def recipe_of(page):
    """The last piece of code of a page."""
    return unescape(re.findall(r"<pre><code>(.*?)</code></pre>", page, re.DOTALL)[-1])


def run(code, **names):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", psfit.ReadingWarning)
        exec(code, names)
    return names


@pytest.mark.parametrize(
    "options",
    [
        ["--kappa", "2", "--weight", "weight", "--offset", "log(time)"],
        ["--kappa", "2", "--weight", "weight", "--upper", "size=0.2", "--include", "rooms", "--gamma", "0.5"],
        ["--kappa", "1", "--columns", "size,rooms,city", "--groups", "none", "--exact", "--gap-tol", "0.01"],
    ],
)
def test_the_code_of_a_report_by_the_command_reads_the_same_files(call, table, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    more = ["--target", "count", "--loss", "poisson", "--csv", "missing=k.A.", "--csv", "decimal=,"]
    more += ["--categories", "group", "--missing", "indicator", "--new-levels", "zero"]
    more += [] if "--columns" in options else ["--id", "key", "--exclude", "note"]
    code, _, err = call("fit", "data.csv", *options, *more, "--out", "m.psfit", "--report", "page.html", "-q")
    assert code == 0, err
    model, again = psfit.load("m.psfit"), run(recipe_of((tmp_path / "page.html").read_text()))["model"]
    assert again.feature_names_in_.tolist() == model.feature_names_in_.tolist()
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-9)
    assert len(model.support_) > 0
    assert ("weights of the samples" in (tmp_path / "page.html").read_text()) == ("--weight" in options)


def test_the_code_for_a_choice_of_kappa_and_for_a_path(call, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shared = ["--target", "count", "--csv", "missing=k.A.", "--csv", "decimal=,", "--categories", "group"]
    shared += ["--missing", "fill", "--exclude", "key,note,time", "--weight", "weight", "--kappas", "1:3", "-q"]
    code, _, err = call("path", "data.csv", *shared, "--cv", 3, "--out", "m.psfit", "--report", "page.html")
    assert code == 0, err
    model, again = psfit.load("m.psfit"), run(recipe_of((tmp_path / "page.html").read_text()))["model"]
    assert (again.kappa_, again.gamma_) == (model.kappa_, model.gamma_)
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-9)
    code, _, err = call("path", "data.csv", *shared, "--out", "path.csv", "--report", "page.html")
    assert code == 0, err
    path = run(recipe_of((tmp_path / "page.html").read_text()))["path"]
    np.testing.assert_allclose(path.objectives[0], pd.read_csv("path.csv")["objective"], rtol=1e-9)


def test_the_code_for_a_table_has_weights_and_offsets(table):
    rules = {"categories": "columns", "missing": "fill", "exclude": ["note"], "ids": ["key"]}
    source = psfit.TableSource(table, target="count", sample_weight="weight", offset="log(time)", **rules)
    model = psfit.SparsePoissonRegression(2, certify=False).fit(source)
    again = run(recipe_of(psfit.report(model)), table=table)["model"]
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-9)
    # Columns of numbers alone, and weights as an array.
    numbers = table[["rooms", "time", "weight", "count"]]
    named = psfit.TableSource(numbers, target="count", sample_weight="weight")
    given = psfit.TableSource(table.drop(columns=["weight", "count"]), **rules)
    weight = table["weight"].to_numpy()
    for source, arrays in ((named, {}), (given, {"y": table["count"], "sample_weight": weight})):
        model = psfit.SparseLinearRegression(1, certify=False).fit(source, **arrays)
        again = run(recipe_of(psfit.report(model)), table=source.table, **arrays)["model"]
        np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-9)
    X = table[["rooms", "time"]]
    model = psfit.SparsePoissonRegression(1, certify=False).fit(X, table["count"], weight, offset=weight)
    code = recipe_of(psfit.report(model))
    again = run(code, X=X, y=table["count"], sample_weight=weight, offset=weight)["model"]
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-9)


def test_spreads_are_those_of_the_fit_also_beside_other_samples(table):
    X, y = table[["rooms", "time"]], table["count"]
    model = psfit.SparseLinearRegression(2, certify=False).fit(X, y)
    np.testing.assert_allclose(model.result_.spreads, X.std(ddof=0), rtol=1e-9)
    other = X * [10, 1]
    page = psfit.report(model, None, other, y)
    effect = f"{model.coef_[0] * X['rooms'].std(ddof=0):.4g}".lstrip("-")
    assert "Standard deviations are those in the samples of the fit" in page
    assert "The model was fitted to other samples than these" in page
    assert effect in page
    # Where the fit did not measure them, the page says whose they are.
    plain = psfit.SparseLinearRegression(2, fit_intercept=False, certify=False).fit(X, y)
    assert plain.result_.spreads is None
    assert "Standard deviations are those in the samples of the section Data" in psfit.report(plain, None, other, y)


def test_spreads_of_a_weighted_fit_count_the_weights_in_its_report_too(table):
    X, weight = table[["rooms", "time"]], table["weight"].to_numpy()
    model = psfit.SparseLinearRegression(2, certify=False).fit(X, table["count"], weight)
    mean = np.average(X, axis=0, weights=weight)
    spreads = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    effects = [f"{abs(effect):.4g}" for effect in model.coef_ * spreads]
    plain = [f"{abs(effect):.4g}" for effect in model.coef_ * X.std(ddof=0)]
    page = psfit.report(model, None, X, table["count"], sample_weight=weight)
    for mine, other in zip(effects, plain, strict=True):
        assert mine != other
        assert mine in page
        assert other not in page
