"""LIBSVM / svmlight text: a label and pairs ``index:value`` in each line, read as a sparse matrix."""

import io
from pathlib import Path

import numpy as np
import scipy.sparse

from psfit.data.io.base import CellError, DataFile, Part, ReadRequest, require_finite_entries
from psfit.data.io.lines import Lines
from psfit.data.schema import Schema
from psfit.data.sparse_checks import require_room


class SvmlightFile(DataFile):
    """Lines of labels and entries; a part is the lines that begin in a range of bytes.

    Columns have the numbers that the file has. Whether these begin with zero or with one is known only when all parts
    are read, or from a fitted model.
    """

    def __init__(self, path: Path, wanted: ReadRequest) -> None:
        self.path, self.length = path, path.stat().st_size
        named = (wanted.target, wanted.weight, wanted.offset, wanted.columns)
        if any(name is not None for name in named) or wanted.rules.list_changes():
            raise self.error(
                "svmlight files name no columns: target, sample_weight, offset, columns and the rules for tables "
                "cannot be used"
            )
        if not self.length:
            raise self.error("is empty")

    def part(self, start: int, stop: int, schema: Schema, budget: int) -> Part:
        from sklearn.datasets import load_svmlight_file

        # The loader's own offset and length are not used: with comments, it reads some lines twice.
        with io.BufferedReader(Lines(self.path, start, stop)) as lines:
            try:
                X, y = load_svmlight_file(lines, zero_based=True)
            except (ValueError, IndexError, OverflowError) as error:
                raise self.error(f"cannot be read as svmlight ({error}); it may be cut short") from None
        try:
            require_room(X.shape, "its largest index")
        except ValueError as error:
            raise self.error(error) from None
        try:
            require_finite_entries(X, self.path, 0)
            if schema.first_index == 1:
                self._require_from_one(X)
        except CellError as error:
            raise error.shift(self._rows_before(start)) from None
        return Part(X, y, None, None, open_ended=True)

    def _require_from_one(self, X: scipy.sparse.csr_matrix) -> None:
        """Refuse a file that counts columns from zero if the files of the fit count from one."""
        entries = X.indices == 0
        if entries.any():
            row = int(np.searchsorted(X.indptr, int(entries.argmax()), side="right")) - 1
            raise CellError(
                self.path,
                0,
                row,
                "has an entry",
                "but the files of the fit count columns from one; count from one here, too, or fit again",
            )

    def _rows_before(self, start: int) -> int:
        """The number of samples before a range, for messages."""
        with io.BufferedReader(Lines(self.path, 0, start)) as lines:
            return sum(1 for line in lines if line.split(b"#")[0].strip())
