"""Pictures, drawn with matplotlib (``pip install psfit[plots]``); every function returns the axes it drew on."""

from typing import Any, Protocol

import numpy as np

from psfit.result import Result

# Lines that can be told apart by a legend; with more features only the first to enter are named.
MOST_NAMED = 12


class PathLike(Protocol):
    """What pictures need to know of a path: a `psfit.Path` has it all."""

    @property
    def kappas(self) -> np.ndarray: ...
    @property
    def gammas(self) -> np.ndarray: ...
    @property
    def gaps(self) -> np.ndarray: ...
    @property
    def feature_names(self) -> np.ndarray | None: ...
    @property
    def loss(self) -> str: ...
    def coef(self, kappa: int, gamma: float | None = None) -> np.ndarray: ...


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


def plot_path(path: PathLike, gamma: float | None = None, output: int = 0, ax: Any = None) -> Any:
    """Coefficients of one output against kappa; the features that enter first, and stay, are named."""
    axes = ax if ax is not None else _pyplot().subplots(figsize=(7.5, 4.5), layout="constrained")[1]
    coefs = np.stack([path.coef(int(kappa), gamma)[:, output] for kappa in path.kappas])
    used = np.flatnonzero((coefs != 0).any(axis=0))
    # In the order of how many of the limits have them: the earlier a feature enters, the more.
    order = used[np.argsort(-(coefs[:, used] != 0).sum(axis=0), kind="stable")]
    for place, j in enumerate(order):
        if place < MOST_NAMED:
            label = f"feature {j}" if path.feature_names is None else str(path.feature_names[j])
            axes.plot(path.kappas, coefs[:, j], label=label, lw=1.5)
        else:
            axes.plot(path.kappas, coefs[:, j], color="0.7", lw=0.6, zorder=1)
    axes.axhline(0.0, color="black", lw=0.6)
    axes.set_xlabel("kappa, the limit on nonzero coefficients")
    axes.set_ylabel("coefficient")
    more = f"; {len(order) - MOST_NAMED} more in grey" if len(order) > MOST_NAMED else ""
    axes.set_title(f"Coefficients along the {path.loss} path{more}")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize="small")
    axes.grid(True, alpha=0.3)
    return axes


def plot_gaps(path: PathLike, ax: Any = None) -> Any:
    """The certified gap against kappa, a line for each gamma."""
    axes = ax if ax is not None else _pyplot().subplots(figsize=(6.4, 4.0), layout="constrained")[1]
    for gamma, gaps in zip(path.gammas, path.gaps, strict=True):
        # A gap of exactly zero has no place on a logarithmic axis.
        axes.plot(path.kappas, np.maximum(gaps, 1e-16), "o-", ms=3, label=f"gamma = {gamma:g}")
    axes.set_yscale("log")
    axes.set_xlabel("kappa, the limit on nonzero coefficients")
    axes.set_ylabel("certified gap")
    axes.set_title(f"How much better any model could be, {path.loss} path")
    axes.legend()
    axes.grid(True, alpha=0.3)
    return axes


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install 'psfit[plots]'") from None
    return plt
