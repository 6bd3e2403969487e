"""LIBSVM / svmlight text: a label and pairs ``index:value`` in each line, read as a sparse matrix."""

import io
from pathlib import Path

import numpy as np
import scipy.sparse

from psfit.data.io.base import CellError, DataFile, Part, Wanted, require_finite_entries
from psfit.data.io.lines import Lines
from psfit.data.schema import Schema
from psfit.data.sparse_checks import require_room


class SvmlightFile(DataFile):
    """A part is a range of bytes, moved to the beginnings of lines.

    Columns are counted as they are written; whether from zero or from one shows only when all parts are read, unless a
    fitted model knows it.
    """

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self.path, self.length = path, path.stat().st_size
        if wanted.target is not None or wanted.weight is not None or wanted.columns is not None or wanted.one_hot:
            raise self.fail("svmlight files name no columns: target, sample_weight, columns and one_hot cannot be used")
        if not self.length:
            raise self.fail("is empty")

    def part(self, start: int, stop: int, schema: Schema, budget: int) -> Part:
        from sklearn.datasets import load_svmlight_file

        # Not by the loader's own offset and length: around comments it would read lines twice.
        with io.BufferedReader(Lines(self.path, start, stop)) as lines:
            try:
                X, y = load_svmlight_file(lines, zero_based=True)
            except (ValueError, IndexError, OverflowError) as error:
                raise self.fail(f"cannot be read as svmlight ({error}); it may be cut short") from None
        try:
            require_room(X.shape, "its largest index")
        except ValueError as error:
            raise self.fail(error) from None
        try:
            require_finite_entries(X, self.path, 0)
            if schema.first_index == 1:
                self._require_from_one(X)
        except CellError as error:
            raise error.moved(self._rows_before(start)) from None
        return Part(X, y, None, None, open_ended=True)

    def _require_from_one(self, X: scipy.sparse.csr_matrix) -> None:
        """Refuse a file whose columns are counted in another way than those of the fit."""
        entries = X.indices == 0
        if entries.any():
            row = int(np.searchsorted(X.indptr, int(entries.argmax()), side="right")) - 1
            raise CellError(
                self.path,
                0,
                row,
                "has an entry",
                "but the files of the fit count columns from one; count them so here too, or fit again",
            )

    def _rows_before(self, start: int) -> int:
        """How many samples lie before a range, for messages."""
        with io.BufferedReader(Lines(self.path, 0, start)) as lines:
            return sum(1 for line in lines if line.split(b"#")[0].strip())
