"""Tables with an offset, categories, dates, gaps and ids at once, from the fit to other programs."""

import json

import duckdb
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from sklearn.metrics import mean_poisson_deviance

import psfit
from psfit.data import TableSource

RULES = {"categories": "group", "dates": ["month", "trend"], "missing": "indicator", "ids": ["policy"]}
OPTIONS = [
    "--categories", "group", "--dates", "month,trend", "--missing", "indicator", "--id", "policy",
    "--target", "claims", "--offset", "log_exposure",
]  # fmt: skip


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    size = 240
    frame = pd.DataFrame({
        "policy": np.arange(size),
        "age": rng.normal(size=size),
        "city": rng.choice(["Nice", "Rome", "Ulm"], size=size),
        "sold": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, size=size), unit="D"),
        "log_exposure": rng.uniform(-2, 1, size=size),
    })  # fmt: skip
    rate = np.exp(0.3 + 0.5 * frame.age + 0.9 * (frame.city == "Rome") + frame.log_exposure)
    frame["claims"] = rng.poisson(rate)
    frame.loc[rng.choice(size, 20, replace=False), "age"] = np.nan
    frame.to_parquet(tmp_path / "data.parquet", index=False)
    return frame


@pytest.fixture
def model(table):
    fitted = psfit.SparsePoissonRegression(3, standardize=True, certify=False)
    return fitted.fit(TableSource(table, target="claims", offset="log_exposure", **RULES))


def by_hand(model, table):
    """The same predictions, from the names of the features and what the fit has seen."""
    total = np.full(len(table), float(model.intercept_)) + table.log_exposure.to_numpy()
    for name, value in zip(model.feature_names_in_, model.coef_, strict=True):
        if name == "age":
            column = table.age.fillna(table.age.median())
        elif name == "age:missing":
            column = table.age.isna()
        elif name.startswith("city="):
            column = table.city == name.removeprefix("city=")
        elif name.startswith("sold:month="):
            column = table.sold.dt.month == int(name.removeprefix("sold:month="))
        else:
            column = (table.sold - pd.Timestamp("1970-01-01")).dt.days
        total = total + value * column.to_numpy(dtype=float)
    return np.exp(total)


def test_levels_are_groups_and_the_offset_is_found_by_name(table, model):
    names = model.feature_names_in_.tolist()
    assert "log_exposure" not in names
    used = {name.split("=")[0] for name in model.feature_names_in_[model.support_]}
    assert {"city", "age"} <= used
    assert len(used) == 3
    for group in used:
        members = [k for k, name in enumerate(names) if name.split("=")[0] == group]
        assert set(members) <= set(model.support_.tolist())
    shuffled = table.drop(columns=["claims", "policy"])[["sold", "log_exposure", "city", "age"]]
    np.testing.assert_allclose(model.predict(shuffled), by_hand(model, table), rtol=1e-9)
    np.testing.assert_allclose(model.predict(shuffled, offset="log_exposure"), by_hand(model, table), rtol=1e-9)
    other = model.predict(table.drop(columns="log_exposure"), offset=table.log_exposure)
    np.testing.assert_allclose(other, by_hand(model, table), rtol=1e-9)
    with pytest.raises(ValueError, match="offset='log_exposure': there is no such column"):
        model.predict(table.drop(columns="log_exposure"))
    without = psfit.SparsePoissonRegression(5, exclude="sold:month", groups=None, certify=False)
    without.fit(TableSource(table, target="claims", offset="log_exposure", **RULES))
    left = [name for name, value in zip(names, without.coef_, strict=True) if name.startswith("sold:month") and value]
    assert (left, without.coef_[names.index("city=Rome")] != 0) == ([], True)


def share_explained(table, predicted):
    """The share of the Poisson deviance that is explained, against the best constant besides the offset."""

    def loss(constant):
        return mean_poisson_deviance(table.claims, np.exp(constant + table.log_exposure))

    return 1 - mean_poisson_deviance(table.claims, predicted) / minimize_scalar(loss).fun


def test_commands_take_the_offset_of_a_table(call, table, model, tmp_path):
    data, file, out = tmp_path / "data.parquet", tmp_path / "model.psfit", tmp_path / "predictions.csv"
    chosen = ["--loss", "poisson", "--kappa", "3", "--standardize", "--no-certify", "--quiet"]
    code, _, err = call("fit", data, *chosen, *OPTIONS, "--out", file)
    assert code == 0, err
    np.testing.assert_allclose(psfit.load(file).coef_, model.coef_, rtol=1e-6, atol=1e-9)
    code, _, err = call("predict", file, data, "--out", out)
    assert code == 0, err
    written = pd.read_csv(out)
    assert written["policy"].tolist() == table["policy"].tolist()
    np.testing.assert_allclose(written["prediction"], by_hand(model, table), rtol=1e-5)
    code, found, err = call("score", file, data, "--json")
    assert code == 0, err
    scored = json.loads(found)
    assert scored["scores"]["D2"] == pytest.approx(share_explained(table, by_hand(model, table)), rel=1e-5)
    assert scored["offset"] == "log_exposure"
    table.drop(columns="log_exposure").to_parquet(tmp_path / "bare.parquet", index=False)
    for command in ("score", "predict"):
        code, _, err = call(command, file, tmp_path / "bare.parquet")
        assert (code, "--offset 'log_exposure': there is no such column" in err) == (1, True)
    code, _, err = call("near-optimal", file, data, "--within", "0.001", *OPTIONS)
    assert code == 0, err


def test_formulas_have_the_offset_and_scikit_learns_models_refuse_it(call, table, model, tmp_path):
    psfit.save(model, tmp_path / "model.psfit")
    for ending, done in (("sql", 0), ("py", 0), ("csv", 0), ("joblib", 1), ("onnx", 1)):
        code, _, err = call("export", tmp_path / "model.psfit", "--out", tmp_path / f"model.{ending}")
        assert (code, "fitted with an offset" in err) == (done, bool(done))
    expression = (tmp_path / "model.sql").read_text()
    found = duckdb.sql(f"SELECT {expression} FROM '{tmp_path}/data.parquet'").fetchall()
    np.testing.assert_allclose(np.ravel(found), by_hand(model, table), rtol=1e-9)
    space: dict = {}
    exec((tmp_path / "model.py").read_text(), space)
    rows = table.astype({"age": object}).where(table.notna(), None).to_dict("records")
    np.testing.assert_allclose([space["predict"](row) for row in rows], by_hand(model, table), rtol=1e-9)
    features = table[["age"]].fillna(0.0)
    plain = psfit.SparsePoissonRegression(1, certify=False).fit(features, table.claims, offset=table.log_exposure)
    psfit.save(plain, tmp_path / "plain.psfit")
    code, _, err = call("export", tmp_path / "plain.psfit", "--out", tmp_path / "plain.sql")
    assert (code, "an offset that has no column" in err) == (1, True)


def test_logarithms_of_columns_are_offsets(call, table, model, tmp_path):
    table = table.assign(exposure=np.exp(table.log_exposure)).drop(columns="log_exposure")
    data, file, text = tmp_path / "exposure.parquet", tmp_path / "model.psfit", tmp_path / "exposure.csv"
    table.to_parquet(data, index=False)
    table.to_csv(text, index=False)
    options = [*OPTIONS[:-1], "log(exposure)", "--loss", "poisson", "--kappa", "3", "--no-certify", "--quiet"]
    code, _, err = call("fit", data, *options, "--out", file)
    assert code == 0, err
    loaded, expected = psfit.load(file), by_hand(model, table.assign(log_exposure=np.log(table.exposure)))
    assert "exposure" not in loaded.feature_names_in_
    for given in (data, text, table):
        np.testing.assert_allclose(loaded.predict(given), expected, rtol=1e-6)
    for ending in ("sql", "py"):
        assert call("export", file, "--out", tmp_path / f"model.{ending}")[0] == 0
    found = duckdb.sql(f"SELECT {(tmp_path / 'model.sql').read_text()} FROM '{data}'").fetchall()
    np.testing.assert_allclose(np.ravel(found), expected, rtol=1e-6)
    space: dict = {}
    exec((tmp_path / "model.py").read_text(), space)
    rows = table.astype({"age": object}).where(table.notna(), None).to_dict("records")
    np.testing.assert_allclose([space["predict"](row) for row in rows], expected, rtol=1e-6)
    with pytest.raises(ValueError, match="the data have no rows; at least one is needed"):
        loaded.predict(table.head(0))
    table.loc[7, "exposure"] = 0.0
    said = r"column 'exposure' holds 0, first in row 7 \(counted from 0\); the logarithm of an offset needs positive"
    with pytest.raises(ValueError, match=said):
        loaded.predict(table)
    with pytest.raises(ValueError, match="means the logarithm of a column, but a column has this name"):
        loaded.predict(table.assign(**{"log(exposure)": 0.0}))
