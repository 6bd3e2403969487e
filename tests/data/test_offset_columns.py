"""Offsets as columns of files: kept by name in the model, read again by name, never a feature."""

import json

import numpy as np
import pandas as pd
import pytest

import psfit
from psfit.comm import GridSpec
from psfit.data.io import DataFileError
from psfit.reporting import describe

GRID = GridSpec(backend="serial", device="cpu").build()
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(80, 4)), columns=list("abcd")).assign(
    log_exposure=RNG.uniform(-2, 1, size=80), w=RNG.integers(1, 3, size=80)
)
FRAME["claims"] = RNG.poisson(np.exp(0.5 + FRAME.a - 0.7 * FRAME.c + FRAME.log_exposure))
FEATURES = list("abcd")


def write(path, frame=FRAME):
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path, index=False)
    return path


def expected(kappa=2):
    model = psfit.SparsePoissonRegression(kappa)
    return model.fit(FRAME[FEATURES], FRAME.claims, FRAME.w, offset=FRAME.log_exposure)


@pytest.mark.parametrize("ending", [pytest.param(".csv", marks=pytest.mark.long), ".parquet"])
def test_commands_keep_the_name_of_the_offset(ending, tmp_path, call):
    data, model = write(tmp_path / f"data{ending}"), tmp_path / "model.psfit"
    columns = ["--target", "claims", "--weight", "w"]
    code, _, err = call(
        "fit", data, "--loss", "poisson", "--kappa", "2", *columns, "--offset", "log_exposure", "--out", model,
        "--report", tmp_path / "fit.html", "--quiet",
    )  # fmt: skip
    assert code == 0, err
    control = expected()
    loaded = psfit.load(model)
    assert loaded.feature_names_in_.tolist() == FEATURES
    np.testing.assert_allclose(loaded.coef_, control.coef_, rtol=1e-9)
    code, out, _ = call("inspect", model, "--json")
    assert json.loads(out)["offset"] == "log_exposure"
    assert "offset     log_exposure" in call("inspect", model)[1]
    page = (tmp_path / "fit.html").read_text()
    assert "offset (column log_exposure)" in page
    assert "offset=&#39;log_exposure&#39;" in page
    # New samples have the same column, or another that is named.
    predictions = control.predict(FRAME[FEATURES], offset=FRAME.log_exposure)
    code, out, err = call("predict", model, data)
    np.testing.assert_allclose(np.array(out.split()[1:], float), predictions, rtol=1e-5)
    other = write(tmp_path / f"other{ending}", FRAME.rename(columns={"log_exposure": "e"}))
    code, _, err = call("predict", model, other)
    assert code != 0
    assert "--offset 'log_exposure': there is no such column" in err
    assert call("predict", model, other, "--offset", "e")[1] == out
    near = ["near-optimal", model, data, *columns, "--within", "0.02"]
    assert "no other support is" in call(*near)[1]
    report = ["report", model, other, *columns, "--offset", "e", "--out", tmp_path / "again.html", "--quiet"]
    assert call(*report)[0] == 0
    loss = np.average(predictions - FRAME.claims * np.log(predictions), weights=FRAME.w)
    source = psfit.FileSource(data, "claims", "w")
    assert describe(loaded, source, grid=GRID).scores["mean loss"] == pytest.approx(loss)


def test_models_of_files_and_of_arrays(tmp_path):
    path = write(tmp_path / "data.csv")
    source = psfit.FileSource(path, target="claims", sample_weight="w", offset="log_exposure")
    model, control = psfit.SparsePoissonRegression(2).fit(source), expected()
    np.testing.assert_allclose(model.predict(path), control.predict(FRAME[FEATURES], offset=FRAME.log_exposure))
    np.testing.assert_allclose(model.predict(path, offset=FRAME.log_exposure), model.predict(path))
    assert model.score(path, FRAME.claims) == model.score(path, FRAME.claims, offset="log_exposure")
    near = psfit.near_optimal(model, source, within=0.01)
    assert near.objectives[0] == pytest.approx(control.objective_)
    for offset in ("log_exposure", None):
        again = psfit.near_optimal(model, path, within=0.01, target="claims", sample_weight="w", offset=offset)
        np.testing.assert_allclose(again.objectives, near.objectives)
    # A model of arrays does not know which column of a file is meant.
    with pytest.raises(ValueError, match="fitted with an offset"):
        control.predict(path)
    np.testing.assert_allclose(control.predict(path, offset="log_exposure"), model.predict(path), rtol=1e-9)
    with pytest.raises(ValueError, match="choose one of them"):
        psfit.SparsePoissonRegression(2).fit(source, offset="w")
    chosen = psfit.SparsePoissonRegressionCV([1, 2], cv=2, certify=False).fit(source)
    psfit.save(chosen, tmp_path / "chosen.psfit")
    assert psfit.load(tmp_path / "chosen.psfit").learned_.offset == "log_exposure"
    path = psfit.sparse_path(source, kappas=[1, 2], loss="poisson")
    assert "offset='log_exposure'" in psfit.report(path).replace("&#39;", "'")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"offset": "exposure"}, "offset='exposure': there is no such column \\(did you mean 'log_exposure'"),
        ({"offset": "claims"}, "column 'claims' cannot be the offset and also the target"),
        ({"offset": "w", "sample_weight": "w"}, "column 'w' cannot be the offset and also"),
        ({"offset": "a", "columns": ("a", "b")}, "column 'a' is the offset; leave it out of columns"),
        ({"offset": "text"}, "column 'text' holds text .'x'. in place of a number.*offsets must be numbers"),
    ],
)
def test_columns_that_cannot_be_the_offset_are_refused(options, said, tmp_path):
    path = write(tmp_path / "data.csv", FRAME.assign(text="x"))
    with pytest.raises(DataFileError, match=said):
        psfit.SparsePoissonRegression(2).fit(psfit.FileSource(path, "claims", **options))


def test_arrays_in_files(tmp_path):
    X, y = FRAME[FEATURES].to_numpy(), FRAME.claims.to_numpy()
    np.savez(tmp_path / "data.npz", X=X, y=y, e=FRAME.log_exposure)
    model = psfit.SparsePoissonRegression(2).fit(tmp_path / "data.npz", offset="e")
    assert model.learned_.offset == "e"
    np.testing.assert_allclose(model.predict(tmp_path / "data.npz"), model.predict(X, offset=FRAME.log_exposure))
    for name, said in (("y", "'y' cannot be the offset, too"), ("X", "'X' holds the features"), ("z", "no array 'z'")):
        with pytest.raises(DataFileError, match=said):
            psfit.SparsePoissonRegression(2).fit(tmp_path / "data.npz", offset=name)
    (tmp_path / "data.svm").write_text("1 1:2\n2 2:1\n")
    with pytest.raises(DataFileError, match="offset"):
        psfit.SparsePoissonRegression(1).fit(tmp_path / "data.svm", offset="e")
    halves = [tmp_path / "one.npz", tmp_path / "two.npz"]
    for part, at in zip(halves, (slice(0, 30), slice(30, 80)), strict=True):
        np.savez(part, X=X[at], y=y[at], e=FRAME.log_exposure[at])
    joined = psfit.SparsePoissonRegression(2).fit(halves, offset="e")
    np.testing.assert_allclose(joined.coef_, model.coef_, rtol=1e-9)
