"""`report`: a model, or a path, as a page in a file."""

from pathlib import Path
from typing import Any

from torch import Tensor

from psfit.comm import Grid, GridSpec, build_grid
from psfit.common.output_files import require_writable, write_whole
from psfit.estimators.model import SparseModel
from psfit.estimators.results import SparsePath
from psfit.reporting.page import page
from psfit.reporting.samples import describe

ENDINGS = (".html", ".htm")


def report(
    model: SparseModel | SparsePath,
    file: str | Path | None = None,
    X: Any = None,
    y: Any = None,
    *,
    sample_weight: Any = None,
    target: str | int | None = None,
    grid: GridSpec | Grid | None = None,
) -> str | None:
    """An HTML page about a fitted model or a path; it needs no network and no other file.

    Parameters
    ----------
    model : fitted estimator or `psfit.SparsePath`
        What to write about. Of a ``Sparse...CV`` the choice of kappa is shown, too.
    file : str or Path, optional
        Where to write the page (.html); it is either whole or not there.
    X, y, sample_weight, target : optional
        Samples to summarise and to score the model on, as in `SparseModel.fit`: those of the fit, or others.
    grid : GridSpec, Grid or None
        The ranks that share these samples; None: those of the model's own grid.

    Returns the page if there is no file to write it to. With samples on several ranks, all of them call this with their
    own ones, only sums leave a node, and the first rank writes the file.
    """
    if file is not None:
        require_page("file", Path(file))
    if X is None:
        if y is not None:
            raise ValueError("y was passed without X; pass both, or none of them")
        text, first = page(model), True
    else:
        asked = grid or getattr(model, "grid", None)
        hosts = build_grid(asked, X.device if isinstance(X, Tensor) else None)
        text = page(model, describe(model, X, y, sample_weight, target, grid=hosts))
        first = hosts.world.rank == 0
    if file is None:
        return text
    if first:
        write_page(Path(file), text)
    return None


def write_page(file: Path, text: str) -> None:
    """Write a page; the file is either whole or not there."""
    write_whole(file, lambda stream: stream.write(text.encode(errors="replace")))


def require_page(option: str, file: Path | None) -> None:
    """Refuse a file that could not be written in the end, or that no browser would open."""
    if file is None:
        return
    if file.suffix.lower() not in ENDINGS:
        raise ValueError(f"{option}: a report is a page, so {str(file)!r} must end with .html")
    require_writable(option, file)
