"""Model files with a right digest and wrong contents: one clear error, or a model that works."""

import copy
import hashlib
import io
import json
import zipfile

import numpy as np
import pytest
from sklearn.datasets import load_iris

import psfit
from psfit import BiCADMM, GridSpec
from psfit.estimators.persistence import archive, model_file
from psfit.estimators.persistence.archive import MARK, ModelFileError, pack, unpack

IRIS = load_iris(as_frame=True)
X, Y = IRIS.data, IRIS.target.to_numpy()
LABELS = np.array(["a", "b", "c"])[Y]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file for each of four models, as its JSON and its arrays."""
    low = BiCADMM(effort="low")
    models = {
        "linear": psfit.SparseLinearRegression(
            2,
            solver=low,
            grid=GridSpec(nodes=2),
            include=0,
            count_included=True,
            upper={0: 9.0},
            groups=[1, 1, 2, 2],
            at_most={2: 1},
        ).fit(X, Y),
        "logistic": psfit.SparseLogisticRegression(2, solver=low, class_weight={"a": 2.0, "b": 1.0}).fit(
            X, np.where(Y > 1, "a", "b")
        ),
        "softmax": psfit.SparseSoftmaxRegression(4, solver=low, certify=False).fit(X, LABELS),
        "chosen": psfit.SparseLinearRegressionCV([1, 2], gammas=[0.1, 1.0], cv=2, solver=low).fit(X, Y),
    }
    folder = tmp_path_factory.mktemp("models")
    for name, model in models.items():
        psfit.save(model, folder / name)
    return {name: unpack(folder / name) for name in models}


def write(path, content, arrays):
    path.write_bytes(pack(content, arrays, repr))
    return path


def forged(files, name, tmp_path, change):
    """A file in which something was changed, with a digest that fits."""
    content, arrays = copy.deepcopy(files[name])
    change(content, arrays)
    return write(tmp_path / "model.psfit", content, arrays)


def set_in(*keys, to):
    """A change of one place of the JSON."""

    def change(content, arrays):
        place = content
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = to

    return change


def array(name, make):
    """A change of one array."""

    def change(content, arrays):
        arrays[name] = make(arrays.get(name))

    return change


def first(value):
    def make(values):
        values = values.copy()
        values.flat[0] = value
        return values

    return make


FORGERIES = [
    ("linear", array("coef_values", first(np.nan)), "coefficients are not finite"),
    ("linear", array("coef_values", lambda a: a.astype(complex)), "complex128"),
    ("linear", array("coef_values", lambda a: a[:-1]), "'coef_values' is not 2 number"),
    ("linear", array("coef_values", lambda a: a.reshape(-1, 1)), "'coef_values' is not 2 number"),
    ("linear", array("coef_rows", first(4)), "coefficients outside of 4 features"),
    ("linear", array("coef_rows", first(-1)), "coefficients outside of 4 features"),
    ("linear", array("coef_rows", lambda a: a.astype(float)), "'coef_rows' is not 2 number"),
    ("linear", array("coef_rows", lambda a: a[:1].repeat(2)), "two in one place"),
    ("linear", array("intercept", first(np.inf)), "not finite"),
    ("linear", array("intercept", lambda a: np.ones(3)), "'intercept' is not 1 number"),
    ("linear", array("lower_bounds", lambda a: a + 1e6), "its bound lies above its objective"),
    ("linear", array("lower_bounds", first(np.nan)), "its bound lies above its objective"),
    ("linear", array("history_dual", lambda a: a[1:]), "'history_dual' is not"),
    ("linear", array("surprise", lambda a: np.ones(3)), "arrays ['surprise']"),
    ("linear", lambda content, arrays: arrays.pop("objectives"), "there is no array 'objectives'"),
    ("linear", set_in("shape", to=[4, 2]), "its targets are not those of its outputs"),
    ("linear", set_in("shape", to=[3, 1]), "its number of features is not 3"),
    ("linear", set_in("shape", to=[2**40, 2**10]), "do not fit in memory"),
    ("linear", set_in("shape", to=[4.0, 1]), "its shape is not two"),
    ("linear", set_in("learned", "predict", to=1), "['predict']"),
    ("linear", set_in("learned", "feature_names_in_", "values", to=["a"] * 3), "3 names, but needs 4"),
    (
        "linear",
        set_in("learned", "feature_names_in_", "values", to=[1, 2, 3, 4]),
        "have values that are not allowed",
    ),
    ("linear", set_in("learned", "feature_names_in_", "dtype", to="<U1"), "are not of their type"),
    ("linear", set_in("learned", "_single", to="no"), "its targets"),
    ("linear", set_in("parameters", "fit", to=1), "no parameter 'fit'"),
    ("linear", set_in("parameters", "gamma", to=-1.0), "gamma=-1.0"),
    ("linear", set_in("parameters", "callback", to="print"), "callback='print'"),
    ("linear", set_in("parameters", "solver", "tol", to="small"), "tol='small'"),
    ("linear", set_in("parameters", "solver", "surprise", to=1), "surprise=1"),
    ("linear", set_in("parameters", "grid", "nodes", to="many"), "nodes='many'"),
    ("linear", set_in("result", "kappa", to=[1]), "more coefficients than its limit"),
    ("linear", set_in("result", "kappa", to=[2, 2]), "kappa=[2, 2]"),
    ("linear", set_in("result", "loss", to="logistic"), "loss='logistic'"),
    ("linear", set_in("result", "status", to="PERFECT"), "status='PERFECT'"),
    ("linear", set_in("result", "samples", to=-5), "samples=-5"),
    ("linear", set_in("result", "surprise", to=1), "['surprise']"),
    ("linear", set_in("surroundings", to={"torch": 3}), "environment is not text"),
    ("linear", set_in("selection", to={}), "a choice of the limit"),
    ("linear", set_in("surprise", to=1), "['surprise']"),
    ("logistic", set_in("learned", "classes_", "values", to=["a", "b", "c", "d", "e"]), "5 classes need 5 output(s)"),
    ("logistic", set_in("learned", "classes_", "values", to=["b", "a"]), "classes are not sorted"),
    ("logistic", set_in("learned", "classes_", "values", to=["a"]), "classes are not sorted"),
    ("logistic", set_in("learned", "classes_", "dtype", to="<M8"), "no known type"),
    ("logistic", set_in("result", "loss", to="softmax"), "loss='softmax'"),
    ("logistic", set_in("parameters", "class_weight", to=[[0, -1.0]]), "class_weight"),
    ("softmax", set_in("learned", "classes_", "values", to=["a", "b"]), "2 classes need 2 output(s)"),
    ("softmax", set_in("learned", "classes_", "dtype", to="<U9999"), None),
    ("chosen", array("selection_scores", lambda a: a[:, :1]), "one for each limit"),
    ("chosen", array("selection_kappas", lambda a: a * 1.5), "limits are not whole numbers"),
    ("chosen", set_in("selection", "choice", "kappa", to=7), "its choice is not one of"),
    ("chosen", set_in("learned", "kappa_", to=5), "a limit that it did not choose"),
    ("chosen", set_in("selection", "params", to=[]), "table of scores"),
    ("chosen", array("cv_mean_test_score", lambda a: a[1:]), "other lengths"),
    ("chosen", array("cv_fit", lambda a: np.ones(4)), "arrays ['cv_fit']"),
]


@pytest.mark.parametrize(("name", "change", "said"), FORGERIES)
def test_forged_files_are_refused_with_their_name(files, name, change, said, tmp_path):
    path = forged(files, name, tmp_path, change)
    if said is None:
        assert psfit.load(path).classes_.tolist() == ["a", "b", "c"]
        return
    with pytest.raises(ModelFileError) as error:
        psfit.load(path)
    assert str(error.value).startswith(str(path))
    assert said in str(error.value)


def leaves(value, place=()):
    """The places of all values in JSON, with those of whole lists and objects."""
    if isinstance(value, dict):
        inner = [leaves(one, (*place, key)) for key, one in value.items()]
    elif isinstance(value, list):
        inner = [leaves(one, (*place, k)) for k, one in enumerate(value[:2])]
    else:
        inner = []
    return [place, *(found for part in inner for found in part)]


STRANGE = [None, True, -1, 0, 3.5, float("nan"), 10**400, "x", [], [[1]], {}, {"a": 1}]


@pytest.mark.parametrize("name", ["linear", "chosen"])
def test_whatever_stands_in_the_json_it_is_refused_or_harmless(files, name, tmp_path, monkeypatch):
    content, arrays = files[name]
    monkeypatch.setattr(
        model_file,
        "unpack",
        lambda path: (changed, {key: a.copy() for key, a in arrays.items()}),
    )
    refused = 0
    for place in leaves(content)[1:]:
        for strange in STRANGE:
            changed = copy.deepcopy(content)
            set_in(*place, to=strange)(changed, arrays)
            try:
                model = psfit.load("model.psfit")
            except ModelFileError:
                refused += 1
                continue
            assert len(model.predict(X.set_axis(model.feature_names_in_, axis=1))) == len(X)
            assert "Sparse" in str(model.result_)
    assert refused > 300


def test_a_refit_uses_no_folder_that_the_file_names(files, tmp_path):
    change = set_in("parameters", "solver", "checkpoint", to=str(tmp_path / "elsewhere"))
    model = psfit.load(forged(files, "linear", tmp_path, change))
    assert model.solver.checkpoint is None
    model.solver = BiCADMM(checkpoint=tmp_path / "mine")
    model.fit(X, Y)
    psfit.save(model, tmp_path / "again.psfit")
    assert str(tmp_path) not in json.dumps(unpack(tmp_path / "again.psfit")[0])
    assert not (tmp_path / "elsewhere").exists()


def zipped(path, members, method=zipfile.ZIP_DEFLATED):
    """A file of any members, with a digest that fits."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", method) as packed:
        for name, data in members:
            packed.writestr(name, data)
        packed.comment = MARK + b"0" * 64
    body = whole.getvalue()[: -len(MARK) - 64]
    path.write_bytes(body + MARK + hashlib.sha256(body).hexdigest().encode())
    return path


def npy(header, data=b""):
    text = (repr(header) + "\n").encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([("model.json", b" " * (100 << 20))], "which is too many"),
        ([("model.json", b"{}"), ("a.npy", bytes(100 << 20))], "which is too many"),
        ([("model.json", b"{}"), ("a.npy", npy({"descr": "<f8", "fortran_order": False, "shape": (10**12,)}))], "many"),
        (
            [("model.json", b"{}"), ("a.npy", npy({"descr": "|O", "fortran_order": False, "shape": (1,)}, b"x"))],
            "object",
        ),
        ([("model.json", b"{}"), ("a.npy", b"garbage")], "cannot be used"),
        ([("model.json", b"{}"), ("../a.npy", b"")], "cannot be used"),
        ([("model.json", b"{}"), ("evil.py", b"")], "it holds 'evil.py'"),
        ([("model.json", b"[" * 100_000)], "cannot be used"),
        ([("model.json", b"1" * 10_000)], "cannot be used"),
        ([("model.json", b"[]")], "is not an object"),
        ([("model.json", b"{")], "cannot be used"),
        ([("other.json", b"{}")], "it holds 'other.json'"),
        ([("model.json", b"{}")], "has format None"),
    ],
)
def test_archives_that_are_no_model_are_refused(members, said, tmp_path):
    path = zipped(tmp_path / "model.psfit", members)
    with pytest.raises(ModelFileError) as error:
        psfit.load(path)
    assert str(error.value).startswith(str(path))
    assert said in str(error.value)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_that_occur_twice_or_are_packed_otherwise_are_refused(tmp_path):
    with pytest.raises(ModelFileError, match="list of members"):
        psfit.load(zipped(tmp_path / "twice.psfit", [("model.json", b"{}")] * 2))
    with pytest.raises(ModelFileError, match="packed with a method"):
        psfit.load(zipped(tmp_path / "bz2.psfit", [("model.json", b"{}")], zipfile.ZIP_BZIP2))


def test_a_model_that_packs_very_well_can_be_read_again(tmp_path, monkeypatch):
    """Equal names would be compressed beyond the limit; then they are stored without compression."""
    monkeypatch.setattr(archive, "FREE_BYTES", 0)
    names = [f"{'long ' * 400}{j}" for j in range(4)]
    psfit.save(psfit.SparseLinearRegression(1).fit(X.set_axis(names, axis=1), Y), tmp_path / "model.psfit")
    assert psfit.load(tmp_path / "model.psfit").feature_names_in_.tolist() == names
