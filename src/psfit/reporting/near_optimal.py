"""The section about near-optimal models: how often each feature occurs, which models there are, what replaces what."""

from functools import partial
from typing import Any

from psfit.common.names import quote_name
from psfit.estimators.results import NearOptimal
from psfit.reporting.charts import svg_chart
from psfit.reporting.coefficients import Cell, Table, number_cell
from psfit.reporting.formats import join_names, number, percent, plural
from psfit.reporting.plots import plot_near_optimal

# How many models, pairs and bars are shown.
MOST_MODELS, MOST_PAIRS, MOST_BARS = 50, 20, 30


def near_optimal_content(found: NearOptimal) -> dict[str, Any]:
    """The picture, the tables and the text of the section."""
    used = int((found.frequencies > 0).sum())
    drawn = svg_chart(
        "near-optimal",
        f"In how many of {plural(len(found.supports), 'model')} each of {plural(used, 'feature')} occurs",
        1.2 + 0.22 * max(min(used, MOST_BARS), 4),
        partial(_plot, found),
    )
    others = f"others may have objectives from {number(found.lower_bound)}"
    rest = "every other support is worse than that" if found.complete else others
    count = plural(len(found.supports), "support")
    return {
        "svg": drawn,
        "text": f"{count} within {percent(found.within)} of the best objective; {rest}.",
        "always": join_names([quote_name(found.names[j]) for j in (found.frequencies == 1).nonzero()[0]]),
        "models": _list_models(found),
        "shown": min(len(found.supports), MOST_MODELS),
        "pairs": _list_pairs(found),
    }


def _plot(found: NearOptimal, axes: Any) -> Any:
    return plot_near_optimal(found, MOST_BARS, axes)


def _list_models(found: NearOptimal) -> Table:
    head = [
        ("Objective", "the least objective on this support"),
        ("Above the best", "as a share of the best objective"),
        ("Features", "those that the model uses"),
    ]
    rows = [
        [
            number_cell(row["objective"], 8),
            Cell(percent(row["excess"]), row["excess"]),
            Cell(join_names([quote_name(name) for name in row["features"]]), ", ".join(row["features"])),
        ]
        for row in found.rows()[:MOST_MODELS]
    ]
    return Table(head, rows)


def _list_pairs(found: NearOptimal) -> Table | None:
    """Pairs of features that replace each other; None if there are none."""
    head = [("Feature", ""), ("Replaced by", ""), ("Times", "pairs of models that differ by these two alone")]
    pairs = found.replacements()[:MOST_PAIRS]
    rows = [
        [Cell(row["one"], row["one"]), Cell(row["other"], row["other"]), number_cell(float(row["times"]))]
        for row in pairs
    ]
    return Table(head, rows) if rows else None
