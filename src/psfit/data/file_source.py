"""`FileSource`: samples in files; every rank reads only its own part."""

from dataclasses import dataclass
from pathlib import Path

from psfit.comm import Grid, even_bounds
from psfit.data.io import Pieces, ReadRequest, find_files, open_file
from psfit.data.sample_source import SampleSource


@dataclass(frozen=True)
class FileSource(SampleSource):
    """Samples in a file, in the files of a folder, or in several files: pass it to `fit` in place of arrays.

    Under torchrun or mpirun every rank reads its own files if there are at least as many files as ranks, else its own
    range of rows (of bytes, if rows are lines of text). Data that do not fit in memory stay on disk and are read again
    in each pass; text is parsed once.

    The parameters besides those below are those of `TableRules`.

    Parameters
    ----------
    path : str, Path or sequence of them
        ``.npy``, ``.npz`` (arrays X and y, or SciPy's sparse format), ``.csv``, ``.tsv`` (also with ``.gz``, ``.zst``
        or ``.zip`` after it), ``.parquet``, ``.feather``, ``.arrow``, ``.svm`` / ``.libsvm`` / ``.svmlight``,
        ``.h5`` / ``.hdf5`` (datasets X and y); or a folder of files of one format.
    target : str, int or None
        The target: a column of a table (by default the last), an array of an archive (by default y), a column number
        of a ``.npy`` file, or the name of another ``.npy`` file.
    sample_weight : str or None
        The same for sample weights.
    columns : sequence of str or None
        Use only these columns or features; ``*`` and ``?`` stand for any letters and for one letter.
    one_hot : bool, default=False
        The same as ``categories="group"``: turn each column of text into one feature for every text in it, named
        ``column=text``. A column is text if any of its cells in any file is; then all its cells are read as text.
    memory : int, str or None
        Bytes (or text such as ``"2GB"``) that the features may take in memory; None means half of what is free.
    offset : str or None
        A column, an array or another ``.npy`` file with a number for each sample that is added to its linear predictor.
        In a table, ``"log(exposure)"`` is the logarithm of the column exposure.
    """

    path: str | Path | tuple[str | Path, ...]
    target: str | int | None = None
    sample_weight: str | None = None
    columns: tuple[str, ...] | None = None
    one_hot: bool = False
    memory: int | str | None = None
    offset: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.path, list):
            object.__setattr__(self, "path", tuple(self.path))
        if isinstance(self.path, tuple) and len(self.path) == 1:
            object.__setattr__(self, "path", self.path[0])

    @property
    def place(self) -> str:
        return f"{self.path}: " if isinstance(self.path, (str, Path)) else super().place

    def pieces(self, wanted: ReadRequest, grid: Grid) -> Pieces:
        """The files that have this rank's samples, each with a range.

        If every rank can have its own files, it opens no others: they may be on other machines.
        """
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        ranks, rank = grid.nodes.comm.size, grid.nodes.comm.rank
        if len(paths) < ranks or ranks == 1:
            paths = tuple(find_files(paths))
        if len(paths) >= ranks > 1:
            bounds = even_bounds(len(paths), ranks)
            own = [open_file(path, wanted) for path in find_files(paths[bounds[rank] : bounds[rank + 1]])]
            return [(file, 0, file.length) for file in own]
        files = [open_file(Path(path), wanted) for path in paths]
        mine = grid.rows(sum(file.length for file in files))
        pieces, first = [], 0
        for file in files:
            start, stop = max(mine.start, first), min(mine.stop, first + file.length)
            if start < stop:
                pieces.append((file, start - first, stop - first))
            first += file.length
        return pieces or [(files[0], 0, 0)]
