"""Links of HDF5: those inside the file are followed, all others are refused."""

import h5py
import numpy as np
import pytest

from psfit.comm import GridSpec
from psfit.data import FileSource
from psfit.data.io import DataFileError

GRID = GridSpec(backend="serial", device="cpu").build()
X = np.random.default_rng(0).normal(size=(20, 3))
Y = X[:, 0]


def read(path):
    return FileSource(path).read(GRID)


def link_to_itself(file):
    file["X"], file["y"] = h5py.SoftLink("/X"), Y


def links_in_a_circle(file):
    file["X"], file["y"], file["a"] = X, h5py.SoftLink("/a"), h5py.SoftLink("/y")


def link_to_another_file(file):
    file["X"], file["y"] = h5py.ExternalLink("other.h5", "/X"), Y


def link_through_a_group_of_another_file(file):
    file["g"], file["X"], file["y"] = h5py.ExternalLink("other.h5", "/"), h5py.SoftLink("/g/X"), Y


def numbers_in_another_file(file):
    file.create_dataset("X", shape=X.shape, dtype="f8", external=[("raw.bin", 0, X.nbytes)])
    file["y"] = Y


def view_of_another_file(file):
    layout = h5py.VirtualLayout(shape=X.shape, dtype="f8")
    layout[:] = h5py.VirtualSource("other.h5", "X", shape=X.shape)
    file.create_virtual_dataset("X", layout)
    file["y"] = Y


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (link_to_itself, "'X' is a link to itself"),
        (links_in_a_circle, "'y' is a link to itself"),
        (link_to_another_file, "'X' is in another file, 'other.h5'"),
        (link_through_a_group_of_another_file, "'X' is in another file, 'other.h5'"),
        (numbers_in_another_file, "'X' is in another file, 'raw.bin'"),
        (view_of_another_file, "'X' is a virtual dataset"),
    ],
)
def test_links_that_lead_nowhere_or_outside_are_refused(write, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X.tofile("raw.bin")
    with h5py.File("other.h5", "w") as other:
        other["X"] = X
    with h5py.File("data.h5", "w") as file:
        write(file)
    with pytest.raises(DataFileError) as error:
        read(tmp_path / "data.h5")
    assert f"data.h5: {said}" in str(error.value)


def test_links_inside_the_file_are_followed(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["group/rows"], file["group/near"] = X, h5py.SoftLink("rows")
        file["X"], file["y"] = h5py.SoftLink("/group/near"), Y
    np.testing.assert_array_equal(read(tmp_path / "data.h5").matrix.values.numpy(), X)
