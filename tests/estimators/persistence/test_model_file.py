"""Model files and exports: the same predictions after every export, and damaged files are refused."""

import csv
import json
import zipfile
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LinearRegression

import psfit
from psfit import BiCADMM, GridSpec
from psfit.estimators.persistence.archive import MARK, ModelFileError, pack, unpack

IRIS = load_iris(as_frame=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
THREE = NAMES[IRIS.target]
TWO = np.where(IRIS.target == 2, "virginica", "other")


@cache
def fitted(name):
    """A model of every kind, with names of features and labels of several types."""
    X = IRIS.data
    makers = {
        "linear": lambda: psfit.SparseLinearRegression(2).fit(X, IRIS.target),
        "two targets": lambda: psfit.SparseLinearRegression(2, sparsity="feature").fit(
            X.to_numpy(), np.column_stack([IRIS.target, X.iloc[:, 0]])
        ),
        "huber": lambda: psfit.SparseLinearRegression(2, loss="huber").fit(X, IRIS.target),
        "poisson": lambda: psfit.SparsePoissonRegression(2).fit(X, IRIS.target),
        "gamma": lambda: psfit.SparseGammaRegression(2).fit(X, IRIS.target + 1),
        "tweedie": lambda: psfit.SparseTweedieRegression(2, power=1.3).fit(X, IRIS.target),
        "logistic": lambda: psfit.SparseLogisticRegression(2, class_weight={"other": 2.0, "virginica": 1.0}).fit(
            X, TWO
        ),
        "logistic, three classes": lambda: psfit.SparseLogisticRegression(4).fit(X, THREE),
        "softmax, two classes": lambda: psfit.SparseSoftmaxRegression(3).fit(X, TWO),
        "softmax, numbers": lambda: psfit.SparseSoftmaxRegression(4, class_weight={0: 1, 1: 2, 2: 1}).fit(
            X, IRIS.target
        ),
        "svc": lambda: psfit.SparseSVC(2).fit(X, TWO == "other"),
        "svc, three classes": lambda: psfit.SparseSVC(2, loss="hinge").fit(X, THREE.astype(object)),
        "settings": lambda: psfit.SparseLinearRegression(
            2, grid=GridSpec(nodes=2), solver=BiCADMM(effort="low", record_objective=True)
        ).fit(X, IRIS.target),
        "linear, chosen": lambda: psfit.SparseLinearRegressionCV([1, 2], gammas=[0.1, 1]).fit(X, IRIS.target),
        "logistic, chosen": lambda: psfit.SparseLogisticRegressionCV([1, 2], scoring="accuracy").fit(X, TWO),
        "softmax, chosen": lambda: psfit.SparseSoftmaxRegressionCV([1, 2], cv=2).fit(X, THREE),
        "svc, chosen": lambda: psfit.SparseSVCCV([1, 2]).fit(X, TWO),
        "poisson, chosen": lambda: psfit.SparsePoissonRegressionCV([1, 2], criterion="bic").fit(X, IRIS.target),
    }
    return makers[name]()


KINDS = [
    "linear",
    "two targets",
    "huber",
    "poisson",
    "gamma",
    "tweedie",
    "logistic",
    "logistic, three classes",
    "softmax, two classes",
    "softmax, numbers",
    "svc",
    "svc, three classes",
]
SELECTING = ["linear, chosen", "logistic, chosen", "softmax, chosen", "svc, chosen", "poisson, chosen"]


def features(model):
    return IRIS.data if hasattr(model, "feature_names_in_") else IRIS.data.to_numpy()


@pytest.mark.parametrize("name", [*KINDS, "settings", *SELECTING])
def test_a_loaded_model_is_the_model(name, tmp_path):
    model = fitted(name)
    psfit.save(model, tmp_path / "model.psfit")
    assert list(tmp_path.iterdir()) == [tmp_path / "model.psfit"]
    again = psfit.load(tmp_path / "model.psfit")
    assert type(again) is type(model)
    X = features(model)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    if hasattr(model, "predict_proba"):
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert str(again.result_) == str(model.result_)
    assert again.history_ == model.history_
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.result_.spreads, model.result_.spreads)
    for attribute in ("classes_", "feature_names_in_"):
        if hasattr(model, attribute):
            before, after = getattr(model, attribute), getattr(again, attribute)
            assert before.dtype == after.dtype
            assert before.tolist() == after.tolist()
    predicted = again.predict(X)
    again.fit(X, np.abs(predicted) if "poisson" in name else predicted)


def test_weights_of_the_fit_are_known_and_absent_in_older_files(tmp_path, monkeypatch):
    table = IRIS.data.assign(w=1.0, y=IRIS.target)
    model = psfit.SparseLinearRegression(1).fit(psfit.TableSource(table, target="y", sample_weight="w"))
    for weight, name in (("w", "named"), (True, "array"), (False, "none")):
        monkeypatch.setattr(model, "learned_", replace(model.learned_, weight=weight))
        psfit.save(model, tmp_path / f"{name}.psfit")
        assert psfit.load(tmp_path / f"{name}.psfit").learned_.weight == weight
    monkeypatch.setattr(model, "result_", replace(model.result_, spreads=None))
    psfit.save(model, tmp_path / "older.psfit")
    assert psfit.load(tmp_path / "older.psfit").result_.spreads is None


@pytest.mark.parametrize("name", SELECTING)
def test_the_choice_is_kept(name, tmp_path):
    model = fitted(name)
    psfit.save(model, tmp_path / "model.psfit")
    again = psfit.load(tmp_path / "model.psfit")
    assert (again.kappa_, again.gamma_) == (model.kappa_, model.gamma_)
    np.testing.assert_array_equal(again.selection_.scores, model.selection_.scores)
    assert again.selection_.label == model.selection_.label
    assert hasattr(again, "cv_results_") == hasattr(model, "cv_results_")
    if hasattr(model, "cv_results_"):
        pd.testing.assert_frame_equal(
            pd.DataFrame(again.cv_results_)[list(model.cv_results_)], pd.DataFrame(model.cv_results_)
        )


def test_where_a_model_was_fitted_is_kept_and_may_be_missing(tmp_path):
    model = fitted("linear")
    psfit.save(model, tmp_path / "model.psfit")
    again = psfit.load(tmp_path / "model.psfit")
    assert again.learned_.surroundings == model.learned_.surroundings
    assert again.learned_.surroundings["torch"] == torch.__version__
    assert again.learned_.surroundings["ranks"] == "1"
    # Files of earlier versions do not have it.
    model.learned_ = replace(model.learned_, surroundings=None)
    psfit.save(model, tmp_path / "model.psfit")
    again = psfit.load(tmp_path / "model.psfit")
    assert again.learned_.surroundings is None
    assert "does not say" in psfit.report(again)


def test_equal_models_make_equal_files(tmp_path):
    model = fitted("linear")
    for name in ("a", "b"):
        psfit.save(model, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_change_of_any_byte_is_noticed(tmp_path):
    path = tmp_path / "model.psfit"
    psfit.save(fitted("linear"), path)
    whole = path.read_bytes()
    # All of the first and last bytes, where headers and digest are, and a part of those between.
    for place in [*range(100), *range(100, len(whole) - 200, 13), *range(len(whole) - 200, len(whole))]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ModelFileError):
            psfit.load(path)
    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        with pytest.raises(ModelFileError):
            psfit.load(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(ModelFileError):
        psfit.load(path)


def rewritten(path, change):
    """A model file with another JSON and a digest that fits."""
    content, arrays = unpack(path)
    change(content)
    path.write_bytes(pack(content, arrays, repr))


def test_files_of_other_versions_are_refused(tmp_path):
    path = tmp_path / "model.psfit"
    psfit.save(fitted("linear"), path)
    rewritten(path, lambda content: content.update(format=99, psfit="9.9"))
    with pytest.raises(ModelFileError, match=r"format 99, written by psfit '9\.9'"):
        psfit.load(path)
    psfit.save(fitted("linear"), path)
    rewritten(path, lambda content: content.update(model="solve"))
    with pytest.raises(ModelFileError, match="'solve' that this version does not know"):
        psfit.load(path)


def test_what_is_no_model_file_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("model.json", json.dumps({"format": 3}))
    with pytest.raises(ModelFileError, match="does not end with its digest"):
        psfit.load(tmp_path / "other.zip")
    (tmp_path / "text").write_text("{}")
    with pytest.raises(ModelFileError, match="is not a model file"):
        psfit.load(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        psfit.load(tmp_path / "nothing")
    with pytest.raises(ModelFileError, match="not fitted yet"):
        psfit.save(psfit.SparseSVC(), tmp_path / "model.psfit")
    assert not (tmp_path / "model.psfit").exists()


def test_a_missing_folder_is_named(tmp_path):
    model = fitted("linear")
    with pytest.raises(FileNotFoundError, match=f"there is no folder: '{tmp_path}/none'$"):
        psfit.save(model, tmp_path / "none" / "model.psfit")


def test_nothing_in_the_file_is_a_pickle(tmp_path):
    path = tmp_path / "model.psfit"
    psfit.save(fitted("linear, chosen"), path)
    with zipfile.ZipFile(path) as packed:
        assert packed.comment.startswith(MARK)
        assert packed.testzip() is None
        names = packed.namelist()
        assert {name.rsplit(".", 1)[1] for name in names} == {"json", "npy"}
        for name in names[1:]:
            assert b"'O'" not in packed.read(name)[:128]


@pytest.mark.parametrize("name", [*KINDS, "logistic, chosen"])
def test_scikit_learns_own_model_predicts_the_same(name):
    model = fitted(name)
    other = model.to_sklearn()
    assert type(other).__module__.startswith("sklearn.")
    X = features(model)
    if hasattr(model, "classes_"):
        np.testing.assert_array_equal(other.predict(X), model.predict(X))
        np.testing.assert_allclose(other.decision_function(X), model.decision_function(X), rtol=1e-9, atol=1e-9)
        if hasattr(model, "predict_proba"):
            np.testing.assert_allclose(other.predict_proba(X), model.predict_proba(X), atol=1e-12)
    else:
        np.testing.assert_allclose(other.predict(X), model.predict(X), rtol=1e-10)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", KINDS)
def test_onnx_graphs_predict_the_same(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = fitted(name)
    model.to_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == ["X"]
    first, *rest = session.run(None, {"X": IRIS.data.to_numpy(np.float32)})
    X = features(model)
    if not hasattr(model, "classes_"):
        np.testing.assert_allclose(first.reshape(model.predict(X).shape), model.predict(X), rtol=1e-4, atol=1e-5)
        return
    assert np.mean(np.asarray(first) == model.predict(X)) > 0.98
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(rest[0], model.predict_proba(X), atol=1e-5)


def table(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_a_table_of_coefficients(tmp_path):
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = psfit.SparseLinearRegression(3).fit(X, y)
    model.to_csv(tmp_path / "coefficients.csv")
    rows = table(tmp_path / "coefficients.csv")
    assert [row["feature"] for row in rows] == ["(intercept)", *X.columns[model.support_]]
    np.testing.assert_array_equal([float(row["coefficient"]) for row in rows[1:]], model.coef_[model.support_])
    fitted("logistic").to_csv(tmp_path / "two.csv")
    assert {row["output"] for row in table(tmp_path / "two.csv")} == {"virginica"}
    fitted("softmax, numbers").to_csv(tmp_path / "three.csv")
    assert table(tmp_path / "three.csv")[0]["output"] == "0"


def test_models_of_tensors_can_be_saved(tmp_path):
    X = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = psfit.SparseLinearRegression(1).fit(X, X[:, 2])
    psfit.save(model, tmp_path / "model.psfit")
    assert isinstance(psfit.load(tmp_path / "model.psfit").to_sklearn(), LinearRegression)


def test_what_cannot_be_kept_is_refused_and_leaves_nothing(tmp_path):
    class Own(psfit.SparseLinearRegression):
        pass

    own = Own(1).fit(IRIS.data, IRIS.target)
    with pytest.raises(ModelFileError, match="not one of PsFiT's own"):
        psfit.save(own, tmp_path / "model.psfit")
    dates = np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]")[(IRIS.target > 1).astype(int)]
    model = psfit.SparseLogisticRegression(1).fit(IRIS.data, dates)
    with pytest.raises(ModelFileError):
        psfit.save(model, tmp_path / "model.psfit")
    assert not list(tmp_path.iterdir())


def test_settings_in_numpys_numbers(tmp_path):
    solver = BiCADMM(max_iter=np.int64(50), tol=np.float64(1e-3))
    psfit.save(psfit.SparseLinearRegression(1, solver=solver).fit(IRIS.data, IRIS.target), tmp_path / "model.psfit")
    assert psfit.load(tmp_path / "model.psfit").solver == solver


@pytest.mark.parametrize("labels", [["x" * 10_001, "y"], np.array([0, 1], dtype=np.longdouble)])
def test_unusual_labels_come_back(labels, tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = psfit.SparseLogisticRegression(1, certify=False).fit(X, np.asarray(labels)[np.arange(20) % 2])
    psfit.save(model, tmp_path / "model.psfit")
    assert psfit.load(tmp_path / "model.psfit").classes_.tolist() == np.asarray(labels).tolist()


def test_long_levels_come_back(tmp_path):
    levels = ["x" * 10_001, "y"]
    pd.DataFrame({"text": levels * 5, "target": range(10)}).to_csv(tmp_path / "data.csv", index=False)
    model = psfit.SparseLinearRegression(1, certify=False)
    model.fit(psfit.FileSource(tmp_path / "data.csv", one_hot=True))
    psfit.save(model, tmp_path / "model.psfit")
    assert psfit.load(tmp_path / "model.psfit").learned_.features.schema.columns[0].levels == tuple(levels)
