"""Pictures, drawn with matplotlib; every function returns the axes it drew on.

matplotlib is imported only when something is drawn, because that takes time.
"""

from typing import Any, Protocol

import numpy as np

from psfit.pipeline.result import Result
from psfit.reporting.coefficient_plots import plot_coefficients as plot_coefficients
from psfit.reporting.drawing import label_of, pyplot
from psfit.reporting.frequency_plots import plot_near_optimal as plot_near_optimal
from psfit.reporting.frequency_plots import plot_stability as plot_stability
from psfit.reporting.prediction_plots import plot_calibration as plot_calibration
from psfit.reporting.prediction_plots import plot_predictions as plot_predictions
from psfit.reporting.prediction_plots import plot_roc as plot_roc

# The most features that a legend names: those that enter first.
MOST_NAMED = 12


class PathLike(Protocol):
    """What pictures use of a path; a `psfit.SparsePath` has all of it."""

    @property
    def kappas(self) -> np.ndarray: ...
    @property
    def gammas(self) -> np.ndarray: ...
    @property
    def gaps(self) -> np.ndarray: ...
    @property
    def feature_names(self) -> np.ndarray | None: ...
    @property
    def objectives(self) -> np.ndarray: ...
    @property
    def lower_bounds(self) -> np.ndarray: ...
    @property
    def loss(self) -> str: ...
    @property
    def counted(self) -> str: ...
    def coef(self, kappa: int, gamma: float | None = None) -> np.ndarray: ...


class SelectionLike(Protocol):
    """What pictures use of a choice of kappa; the `selection_` of a ``Sparse...CV`` has all of it."""

    @property
    def kappas(self) -> np.ndarray: ...
    @property
    def gammas(self) -> np.ndarray: ...
    @property
    def scores(self) -> np.ndarray: ...
    @property
    def errors(self) -> np.ndarray | None: ...
    @property
    def label(self) -> str: ...
    @property
    def smaller_is_better(self) -> bool: ...
    @property
    def kappa(self) -> int: ...
    @property
    def gamma(self) -> float: ...
    @property
    def best_kappa(self) -> int: ...


def plot_convergence(result: Result, ax: Any = None, title: str | None = None) -> Any:
    """The paper's three residuals, each relative to what it compares, against the iteration; logarithmic scale."""
    axes = ax if ax is not None else pyplot().subplots(figsize=(6.4, 4.0), layout="constrained")[1]
    iterations = [record.iteration for record in result.history]
    styles = {
        "primal": ("p: consensus", "-"),
        "dual": ("d: dual", "--"),
        "bilinear": ("b: bilinear", "-."),
    }
    for name, (label, style) in styles.items():
        values = [getattr(record, name) for record in result.history]
        # A logarithmic axis cannot show a residual of zero: the line ends there.
        drawn = [value if value > 0 else float("nan") for value in values]
        axes.plot(iterations, drawn, style, label=label)
    axes.set_yscale("log")
    axes.set_xlabel("iteration")
    axes.set_ylabel("relative residual")
    axes.set_title(title or f"Convergence of the {result.loss} fit, {result.nodes} nodes")
    axes.grid(True, which="major", alpha=0.3)
    axes.legend()
    return axes


def plot_path(
    path: PathLike, gamma: float | None = None, output: int = 0, ax: Any = None, label: str = "coefficient"
) -> Any:
    """Coefficients of one output (or what `label` says) against kappa; the legend names the first to enter and stay."""
    axes = ax if ax is not None else pyplot().subplots(figsize=(7.5, 4.5), layout="constrained")[1]
    coefs = np.stack([path.coef(int(kappa), gamma)[:, output] for kappa in path.kappas])
    used = np.flatnonzero((coefs != 0).any(axis=0))
    # Sorted by the number of limits that use the feature: the earlier it enters, the more limits use it.
    order = used[np.argsort(-(coefs[:, used] != 0).sum(axis=0), kind="stable")]
    for place, j in enumerate(order):
        if place < MOST_NAMED:
            name = f"feature {j}" if path.feature_names is None else label_of(path.feature_names[j])
            # Ten colours, then the same ones dashed.
            style = "-" if place < 10 else "--"
            axes.plot(path.kappas, coefs[:, j], style, color=f"C{place % 10}", label=name, lw=1.5)
        else:
            axes.plot(path.kappas, coefs[:, j], color="0.7", lw=0.6, zorder=1)
    axes.axhline(0.0, color="black", lw=0.6)
    _label_kappa_axis(axes, path.counted)
    axes.set_ylabel(label)
    more = f"; {len(order) - MOST_NAMED} more in grey" if len(order) > MOST_NAMED else ""
    axes.set_title(f"Coefficients along the {path.loss} path{more}")
    if len(order):
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize="small")
    axes.grid(True, alpha=0.3)
    return axes


def plot_gaps(path: PathLike, ax: Any = None) -> Any:
    """The certified gap against kappa, a line for each gamma."""
    axes = ax if ax is not None else pyplot().subplots(figsize=(6.4, 4.0), layout="constrained")[1]
    for gamma, gaps in zip(path.gammas, path.gaps, strict=True):
        # A logarithmic axis cannot show a gap of zero.
        axes.plot(path.kappas, np.maximum(gaps, 1e-16), "o-", ms=3, label=f"gamma = {gamma:g}")
    axes.set_yscale("log")
    title = f"How much better any model could be, {path.loss} path"
    return _finish_kappa_plot(axes, path.counted, "certified gap", title)


def plot_objectives(path: PathLike, ax: Any = None) -> Any:
    """The objective against kappa, a line for each gamma, and the proved lower bound below it."""
    axes = ax if ax is not None else pyplot().subplots(figsize=(6.4, 4.0), layout="constrained")[1]
    for g, gamma in enumerate(path.gammas):
        axes.plot(path.kappas, path.objectives[g], "o-", ms=3, color=f"C{g % 10}", label=f"gamma = {gamma:g}")
        if np.isfinite(path.lower_bounds[g]).all():
            axes.fill_between(
                path.kappas, path.lower_bounds[g], path.objectives[g], color=f"C{g % 10}", alpha=0.2, lw=0
            )
    title = f"Objective along the {path.loss} path; shaded: what is not excluded"
    return _finish_kappa_plot(axes, path.counted, "objective", title)


def plot_target(edges: np.ndarray, counts: np.ndarray, ax: Any = None) -> Any:
    """How many samples have their target between ``edges (k + 1,)``; the first and last of ``counts (k + 2,)`` are the
    samples below and above all edges.
    """
    axes = ax if ax is not None else pyplot().subplots(figsize=(6.4, 2.8), layout="constrained")[1]
    step = edges[1] - edges[0]
    left = np.concatenate([[edges[0] - step], edges])
    colors = ["0.6", *["C0"] * (len(counts) - 2), "0.6"]
    axes.bar(left, counts, width=0.94 * step, align="edge", color=colors)
    seen = np.flatnonzero(counts)
    axes.set_xlim(left[seen[0]] - 0.5 * step, left[seen[-1]] + 1.5 * step)
    axes.set_xlabel("target; grey: all samples further out" if counts[0] or counts[-1] else "target")
    axes.set_ylabel("samples")
    axes.grid(True, axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    return axes


def plot_selection(selection: SelectionLike, ax: Any = None, *, counted: str = "") -> Any:
    """The scores from which kappa was chosen, with their standard errors; a line for each gamma, the choice marked.

    `counted` is what kappa counts if that is not the nonzero coefficients, such as the `result_.counted` of a model.
    """
    axes = ax if ax is not None else pyplot().subplots(figsize=(7.0, 4.3), layout="constrained")[1]
    sign = -1 if selection.smaller_is_better else 1
    for g, gamma in enumerate(selection.gammas):
        chosen = gamma == selection.gamma
        errors = selection.errors[g] if chosen and selection.errors is not None else None
        axes.errorbar(
            selection.kappas,
            sign * selection.scores[g],
            yerr=errors,
            fmt="o-",
            ms=3,
            lw=1.5 if chosen else 0.8,
            elinewidth=0.8,
            capsize=2,
            label=f"gamma = {gamma:g}",
            zorder=3 if chosen else 2,
        )
    axes.axvline(selection.kappa, color="black", lw=1, ls="--", label=f"chosen: kappa = {selection.kappa}")
    if selection.best_kappa != selection.kappa:
        axes.axvline(
            selection.best_kappa, color="0.6", lw=1, ls=":", label=f"best score: kappa = {selection.best_kappa}"
        )
    _label_kappa_axis(axes, counted)
    axes.set_ylabel(selection.label)
    better = "lower" if selection.smaller_is_better else "higher"
    bars = "" if selection.errors is None else "; bars: one standard error"
    axes.set_title(f"Choice of kappa ({better} is better{bars})", fontsize="medium")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize="small")
    axes.grid(True, alpha=0.3)
    return axes


def _finish_kappa_plot(axes: Any, counted: str, label: str, title: str) -> Any:
    """Add labels, title, legend and grid to curves over kappa."""
    _label_kappa_axis(axes, counted)
    axes.set_ylabel(label)
    axes.set_title(title)
    axes.legend()
    axes.grid(True, alpha=0.3)
    return axes


def _label_kappa_axis(axes: Any, counted: str) -> None:
    axes.set_xlabel(f"kappa, the limit on {counted or 'nonzero coefficients'}")
    axes.xaxis.get_major_locator().set_params(integer=True)
