"""How the benchmarks' pictures look: both axes logarithmic, a grid, the legend beside them."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure


def finish(figure: Figure, axes: Axes, path: Path, *, across: str, up: str, title: str) -> None:
    """Label and save."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_title(title)
    axes.grid(True, alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.savefig(path, dpi=130)
