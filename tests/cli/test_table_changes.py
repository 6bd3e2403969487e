"""What the rules of a fit change in tables, ids of predictions, and what scores say about weights and offsets."""

import json

import numpy as np
import pandas as pd
import pytest

import psfit

RULES = ["--categories", "group", "--missing", "fill", "--new-levels", "zero", "--id", "key"]


@pytest.fixture
def frame():
    rng = np.random.default_rng(1)
    made = pd.DataFrame({
        "key": [f"k{k}" for k in range(80)],
        "size": np.round(rng.normal(size=80), 2),
        "city": rng.choice(["Nice", "Rome", "Ulm"], 80, p=[0.2, 0.6, 0.2]),
        "flag": rng.choice([True, False], 80),
        "weight": rng.uniform(1, 3, 80),
    })  # fmt: skip
    made["price"] = np.round(made["size"] + 2 * (made["city"] == "Ulm") + 0.1 * rng.normal(size=80), 3)
    return made


@pytest.fixture
def model(call, frame, tmp_path):
    """A model of both columns; five sizes and two cities were missing."""
    frame.loc[:4, "size"], frame.loc[10:11, "city"] = np.nan, None
    frame.to_csv(tmp_path / "data.csv", index=False)
    options = ["--target", "price", "--weight", "weight", "--kappa", 2, "--exclude", "flag", *RULES]
    code, out, err = call("fit", tmp_path / "data.csv", *options, "--out", tmp_path / "m.psfit")
    assert code == 0, err
    return tmp_path / "m.psfit", out


def test_a_fit_says_what_it_filled_and_with_what(model, frame):
    median = f"{frame['size'].median():.6g}"
    expected = f"filled 7 missing cells in 2 columns: city (2, with 'Rome'), size (5, with {median})"
    assert f"  {expected}\n" in model[1]
    assert "  weight     weight\n" in model[1]


def test_predictions_and_scores_say_what_was_changed(call, model, frame, tmp_path):
    new = frame.tail(20).copy()
    new["size"] = new["size"].astype(object)
    new.iloc[:3, new.columns.get_loc("size")] = None
    new.iloc[5:7, new.columns.get_loc("city")] = ["Graz", "Linz"]
    new.to_csv(tmp_path / "new.csv", index=False)
    code, out, err = call("predict", model[0], tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert code == 0, err
    said = "  filled 3 missing cells in 1 column: size (3, with"
    new_levels = (
        "  2 cells have levels that the fit did not see, and count as none of the levels: city (2: 'Graz', 'Linz')"
    )
    assert said in out
    assert new_levels in out
    # A table on the standard output has nothing else beside it.
    code, out, err = call("predict", model[0], tmp_path / "new.csv")
    assert out.splitlines()[0] == "key,prediction"
    assert len(out.splitlines()) == 21
    assert said in err
    code, out, _ = call("score", model[0], tmp_path / "new.csv", "--json")
    facts = json.loads(out)
    assert facts["filled"] == {"size": 3}
    assert facts["new"] == {"city": {"Graz": 1, "Linz": 1}}
    # Columns that are not changed are not mentioned.
    frame.iloc[30:50].to_csv(tmp_path / "whole.csv", index=False)
    assert "filled" not in call("score", model[0], tmp_path / "whole.csv")[1]


def test_scores_say_whether_weights_were_used(call, model, tmp_path):
    _, out, _ = call("score", model[0], tmp_path / "data.csv")
    assert "none, every sample counts the same; the fit had weights (--weight weight)" in out
    _, out, _ = call("score", model[0], tmp_path / "data.csv", "--weight", "weight")
    assert "weight, as in the fit" in out


def test_ids_are_neither_lost_nor_replaced(call, model, frame, tmp_path):
    frame.drop(columns="key").to_csv(tmp_path / "bare.csv", index=False)
    code, _, err = call("predict", model[0], tmp_path / "bare.csv", "--out", tmp_path / "p.csv")
    assert (code, "the id column 'key' of the fit is not there" in err, "--no-id" in err) == (1, True, True)
    assert not (tmp_path / "p.csv").exists()
    code, _, err = call("predict", model[0], tmp_path / "bare.csv", "--no-id", "--out", tmp_path / "p.csv")
    assert code == 0, err
    assert pd.read_csv(tmp_path / "p.csv").columns.tolist() == ["prediction"]
    assert call("predict", model[0], tmp_path / "data.csv", "--no-id", "--id", "city")[0] == 1
    frame.rename(columns={"city": "prediction"}).assign(city="Rome").to_csv(tmp_path / "odd.csv", index=False)
    code, _, err = call("predict", model[0], tmp_path / "odd.csv", "--id", "prediction")
    assert (code, "--id 'prediction': predictions are written in a column of this name" in err) == (1, True)


@pytest.mark.parametrize(("loss", "name"), [("squared", "prediction"), ("logistic", "probability_yes")])
def test_a_fit_refuses_ids_with_the_names_of_predictions(call, frame, tmp_path, loss, name):
    frame["answer"] = np.where(frame["size"] > 0, "yes", "no") if loss == "logistic" else frame["size"]
    frame.rename(columns={"key": name})[[name, "weight", "answer"]].to_csv(tmp_path / "data.csv", index=False)
    code, _, err = call("fit", tmp_path / "data.csv", "--loss", loss, "--id", name, "--kappa", 1)
    assert (code, f"--id '{name}': predictions are written in a column of this name" in err) == (1, True)


def test_coefficients_come_first_and_are_in_the_order_of_their_effects(call, frame, tmp_path):
    frame["wide"], frame["narrow"] = 1000 * frame["size"].to_numpy()[::-1], frame["weight"] / 1000
    frame["y"] = 0.01 * frame["wide"] + 100 * frame["narrow"]
    frame[["wide", "narrow", "y"]].to_csv(tmp_path / "data.csv", index=False)
    code, out, err = call("fit", tmp_path / "data.csv", "--kappa", 2, "--out", tmp_path / "m.psfit")
    assert code == 0, err
    model, lines = psfit.load(tmp_path / "m.psfit"), out.splitlines()
    rows = [line.split() for line in lines if line.split()[0] in ("wide", "narrow")]
    assert [row[0] for row in rows] == ["wide", "narrow"]
    spreads = frame[["wide", "narrow"]].std(ddof=0).to_numpy()
    np.testing.assert_allclose([float(row[2]) for row in rows], model.coef_ * spreads, rtol=1e-4)
    # Their sizes have the other order.
    assert abs(model.coef_[0]) < abs(model.coef_[1])
    order = [
        next(k for k, line in enumerate(lines) if line.startswith(f"  {word}")) for word in ("support", "objective")
    ]
    assert order[0] < lines.index(next(line for line in lines if "narrow  " in line)) < order[1]


def test_the_support_of_groups_is_one_of_groups_and_dates_are_explained(call, frame, tmp_path):
    frame["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(80), "D")
    frame["y"] = (frame["day"].dt.day_of_week == 0) * 5.0 + (frame["city"] == "Ulm") + 0.01 * np.arange(80) % 1
    frame[["day", "city", "y"]].to_csv(tmp_path / "data.csv", index=False)
    options = ["--categories", "group", "--dates", "weekday,trend", "--kappa", 2]
    code, out, err = call("fit", tmp_path / "data.csv", *options, "--out", tmp_path / "m.psfit")
    assert code == 0, err
    assert "support    2 groups of 10 features, at most 2 groups: day:weekday, city\n" in out
    assert "  weekday=1 is Monday, weekday=7 is Sunday\n" in out
    assert "1970-01-01" not in out
    assert "2 groups of 10 features" in call("inspect", tmp_path / "m.psfit")[1]
    assert "The model uses day:weekday and city." in psfit.report(psfit.load(tmp_path / "m.psfit"))
