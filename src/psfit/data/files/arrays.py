"""Arrays: ``.npy`` as a memory map, ``.npz`` with X and y or from SciPy, HDF5 datasets."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from psfit.data.files.base import CheckedRows, DataFile, Part, Wanted, require_finite
from psfit.data.streamed import Rows


class _ArrayFile(DataFile):
    """Features as one array, the target and the weights as others (or as files beside it)."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path, self.wanted = path, wanted
        if wanted.one_hot:
            raise self.fail("one_hot is for columns of text; an array has none")
        self.X, self.names = self._features()
        if self.X.ndim != 2:
            raise self.fail(f"X must have two dimensions, samples by features; it has {self.X.ndim}")
        self.length = self.X.shape[0]
        self.target = self._beside(wanted.target, "y") if wanted.labelled else None
        self.weight = self._beside(wanted.weight, "sample_weight")

    def _features(self) -> tuple[Any, tuple[str, ...] | None]:
        raise NotImplementedError

    def _named(self, name: str) -> Any:
        """An array of this file, or None."""
        return None

    def _beside(self, asked: str | int | None, usual: str) -> Any:
        """An array of the file or another ``.npy`` file, with a number for each sample; None if there is none."""
        if isinstance(asked, str) and asked.endswith(".npy"):
            beside = Path(asked) if Path(asked).exists() else self.path.parent / asked
            values = _mapped(beside, self)
        else:
            values = self._named(usual if asked is None else str(asked))
            if values is None and asked is not None:
                raise self.fail(f"there is no array {asked!r}; {self._advice()}")
        if values is not None and len(values) != self.length:
            raise self.fail(f"X has {self.length} rows, but {asked or usual} has {len(values)}")
        return values

    def _advice(self) -> str:
        return "give the name of a .npy file, or pass y itself"

    def _chosen(self) -> slice | list[int]:
        """Which columns are features."""
        if self.wanted.columns is None:
            return slice(None)
        if self.names is None:
            raise self.fail(f"columns={self.wanted.columns}: the columns of this file have no names")
        lacking = [name for name in self.wanted.columns if name not in self.names]
        if lacking:
            raise self.fail(f"there is no column {lacking[0]!r}; its columns are {', '.join(self.names[:20])}")
        return [self.names.index(name) for name in self.wanted.columns]

    def part(self, start: int, stop: int, texts: dict[str, list[str]], budget: int) -> Part:
        chosen = self._chosen()
        names = self.names if isinstance(chosen, slice) else self.wanted.columns
        features: Any
        if scipy.sparse.issparse(self.X):
            features = self.X[start:stop][:, chosen]
            require_finite(features.data.reshape(-1, 1), self.path, ("of nonzero entries",), 0)
        else:
            features = CheckedRows(_Window(self.X, start, stop, chosen), self.path, names, start)
        y, weight = (None if array is None else np.asarray(array[start:stop]) for array in (self.target, self.weight))
        return Part(features, y, weight, names)


class _Window(Rows):
    """A range of rows of anything that can be sliced."""

    def __init__(self, values: Any, start: int, stop: int, chosen: slice | list[int]) -> None:
        self.values, self.start, self.chosen = values, start, chosen
        width = values.shape[1] if isinstance(chosen, slice) else len(chosen)
        self.shape, self.dtype = (stop - start, width), np.dtype(values.dtype)
        if self.dtype.kind not in "biuf":
            raise ValueError(f"X holds {self.dtype}, not numbers")

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.asarray(self.values[self.start + start : self.start + stop])[:, self.chosen]


class NpyFile(_ArrayFile):
    """One array; its last column (or another one, by number) is the target unless that is a file of its own."""

    def _features(self) -> tuple[Any, tuple[str, ...] | None]:
        return _mapped(self.path, self), None

    def _named(self, name: str) -> Any:
        wanted = self.wanted.target
        if name != str(wanted) or not name.lstrip("-").isdigit():
            return None
        at = int(name)
        if not -self.X.shape[1] <= at < self.X.shape[1]:
            raise self.fail(f"target={at} is none of its {self.X.shape[1]} columns")
        return self.X[:, at]

    def _chosen(self) -> slice | list[int]:
        chosen, target, width = super()._chosen(), self.wanted.target, self.X.shape[1]
        if target is None or not str(target).lstrip("-").isdigit():
            return chosen
        return [k for k in range(width) if k != int(target) % width]


class NpzFile(_ArrayFile):
    """Arrays X, y and sample_weight, or a sparse matrix that SciPy saved."""

    def _features(self) -> tuple[Any, tuple[str, ...] | None]:
        try:
            with np.load(self.path, allow_pickle=False) as arrays:
                self.known = {name: arrays[name] for name in arrays.files}
        except (ValueError, OSError, zipfile.BadZipFile) as error:
            raise self.fail(f"cannot be read as .npz ({error}); it may be cut short") from None
        names = self.known.get("feature_names")
        if "X" in self.known:
            return self.known["X"], None if names is None else tuple(map(str, names))
        if {"format", "indptr", "indices", "data", "shape"} <= self.known.keys():
            return scipy.sparse.load_npz(self.path).tocsr(), None
        raise self.fail(f"there is no array 'X'; it holds {', '.join(self.known)}")

    def _named(self, name: str) -> Any:
        return self.known.get(name)

    def _advice(self) -> str:
        return f"it holds {', '.join(self.known)}"


class Hdf5File(_ArrayFile):
    """Datasets X, y and sample_weight, read in ranges."""

    def _features(self) -> tuple[Any, tuple[str, ...] | None]:
        try:
            import h5py
        except ImportError:
            raise self.fail("HDF5 needs h5py; install psfit[hdf5]") from None
        try:
            self.file = h5py.File(self.path, "r")
        except OSError as error:
            raise self.fail(f"cannot be read as HDF5 ({error}); it may be cut short") from None
        if "X" not in self.file:
            raise self.fail(f"there is no dataset 'X'; it holds {', '.join(self.file)}")
        names = self.file["X"].attrs.get("feature_names")
        return self.file["X"], None if names is None else tuple(map(str, names))

    def _named(self, name: str) -> Any:
        return self.file.get(name)

    def _advice(self) -> str:
        return f"it holds {', '.join(self.file)}"


def _mapped(path: Path, asker: DataFile) -> np.ndarray:
    try:
        values: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise asker.fail(f"there is no file {path}") from None
    except (ValueError, OSError, EOFError) as error:
        raise asker.fail(f"{path.name} cannot be read as .npy ({error}); it may be cut short") from None
    return values
