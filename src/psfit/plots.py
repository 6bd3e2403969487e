"""Pictures, drawn with matplotlib (``pip install psfit[plots]``); every function returns the axes it drew on."""

from typing import Any

from psfit.result import Result


def plot_convergence(result: Result, ax: Any = None, title: str | None = None) -> Any:
    """The paper's three residuals against the iteration, on a logarithmic scale."""
    axes = ax if ax is not None else _pyplot().subplots(figsize=(6.4, 4.0), layout="constrained")[1]
    iterations = [record.iteration for record in result.history]
    styles = {
        "primal": ("p: consensus", "-"),
        "dual": ("d: dual", "--"),
        "bilinear": ("b: bilinear", "-."),
    }
    for name, (label, style) in styles.items():
        values = [getattr(record, name) for record in result.history]
        # A residual of exactly zero has no place on a logarithmic axis: the line ends where it is reached.
        drawn = [value if value > 0 else float("nan") for value in values]
        axes.plot(iterations, drawn, style, label=label)
    axes.set_yscale("log")
    axes.set_xlabel("iteration")
    axes.set_ylabel("residual")
    axes.set_title(title or f"Convergence of the {result.loss} fit, {result.nodes} nodes")
    axes.grid(True, which="major", alpha=0.3)
    axes.legend()
    return axes


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'psfit[plots]'") from None
    return plt
