"""Pictures of how often features occur in many models."""

from typing import Any, Protocol

from psfit.reporting.drawing import label_of, pyplot


class NearOptimalLike(Protocol):
    """What pictures use of near-optimal models; a `psfit.NearOptimal` has all of it."""

    @property
    def supports(self) -> Any: ...
    @property
    def frequencies(self) -> Any: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def within(self) -> float: ...
    @property
    def complete(self) -> bool: ...


class StabilityLike(Protocol):
    """What pictures use of a stability selection; a `psfit.Stability` has all of it."""

    @property
    def threshold(self) -> float: ...
    @property
    def resamples(self) -> int: ...
    def rows(self) -> list[dict[str, Any]]: ...


def plot_stability(stability: StabilityLike, most: int = 30, ax: Any = None) -> Any:
    """How often the most stable features were chosen, as bars; at most `most` features."""
    rows = stability.rows()
    shown = rows[:most]
    size = (6.4, 1.2 + 0.22 * max(len(shown), 4))
    axes = ax if ax is not None else pyplot().subplots(figsize=size, layout="constrained")[1]
    names = [
        f"feature {row['feature']}" if not isinstance(row["feature"], str) else label_of(row["feature"])
        for row in shown
    ]
    colors = ["tab:blue" if row["stable"] else "0.7" for row in shown]
    axes.barh(range(len(shown)), [row["frequency"] for row in shown], color=colors)
    axes.set_yticks(range(len(shown)), names, fontsize="small")
    axes.invert_yaxis()
    axes.axvline(stability.threshold, color="black", lw=1, ls="--")
    axes.set_xlim(0, 1.02)
    axes.set_xlabel(f"share of {stability.resamples} resamples that chose it")
    more = f"; {len(rows) - len(shown)} more below" if len(rows) > len(shown) else ""
    axes.set_title(f"Selection frequencies (dashed: threshold {stability.threshold:g}{more})", fontsize="medium")
    return axes


def plot_near_optimal(found: NearOptimalLike, most: int = 30, ax: Any = None) -> Any:
    """In how many of the near-optimal models each feature occurs, as bars; at most `most` features."""
    frequencies = list(found.frequencies)
    order = sorted((j for j, share in enumerate(frequencies) if share > 0), key=lambda j: -frequencies[j])
    shown = order[:most]
    size = (6.4, 1.2 + 0.22 * max(len(shown), 4))
    axes = ax if ax is not None else pyplot().subplots(figsize=size, layout="constrained")[1]
    colors = ["tab:blue" if frequencies[j] == 1 else "0.7" for j in shown]
    axes.barh(range(len(shown)), [frequencies[j] for j in shown], color=colors)
    axes.set_yticks(range(len(shown)), [label_of(found.names[j]) for j in shown], fontsize="small")
    axes.invert_yaxis()
    axes.set_xlim(0, 1.02)
    axes.set_xlabel(f"share of {len(found.supports):,} models within {found.within:.3g} of the best that use it")
    more = f"; {len(order) - len(shown)} more below" if len(order) > len(shown) else ""
    proved = "all of them" if found.complete else "not all of them"
    axes.set_title(f"Near-optimal models, {proved} (blue: in every one{more})", fontsize="medium")
    return axes
