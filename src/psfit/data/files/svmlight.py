"""LIBSVM / svmlight text: a label and pairs ``index:value`` in each line, read as a sparse matrix."""

from pathlib import Path

import numpy as np
import scipy.sparse

from psfit.data.files.base import DataFile, Part, Wanted, require_finite


class SvmlightFile(DataFile):
    """A part is a range of bytes, moved to the beginnings of lines.

    Columns are counted as they are written; whether from zero or from one shows only when all parts are read.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path, self.length = path, path.stat().st_size
        if wanted.target is not None or wanted.weight is not None or wanted.columns is not None or wanted.one_hot:
            raise self.fail("svmlight files name no columns: target, sample_weight, columns and one_hot cannot be used")
        if not self.length:
            raise self.fail("is empty")

    def part(self, start: int, stop: int, texts: dict[str, list[str]], budget: int) -> Part:
        from sklearn.datasets import load_svmlight_file

        if stop == start:
            return Part(scipy.sparse.csr_matrix((0, 1)), np.empty(0), None, None, open_ended=True)
        # A length of -1 reads to the end.
        length = -1 if stop == self.length else stop - start
        try:
            X, y = load_svmlight_file(str(self.path), zero_based=True, offset=start, length=length)
        except (ValueError, IndexError, OverflowError) as error:
            raise self.fail(f"cannot be read as svmlight ({error}); it may be cut short") from None
        require_finite(X.data.reshape(-1, 1), self.path, ("of entries",), 0)
        return Part(X, y, None, None, open_ended=True)
