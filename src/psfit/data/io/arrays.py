"""Arrays: ``.npy`` files, read in ranges of rows; ``.npz`` files with X and y, or written by SciPy."""

import zipfile
import zlib
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from psfit.data.io.base import CheckedRows, DataFile, Part, ReadRequest, require_finite, require_finite_entries
from psfit.data.schema import Schema, first_duplicate
from psfit.data.sparse_checks import check_arrays, check_matrix
from psfit.data.streamed import BinaryRows, RowReader

COLUMN_ROWS = 1 << 14
# The arrays of SciPy's sparse formats, in the order of its constructors.
SPARSE: dict[str, tuple[str, ...]] = dict.fromkeys(("csr", "csc", "bsr"), ("data", "indices", "indptr"))
SPARSE |= {"coo": ("data", "row", "col"), "dia": ("data", "offsets")}


class ArrayFile(DataFile):
    """The features as one array; target, weights and offsets as other arrays of the file or as other files."""

    def __init__(self, path: Path, wanted: ReadRequest) -> None:
        self.path, self.wanted = path, wanted
        if wanted.rules.list_changes():
            raise self.error(
                f"{', '.join(wanted.rules.list_changes())}: this is for tables; an array has no such columns"
            )
        self.X, self.names = self._features()
        if self.X.ndim != 2:
            raise self.error(f"X must have two dimensions, samples by features; it has {self.X.ndim}")
        if np.dtype(self.X.dtype).kind not in "biuf":
            raise self.error(f"X holds {self.X.dtype}, not numbers")
        if self.names is not None and len(self.names) != self.X.shape[1]:
            raise self.error(f"X has {self.X.shape[1]} columns, but feature_names has {len(self.names)}")
        if self.names is not None and len(set(self.names)) < len(self.names):
            raise self.error(
                f"feature_names holds {first_duplicate(self.names)!r} twice; each column needs its own name"
            )
        self._require_distinct()
        self.length = self.X.shape[0]
        self.target = self._find_companion(wanted.target, "y") if wanted.labelled else None
        self.weight = self._find_companion(wanted.weight, "sample_weight")
        self.offset = None if wanted.offset is None else self._find_companion(wanted.offset, "offset")

    def _require_distinct(self) -> None:
        """Features, target, weights and offsets must be different arrays or columns."""
        target, weight, offset = self.wanted.target, self.wanted.weight, self.wanted.offset
        usual = "y" if target is None else str(target)
        if self.wanted.labelled and weight == usual:
            raise self.error(f"{usual!r} cannot be both the target and the sample weights; name another array")
        if offset is not None and offset in (usual if self.wanted.labelled else None, weight):
            raise self.error(f"{offset!r} cannot be the offset, too; name another array")
        if "X" in (target, weight, offset):
            raise self.error("'X' holds the features; name another array as target, sample_weight and offset")

    @abstractmethod
    def _features(self) -> tuple[Any, tuple[str, ...] | None]:
        """The array X, and the names of its columns or None."""

    def _find_array(self, name: str) -> Any:
        """An array of this file, or None."""
        return None

    def _find_companion(self, asked: str | int | None, usual: str) -> Any:
        """An array of this file or of another ``.npy`` file with one entry for each sample; None if there is none."""
        if isinstance(asked, str) and asked.endswith(".npy"):
            other_columns = Path(asked) if Path(asked).exists() else self.path.parent / asked
            values = _map_file(other_columns, self)
        else:
            values = self._find_array(usual if asked is None else str(asked))
            if values is None and asked is not None:
                raise self.error(f"there is no array {asked!r}; {self._advice()}")
        if values is not None and not getattr(values, "shape", None):
            raise self.error(f"{usual if asked is None else asked} is not an array with an entry for each sample")
        if values is not None and len(values) != self.length:
            raise self.error(f"X has {self.length} rows, but {usual if asked is None else asked} has {len(values)}")
        return values

    def _advice(self) -> str:
        return "give the name of a .npy file, or pass y itself"

    def _feature_columns(self) -> slice | list[int]:
        """Which columns are features."""
        if self.wanted.columns is None:
            return slice(None)
        if self.names is None:
            raise self.error(f"there is no column {self.wanted.columns[0]!r}; the columns of this file have no names")
        lacking = [name for name in self.wanted.columns if name not in self.names]
        if lacking:
            raise self.error(f"there is no column {lacking[0]!r}; its columns are {', '.join(self.names[:20])}")
        return [self.names.index(name) for name in self.wanted.columns]

    def part(self, start: int, stop: int, schema: Schema, budget: int) -> Part:
        chosen = self._feature_columns()
        names = self.names if isinstance(chosen, slice) else self.wanted.columns
        features: Any
        if scipy.sparse.issparse(self.X):
            features = self.X[start:stop][:, chosen]
            require_finite_entries(features, self.path, start)
        else:
            features = CheckedRows(_Window(self.X, start, stop, chosen), self.path, names, start)
        y = self._entries(self.target, "y" if self.wanted.target is None else self.wanted.target, start, stop)
        weight = self._entries(self.weight, self.wanted.weight or "sample_weight", start, stop)
        offset = self._entries(self.offset, self.wanted.offset or "offset", start, stop)
        return Part(features, y, weight, names, offset=offset)

    def _entries(self, array: Any, name: str | int, start: int, stop: int) -> np.ndarray | None:
        """A range of the target, of the weights or of the offsets."""
        if array is None:
            return None
        values = np.asarray(array[start:stop])
        if values.dtype.kind == "f":
            columns = values if values.ndim == 2 else values.reshape(-1, 1)
            require_finite(columns, self.path, (str(name),) * columns.shape[1], start)
        return values


class _Window(RowReader):
    """A range of rows of an array-like object."""

    def __init__(self, values: Any, start: int, stop: int, chosen: slice | list[int]) -> None:
        self.values, self.start, self.chosen = values, start, chosen
        width = values.shape[1] if isinstance(chosen, slice) else len(chosen)
        self.shape, self.dtype = (stop - start, width), np.dtype(values.dtype)

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.asarray(self.values[self.start + start : self.start + stop])[:, self.chosen]


class _ArrayOnDisk:
    """An array on disk that is read in ranges of rows. A memory map is not used: address space may be limited."""

    def __init__(self, rows: BinaryRows) -> None:
        self.rows, self.shape, self.dtype, self.ndim = rows, rows.shape, rows.dtype, 2

    @classmethod
    def of(cls, path: Path, asker: DataFile) -> Any:
        """The array of a file; if it is stored by columns, a memory map of it."""
        with path.open("rb") as file:
            try:
                readers = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
                shape, by_columns, dtype = readers[np.lib.format.read_magic(file)[0]](file)
            except (ValueError, KeyError, EOFError) as error:
                raise asker.error(f"cannot be read as .npy ({error}); it may be cut short") from None
            begin = file.tell()
        if by_columns or len(shape) != 2:
            return _map_file(path, asker)
        if path.stat().st_size < begin + shape[0] * shape[1] * dtype.itemsize:
            raise asker.error(f"is shorter than its {shape[0]} rows of {shape[1]} numbers; it was cut short")
        return cls(BinaryRows(path.open("rb"), begin, dtype, (shape[0], shape[1])))

    def __getitem__(self, at: slice) -> np.ndarray:
        return self.rows.read(at.start, at.stop)


class _Column:
    """One column of an array, read in blocks of rows."""

    def __init__(self, values: Any, at: int) -> None:
        self.values, self.at, self.shape = values, at, values.shape[:1]

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def __getitem__(self, at: slice) -> np.ndarray:
        parts = [
            self.values[k : min(k + COLUMN_ROWS, at.stop)][:, self.at] for k in range(at.start, at.stop, COLUMN_ROWS)
        ]
        return np.concatenate(parts) if parts else np.empty(0)


class NpyFile(ArrayFile):
    """One array; the target is one of its columns, given by number, or another file."""

    def _features(self) -> tuple[Any, tuple[str, ...] | None]:
        return _ArrayOnDisk.of(self.path, self), None

    def _find_array(self, name: str) -> Any:
        wanted = self.wanted.target
        if name != str(wanted) or not name.lstrip("-").isdigit():
            return None
        at = int(name)
        if not -self.X.shape[1] <= at < self.X.shape[1]:
            raise self.error(f"target={at} is not one of its {self.X.shape[1]} columns")
        return _Column(self.X, at)

    def _feature_columns(self) -> slice | list[int]:
        chosen, target, width = super()._feature_columns(), self.wanted.target, self.X.shape[1]
        if target is None or not str(target).lstrip("-").isdigit():
            return chosen
        return [k for k in range(width) if k != int(target) % width]


class NpzFile(ArrayFile):
    """Arrays X, y and sample_weight, or a sparse matrix that SciPy saved."""

    def _features(self) -> tuple[Any, tuple[str, ...] | None]:
        try:
            # Opened here: NumPy would leave the file open after an error.
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                self.known = {name: arrays[name] for name in arrays.files}
        except (ValueError, OSError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
            raise self.error(f"cannot be read as .npz ({error}); it may be cut short") from None
        if "X" in self.known:
            return self.known["X"], texts_of(self.known.get("feature_names"))
        if {"format", "data", "shape"} <= self.known.keys():
            return self._sparse_matrix(), None
        raise self.error(f"there is no array 'X'; it holds {', '.join(self.known)}")

    def _sparse_matrix(self) -> scipy.sparse.csr_matrix:
        """The matrix that SciPy saved; its arrays are checked before SciPy uses them."""
        known = dict(self.known)
        try:
            if "coords" in known:
                known["row"], known["col"] = known["coords"]
            form, shape = np.char.decode(known["format"].astype("S")).item(), tuple(map(int, known["shape"]))
            if form not in SPARSE:
                raise ValueError(f"the format {form!r} is unknown; use one of {', '.join(SPARSE)}")
            arrays = {name: known[name] for name in SPARSE[form]}
            if form == "dia":
                # This format is checked as the coordinates of its entries.
                return check_matrix(scipy.sparse.dia_matrix((arrays["data"], arrays["offsets"]), shape=shape)).tocsr()
            check_arrays(form, arrays, shape)
            entries, *places = arrays.values()
            described = (entries, tuple(places)) if form == "coo" else (entries, *places)
            return getattr(scipy.sparse, f"{form}_matrix")(described, shape=shape).tocsr()
        except KeyError as error:
            raise self.error(f"cannot be read as a sparse matrix: there is no array {error}") from None
        except (ValueError, TypeError, OverflowError, MemoryError) as error:
            raise self.error(f"cannot be read as a sparse matrix ({error})") from None

    def _find_array(self, name: str) -> Any:
        return self.known.get(name)

    def _advice(self) -> str:
        return f"it holds {', '.join(self.known)}"


def texts_of(names: Any) -> tuple[str, ...] | None:
    """Names of columns as text; a file may have them as bytes."""
    return None if names is None else tuple(np.asarray(names).astype(str).tolist())


def _map_file(path: Path, asker: DataFile) -> np.ndarray:
    try:
        values: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise asker.error(f"there is no file {path}") from None
    except (ValueError, OSError, EOFError) as error:
        raise asker.error(f"{path.name} cannot be read as .npy ({error}); it may be cut short") from None
    if not isinstance(values, np.ndarray):
        values.close()
        raise asker.error(f"{path.name} is not a .npy file but an archive; rename it to .npz")
    return values
