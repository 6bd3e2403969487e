"""Thirty awkward files go through inspect, fit, predict and score, against a pipeline of scikit-learn by hand."""

import json

import awkward
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

import psfit
from psfit.data import FileSource, TableSource

GAMMA = 10.0
CASES = awkward.good_cases()


def design(case, frame, known):
    """The features of a frame by hand, with medians and modes of the frame `known`."""
    columns = {}
    for name in case.features:
        own = {"size, m2": "size"}.get(name, name)
        values, seen = frame[own], known[own].dropna()
        if own in ("size", "age"):
            columns[name] = values.astype(float).fillna(seen.astype(float).median())
        elif own == "new":
            columns[name] = values.map(lambda one, seen=seen: seen.mode()[0] if pd.isna(one) else one).astype(float)
        else:
            filled = values.fillna(seen.mode()[0])
            columns |= {f"{name}={level}": (filled == level).astype(float) for level in sorted(seen.unique())}
        if case.indicator and known[own].isna().any():
            columns[f"{name}:missing"] = values.isna().astype(float)
    for name in case.dates:
        when = frame[name].dt
        columns |= {f"{name}:year": when.year}
        columns |= {f"{name}:month={k}": when.month == k for k in range(1, 13)}
        columns |= {f"{name}:weekday={k}": when.day_of_week + 1 == k for k in range(1, 8)}
        columns |= {f"{name}:trend": (frame[name] - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)}
    return pd.DataFrame(columns).astype(float)


def expected(case):
    """The features by hand, and the predictions of a ridge: a limit that allows all features is no limit."""
    frame = awkward.truth(case.gaps)
    features = design(case, frame, frame)
    ridge = Ridge(alpha=1 / (2 * GAMMA), solver="svd").fit(features, frame[awkward.TARGET])
    return features, ridge.predict(features), frame[awkward.TARGET]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_file_gives_what_a_pipeline_by_hand_gives(case, call, tmp_path):
    path, model = tmp_path / case.name, tmp_path / "model.psfit"
    path.write_bytes(case.content)
    features, predicted, y = expected(case)
    code, out, _ = call("inspect", path, "--json")
    facts = json.loads(out)
    assert (code, facts["samples"], facts["target"]) == (0, awkward.ROWS, awkward.TARGET)
    quick = [
        "--gamma",
        GAMMA,
        "--kappa",
        features.shape[1],
        "--no-certify",
        "--groups",
        "none",
        "--effort",
        "low",
        "--quiet",
    ]
    code, _, err = call("fit", path, *case.options, *quick, "--out", model)
    assert code == 0, err
    fitted = psfit.load(model)
    assert fitted.feature_names_in_.tolist() == features.columns.tolist()
    text = [pair for pair in zip(case.options, case.options[1:], strict=False) if pair[0] == "--csv"]
    options = [word for pair in text for word in pair]
    code, _, err = call("predict", model, path, *options, "--out", tmp_path / "new.csv")
    assert code == 0, err
    table = pd.read_csv(tmp_path / "new.csv")
    np.testing.assert_allclose(table["prediction"], predicted, rtol=1e-6)
    assert ("key" in table) == case.ids
    code, out, _ = call("score", model, path, *options, "--json")
    assert json.loads(out)["scores"]["R2"] == pytest.approx(r2_score(y, predicted), rel=1e-8)


@pytest.mark.parametrize(("name", "content", "options", "said"), awkward.BAD, ids=lambda value: str(value)[:20])
def test_what_cannot_be_used_is_refused_but_inspected(name, content, options, said, call, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    code, out, err = call("fit", path, *options, "--kappa", 1, "--out", tmp_path / "model.psfit")
    assert (code, out) == (1, "")
    assert name in err or "has no value at all" in err
    for part in said:
        assert part in err
    assert not (tmp_path / "model.psfit").exists()
    code, out, _ = call("inspect", path)
    unreadable = name in ("unclear.csv", "header.csv", "cut.csv.gz")
    assert (code, "cannot be read" in out) == (unreadable, unreadable)


RULES = {"categories": "columns", "dates": ["month", "trend"], "missing": "indicator", "ids": ["key"]}


@pytest.mark.filterwarnings("ignore::psfit.ReadingWarning")
def test_files_and_tables_of_all_kinds_are_read_alike(tmp_path):
    """A model of a file predicts DataFrames, and a model of a DataFrame predicts files."""
    frame = awkward.truth(gaps=True)
    path = tmp_path / "german.csv"
    path.write_text(awkward.text(frame, ";", ",", ".", "%d.%m.%Y"), encoding="cp1252")
    frame.to_parquet(tmp_path / "table.parquet")
    forms = {
        "csv": path,
        "parquet": tmp_path / "table.parquet",
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "arrow": pa.Table.from_pandas(frame),
        "other order": frame[frame.columns[::-1]].assign(more="text"),
    }
    sources = [FileSource(path, **RULES), TableSource(frame, target=awkward.TARGET, **RULES)]
    models = [psfit.SparseLinearRegression(6, standardize=True, certify=False).fit(source) for source in sources]
    models.append(psfit.SparseLinearRegression(6, standardize=True, certify=False))
    models[2].fit(TableSource(forms["polars"].drop(awkward.TARGET), **RULES), forms["polars"][awkward.TARGET])
    first = models[0].predict(frame)
    assert np.ptp(first) > 1
    for model in models:
        assert model.feature_names_in_.tolist() == models[0].feature_names_in_.tolist()
        for name, form in forms.items():
            np.testing.assert_allclose(model.predict(form), first, rtol=1e-9, err_msg=name)
    encoded = pd.DataFrame(0.0, index=range(3), columns=models[0].feature_names_in_)
    np.testing.assert_allclose(models[0].predict(encoded), models[0].intercept_)


@pytest.mark.filterwarnings("ignore::psfit.ReadingWarning")
def test_a_file_or_table_that_has_its_target_is_scored_without_y(tmp_path):
    frame = awkward.truth(gaps=True)
    path = tmp_path / "new.csv"
    frame.iloc[::-1].to_csv(path, index=False)
    source = TableSource(frame, target=awkward.TARGET, **RULES)
    model = psfit.SparseLinearRegression(6, standardize=True, certify=False).fit(source)
    expected = r2_score(frame[awkward.TARGET], model.predict(frame))
    for samples in (frame, source, path, FileSource(path, target=awkward.TARGET)):
        assert model.score(samples) == pytest.approx(expected)
    weight = np.arange(len(frame), dtype=float)
    weighted = r2_score(frame[awkward.TARGET], model.predict(frame), sample_weight=weight)
    assert model.score(frame, sample_weight=weight) == pytest.approx(weighted)
    with pytest.raises(ValueError, match="y: the samples have no target"):
        model.score(pd.DataFrame(0.0, index=range(3), columns=model.feature_names_in_))
    with pytest.raises(ValueError, match=f"target={awkward.TARGET!r}: there is no such column"):
        model.score(frame.drop(columns=awkward.TARGET))
    labels = frame.assign(price=np.where(frame[awkward.TARGET] > frame[awkward.TARGET].median(), "high", "low"))
    classes = psfit.SparseLogisticRegression(6, certify=False).fit(TableSource(labels, target="price", **RULES))
    assert classes.score(labels) == pytest.approx((classes.predict(labels) == labels["price"]).mean())


@pytest.mark.parametrize(
    ("form", "days", "said"),
    [
        ("%d/%m/%Y", range(28), "--csv dates=%d/%m/%Y (date_format='%d/%m/%Y')"),
        ("%m/%d/%Y", range(28), "--csv dates=%m/%d/%Y (date_format='%m/%d/%Y')"),
        ("%d/%m/%Y", range(5), "--csv dates=%d/%m/%Y or --csv dates=%m/%d/%Y (date_format='%d/%m/%Y' or '%m/%d/%Y')"),
        ("%d-%m-%Y", range(28), "--csv dates=%d-%m-%Y (date_format='%d-%m-%Y')"),
        ("%m/%d/%y", range(28), "--csv dates=%m/%d/%y (date_format='%m/%d/%y')"),
    ],
)
def test_dates_in_other_forms_are_recognised_and_the_remedy_is_said(form, days, said, call, tmp_path):
    sold = [pd.Timestamp("2026-05-01") + pd.Timedelta(days=day) for day in days] * 6
    frame = pd.DataFrame({"sold": [one.strftime(form) for one in sold], "y": np.arange(float(len(sold))) % 7})
    frame.to_csv(tmp_path / "data.csv", index=False)
    code, out, err = call("inspect", str(tmp_path / "data.csv"))
    assert (code, err) == (0, "")
    assert f"dates? then use {said}" in out
    # A fit refuses the text and says the same; with the remedy it learns dates.
    options = ["fit", str(tmp_path / "data.csv"), "--dates", "trend", "--kappa", "1", "-q"]
    model = str(tmp_path / "model.psfit")
    code, _, err = call(*options)
    assert code == 1
    # One cell alone may have two meanings, then both are said.
    assert "if dates are written in this way, use --csv dates=" in err
    assert f"dates={form}" in err
    code, _, err = call(*options, "--csv", f"dates={form}", "--out", model)
    assert code == 0, err
    # The model knows the form; another one is refused, and can be said.
    code, predicted, err = call("predict", model, str(tmp_path / "data.csv"))
    assert (code, err) == (0, "")
    other = "%Y|%m|%d"
    pd.DataFrame({"sold": [one.strftime(other) for one in sold]}).to_csv(tmp_path / "new.csv", index=False)
    code, _, err = call("predict", model, str(tmp_path / "new.csv"))
    assert code == 1
    assert f"'{sold[0].strftime(other)}') in place of a date, first in row 0 (counted from 0)" in err
    assert call("predict", model, str(tmp_path / "new.csv"), "--csv", f"dates={other}")[1] == predicted


@pytest.mark.parametrize("mark", [".", "/"])
def test_years_of_two_digits_are_not_read_as_years_of_two_thousand_years_ago(mark, call, tmp_path):
    form = mark.join(["%d", "%m", "%y"])
    days = pd.date_range("2023-01-05", periods=60, freq="25D")
    frame = pd.DataFrame({"day": days.strftime(form), "y": days.year + days.day_of_week / 10})
    frame.to_csv(tmp_path / "data.csv", index=False)
    options = ["fit", str(tmp_path / "data.csv"), "--dates", "year,weekday", "--kappa", "2", "-q"]
    code, _, err = call(*options)
    assert code == 1
    assert "column 'day' holds a date in the year" in err
    assert "--csv dates=%d/%m/%y or --csv dates=%m/%d/%y" in err
    source = psfit.FileSource(tmp_path / "data.csv", target="y", dates=["year", "weekday"], date_format=form)
    model = psfit.SparseLinearRegression(2, gamma=float("inf")).fit(source)
    np.testing.assert_allclose(model.predict(pd.DataFrame({"day": days})), frame.y, rtol=1e-9)
    # Text in a table has no format to be given: it is refused.
    with pytest.raises(ValueError, match=r"holds a date in the year|in place of a date"):
        model.predict(pd.DataFrame({"day": frame.day}))


def test_a_cell_that_is_no_date_in_any_form_is_not_said_to_be_one(call, tmp_path):
    frame = pd.DataFrame({"sold": pd.date_range("2026-01-01", periods=40), "y": np.arange(40.0) % 7})
    frame.to_csv(tmp_path / "data.csv", index=False)
    model = str(tmp_path / "model.psfit")
    assert call("fit", str(tmp_path / "data.csv"), "--dates", "trend", "--kappa", "1", "-q", "--out", model)[0] == 0
    (tmp_path / "new.csv").write_text("sold\nlast May\n")
    code, _, err = call("predict", model, str(tmp_path / "new.csv"))
    assert code == 1
    assert "text ('last May') in place of a date, first in row 0 (counted from 0), line 2; correct such cells" in err


def test_new_levels_are_refused_or_have_no_level():
    frame = pd.DataFrame({"city": ["a", "b", "c"] * 4, "y": [1.0, 2.0, 6.0] * 4})
    new = pd.DataFrame({"city": ["a", "z"]})
    strict, loose = (
        psfit.SparseLinearRegression(3, gamma=1e6, certify=False, groups=None).fit(
            TableSource(frame, categories="group", new_levels=rule)
        )
        for rule in ("refuse", "zero")
    )
    with pytest.raises(ValueError, match="the table: column 'city' holds the level 'z', which the fit did not see"):
        strict.predict(new)
    np.testing.assert_allclose(loose.predict(new), [1.0, loose.intercept_], rtol=1e-4)


def test_folds_fill_with_what_their_own_training_samples_say():
    """Scores equal those of scikit-learn's pipeline, whose imputer is fitted to the training folds only."""
    from sklearn.impute import SimpleImputer
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.lognormal(size=(40, 3)), columns=list("abc"))
    frame["y"] = frame.sum(axis=1) + rng.normal(size=40)
    frame.iloc[rng.permutation(40)[:15], 0] = np.nan
    frame.iloc[rng.permutation(40)[:9], 2] = np.nan
    folds = KFold(4, shuffle=True, random_state=0)
    model = psfit.SparseLinearRegressionCV([3], gammas=GAMMA, cv=folds, scoring="r2", certify=False)
    model.fit(TableSource(frame, missing="fill"))
    by_hand = make_pipeline(SimpleImputer(strategy="median"), Ridge(alpha=1 / (2 * GAMMA)))
    scores = cross_val_score(by_hand, frame[["a", "b", "c"]], frame["y"], cv=folds, scoring="r2")
    found = [model.cv_results_[f"split{k}_test_score"][0] for k in range(4)]
    np.testing.assert_allclose(found, scores, rtol=1e-8)
    leaking = SimpleImputer(strategy="median").fit_transform(frame[["a", "b", "c"]])
    assert abs(cross_val_score(by_hand[-1:], leaking, frame["y"], cv=folds, scoring="r2") - scores).max() > 1e-6


def test_the_same_rows_in_one_file_and_in_several_make_the_same_model(tmp_path):
    frame = awkward.truth(gaps=True).sort_values("city", na_position="first")
    folder = tmp_path / "parts"
    folder.mkdir()
    (tmp_path / "whole.csv").write_text(awkward.text(frame))
    # Sorted by city: no part has all levels, and the first one has nothing but gaps in that column.
    for k, part in enumerate(np.array_split(np.arange(len(frame)), [3, 25, 40])):
        (folder / f"{k}.csv").write_text(awkward.text(frame.iloc[part]))
    whole, parts = (
        psfit.SparseLinearRegression(4, standardize=True, certify=False).fit(FileSource(path, **RULES))
        for path in (tmp_path / "whole.csv", folder)
    )
    assert parts.feature_names_in_.tolist() == whole.feature_names_in_.tolist()
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-9)
    np.testing.assert_allclose(parts.predict(frame), whole.predict(frame), rtol=1e-9)


def test_series_and_arrow_arrays_are_targets():
    frame = awkward.truth()
    X, y = frame[["size", "age"]], frame[awkward.TARGET].to_numpy()
    expected = psfit.SparseLinearRegression(2, certify=False).fit(X, y).coef_
    for form in (pl.Series(y), pa.array(y), pa.chunked_array([y[:10], y[10:]]), pd.Series(y), list(y)):
        found = psfit.SparseLinearRegression(2, certify=False).fit(X, form).coef_
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    labels = np.where(y > np.median(y), "high", "low")
    for form in (pl.Series(labels), pa.array(labels)):
        model = psfit.SparseLogisticRegression(1, certify=False).fit(X, form)
        assert model.classes_.tolist() == ["high", "low"]
