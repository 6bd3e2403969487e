"""`report`: writes an HTML page about a model or a path."""

from pathlib import Path
from typing import Any

from torch import Tensor

from psfit.comm import Grid, GridSpec, build_grid
from psfit.common.output_files import require_writable, write_whole
from psfit.estimators.model import SparseModel
from psfit.estimators.results import NearOptimal, SparsePath
from psfit.reporting.page import render_page
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
    offset: Any = None,
    grid: GridSpec | Grid | None = None,
    near_optimal: NearOptimal | None = None,
) -> str | None:
    """An HTML page about a fitted model or a path; it needs no network and no other file.

    Parameters
    ----------
    model : fitted estimator or `psfit.SparsePath`
        What to write about. Of a ``Sparse...CV`` the choice of kappa is shown, too.
    file : str or Path, optional
        Where to write the page (.html). The file is complete or absent, never partial.
    X, y, sample_weight, target, offset : optional
        Samples to summarise and to score the model on, as in `SparseModel.fit`: those of the fit, or others.
    grid : GridSpec, Grid or None
        The ranks that share these samples; None means those of the model's own grid.
    near_optimal : NearOptimal, optional
        What `psfit.near_optimal` found for this model: a section shows it.

    Returns the page as text if `file` is None. If several ranks have samples, every rank calls this with its own. Only
    sums leave a node, and the first rank writes the file.
    """
    if file is not None:
        require_page("file", Path(file))
    if near_optimal is not None and not isinstance(near_optimal, NearOptimal):
        kind = type(near_optimal).__name__
        raise TypeError(f"near_optimal is a {kind}, but must be what psfit.near_optimal returns")
    if X is None:
        if y is not None:
            raise ValueError("y was passed without X; pass both, or neither")
        text, first = render_page(model, close=near_optimal), True
    else:
        hosts = build_grid(grid or getattr(model, "grid", None), X.device if isinstance(X, Tensor) else None)
        samples = describe(model, X, y, sample_weight, target, offset, grid=hosts)
        text = render_page(model, samples, close=near_optimal)
        first = hosts.world.rank == 0
    if file is None:
        return text
    if first:
        write_page(Path(file), text)
    return None


def write_page(file: Path, text: str) -> None:
    """Write a page; the file is complete or absent, never partial."""
    write_whole(file, lambda stream: stream.write(text.encode(errors="replace")))


def require_page(option: str, file: Path | None) -> None:
    """Refuse a file that cannot be written, or that a browser would not open."""
    if file is None:
        return
    if file.suffix.lower() not in ENDINGS:
        raise ValueError(f"{option}: a report is an HTML page, so {str(file)!r} must end with .html")
    require_writable(option, file)
