"""Which column is the target: the same in all files, at the fit and later, and never also the weights."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

import psfit
from psfit.comm import GridSpec
from psfit.data import FileSource
from psfit.data.io import DataFileError
from psfit.data.io.base import PossibleKinds
from psfit.data.io.learn_schema import _pack_kinds, _unpack_kinds
from psfit.data.schema import Schema
from psfit.reporting import describe

GRID = GridSpec(backend="serial", device="cpu").build()
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(30, 2)), columns=["a", "b"]).assign(
    y=lambda frame: frame.a + 2 * frame.b + 0.1 * RNG.normal(size=30), w=RNG.uniform(1, 2, 30)
)
every_table = pytest.mark.parametrize("ending", [".csv", ".parquet"])


def write(path, frame):
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path, index=False)
    return path


def fit(source):
    return psfit.SparseLinearRegression(2, gamma=1e3, certify=False).fit(source)


@every_table
def test_files_whose_last_columns_differ_are_refused(ending, tmp_path):
    """By default the last column is the target; these two would become one."""
    paths = [write(tmp_path / f"{name}{ending}", FRAME[["a", "b", name]]) for name in ("y", "w")]
    with pytest.raises(DataFileError, match="targets"):
        fit(paths)


def test_ranks_whose_targets_differ_are_refused():
    kinds = {"a": ("number",)}
    with pytest.raises(DataFileError, match="targets"):
        _unpack_kinds(_pack_kinds(PossibleKinds(kinds, ("number",), "w")), PossibleKinds(kinds, ("number",), "y"))


@every_table
def test_the_weights_are_not_the_target(ending, tmp_path):
    path = write(tmp_path / f"data{ending}", FRAME)
    for source in (FileSource(path, sample_weight="w"), FileSource(path, target="w", sample_weight="w")):
        with pytest.raises(DataFileError, match="column 'w' cannot be both the target and the sample weights"):
            fit(source)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sample_weight": "y"}, "'y' cannot be both the target and the sample weights"),
        ({"target": "w", "sample_weight": "w"}, "'w' cannot be both the target and the sample weights"),
        ({"target": "X"}, "'X' holds the features"),
    ],
)
def test_arrays_have_one_part_only(options, said, tmp_path):
    np.savez(tmp_path / "data.npz", X=FRAME[["a", "b"]].to_numpy(), y=FRAME.w, w=FRAME.w)
    with pytest.raises(DataFileError, match=said):
        fit(FileSource(tmp_path / "data.npz", **options))


@every_table
def test_a_model_knows_its_target_by_name(ending, tmp_path):
    """The last column of these files is not the model's target: scores against it would be wrong without an error."""
    path = write(tmp_path / f"data{ending}", FRAME)
    model = fit(FileSource(path, target="y", sample_weight="w"))
    psfit.save(model, tmp_path / "model.psfit")
    model = psfit.load(tmp_path / "model.psfit")
    expected = r2_score(FRAME.y, FRAME[["a", "b"]].to_numpy() @ model.coef_ + model.intercept_)
    assert describe(model, path, grid=GRID).scores["R\u00b2"] == pytest.approx(expected)
    other = write(tmp_path / f"other{ending}", FRAME.rename(columns={"y": "z"}))
    with pytest.raises(DataFileError, match="target='y': there is no such column"):
        describe(model, other, grid=GRID)
    assert describe(model, FileSource(other, target="z"), grid=GRID).scores["R\u00b2"] == pytest.approx(expected)


def test_schemas_without_the_name_of_the_target_are_read():
    old = {"columns": [], "target": "number", "first_index": None}
    assert Schema.from_dict(json.loads(json.dumps(old))) == Schema((), "number", None, None)


def labels(source):
    return psfit.SparseLogisticRegression(2, certify=False).fit(source)


def test_labels_that_floating_point_cannot_tell_apart_are_refused(tmp_path):
    """In a CSV they are numbers, and two of these three are one."""
    path = tmp_path / "data.csv"
    names = np.array([2**53, 2**53 + 1, 2**53 + 2])[np.arange(30) % 3]
    write(path, FRAME[["a", "b"]].assign(label=names))
    with pytest.raises(ValueError, match="column 'label' holds the label 9007199254740994"):
        labels(path)
    whole = write(tmp_path / "data.parquet", FRAME[["a", "b"]].assign(label=names))
    assert labels(whole).classes_.tolist() == np.unique(names).tolist()


def test_numbers_and_texts_are_no_labels_of_one_kind(tmp_path):
    X, y = FRAME[["a", "b"]].to_numpy(), (FRAME.y > 0).to_numpy()
    np.savez(tmp_path / "numbers.npz", X=X, y=y.astype(float))
    np.savez(tmp_path / "texts.npz", X=X, y=y.astype(int).astype(str))
    with pytest.raises(DataFileError, match="text in some files and numbers in others"):
        labels([tmp_path / "numbers.npz", tmp_path / "texts.npz"])


@every_table
def test_classes_that_are_whole_numbers_stay_such(ending, tmp_path):
    """Written down, 3 and 3.0 are two labels."""
    path = write(tmp_path / f"data{ending}", FRAME[["a", "b"]].assign(label=np.where(FRAME.y > 0, 10, -3)))
    assert [str(label) for label in labels(path).classes_.tolist()] == ["-3", "10"]
