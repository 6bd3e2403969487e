"""The forms in which features and targets reach `fit`: arrays, tables, tensors, sparse matrices, files.

Each takes X, y and a folder, and returns what `fit` is called with.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from sklearn.datasets import dump_svmlight_file

from psfit import FileSource

# Bytes that hold no more than a few columns of the streamed problems, so that their rows stay on disk.
LITTLE = 200_000


def arrays(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """As they are."""
    return {"X": X, "y": y}


def single(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """Features in float32."""
    return {"X": X.astype(np.float32), "y": y}


def tensors(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """Torch tensors."""
    return {"X": torch.from_numpy(X), "y": torch.from_numpy(y)}


def torch_csr(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """A sparse torch tensor."""
    rows = scipy.sparse.csr_matrix(X)
    parts = (torch.from_numpy(part) for part in (rows.indptr, rows.indices, rows.data))
    return {"X": torch.sparse_csr_tensor(*parts, size=X.shape, check_invariants=True), "y": torch.from_numpy(y)}


def csr(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """A sparse SciPy matrix."""
    return {"X": scipy.sparse.csr_matrix(X), "y": y}


def frame(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """A pandas table and series."""
    return {"X": table(X), "y": pd.Series(y, name="y")}


def memmap(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """A memory map."""
    np.save(folder / "X.npy", X)
    return {"X": np.load(folder / "X.npy", mmap_mode="r"), "y": y}


def csv(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """A text file with the target in its last column."""
    table(X).assign(y=y).to_csv(folder / "data.csv", index=False)
    return {"X": folder / "data.csv"}


def csv_parts(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """A folder of text files, with a column of text."""
    whole = table(X).assign(y=y, kind=np.where(X[:, 0] > 0, "a", "b"))
    (folder / "parts").mkdir()
    whole[:50].to_csv(folder / "parts" / "1.csv", index=False)
    whole[50:].to_csv(folder / "parts" / "2.csv", index=False)
    return {"X": FileSource(folder / "parts", target="y", one_hot=True)}


def parquet(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """A file of columns, with weights."""
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    table(X).assign(y=y, w=weight).to_parquet(folder / "data.parquet", row_group_size=40)
    return {"X": FileSource(folder / "data.parquet", target="y", sample_weight="w")}


def npy(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """Arrays in two files."""
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    return {"X": FileSource(folder / "X.npy", target="y.npy")}


def svmlight(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """Sparse lines of text."""
    dump_svmlight_file(X, y, str(folder / "data.svm"), zero_based=False)
    return {"X": folder / "data.svm"}


def streamed(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """Files of arrays whose rows do not fit in the memory that they may take."""
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    assert X.nbytes > LITTLE
    return {"X": FileSource(folder / "X.npy", target="y.npy", memory=LITTLE)}


def streamed_csv(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """A text file whose numbers do not fit in the memory that they may take."""
    assert X.nbytes > LITTLE
    return {"X": FileSource(csv(X, y, folder)["X"], memory=LITTLE)}


def table(X: np.ndarray) -> pd.DataFrame:
    """The features by name."""
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])


def widened_csr(X: np.ndarray, y: np.ndarray, folder: Path) -> dict:
    """A sparse matrix with so many columns that only candidates among them are looked at closely."""
    empty = scipy.sparse.random_array((len(X), 12_000 - X.shape[1]), density=1e-4, rng=np.random.default_rng(0))
    return {"X": scipy.sparse.hstack([scipy.sparse.csr_matrix(X), empty], format="csr"), "y": y}
