"""The pictures of a model's predictions on labelled samples: curves for classes, cells for numbers."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from psfit.reporting.charts import HUES, svg_chart
from psfit.reporting.drawing import label_of
from psfit.reporting.formats import number
from psfit.reporting.performance import Calibration, Cells, Ranking
from psfit.reporting.samples import DataSummary

# More curves cannot be told apart; targets after these have no picture.
MOST_CURVES, MOST_TARGETS = 10, 4
# Areas of the largest cell and of the largest point, in square points.
LARGEST_CELL, LARGEST_POINT = 40.0, 130.0
REFERENCE = "#888888"
ROUNDING = 1e-9


def performance_content(data: DataSummary, target: str) -> list[dict[str, Any]]:
    """Pictures with their captions, in the order of the page; `target` is its name."""
    return [*_ranking_charts(data.rankings), *_calibration_charts(data.calibrations), *_number_charts(data, target)]


def _ranking_charts(rankings: Sequence[Ranking]) -> list[dict[str, Any]]:
    if not rankings:
        return []
    shown = rankings[:MOST_CURVES]
    areas = ", ".join(f"{one.label} {one.area:.3f}" for one in shown)
    averages = ", ".join(f"{one.label} {one.average_precision:.3f}" for one in shown)
    rest = f" {len(rankings) - len(shown)} more classes are not drawn." if len(rankings) > len(shown) else ""
    return [
        {
            "svg": svg_chart("roc", f"ROC curve; area below it: {areas}", 3.8, partial(_draw_roc, shown)),
            "title": "ROC curve",
            "caption": f"Area below the curve (AUC): {areas}. The dashed line is a random order.{rest}",
        },
        {
            "svg": svg_chart(
                "precision", f"Precision against recall; average: {averages}", 3.8, partial(_draw_precision, shown)
            ),
            "title": "Precision and recall",
            "caption": f"Average precision: {averages}. The dashed lines are the shares of the classes.{rest}",
        },
    ]


def _calibration_charts(calibrations: Sequence[Calibration]) -> list[dict[str, Any]]:
    if not calibrations:
        return []
    drawn = svg_chart(
        "calibration",
        "The share of a class in the samples against its predicted probability",
        3.8,
        partial(_draw_calibration, calibrations[:MOST_CURVES]),
    )
    caption = (
        "Samples are put into ten bins by their predicted probability; the area of a point is the weight of its bin."
    )
    return [{"svg": drawn, "title": "Calibration", "caption": f"{caption} Points on the dashed line are right."}]


def _number_charts(data: DataSummary, target: str) -> list[dict[str, Any]]:
    charts: list[dict[str, Any]] = []
    several = len(data.residuals) > 1
    for k, one in enumerate(data.residuals[:MOST_TARGETS]):
        name = f"{target} {k}" if several else target
        # The residuals of a fit with an intercept have the mean zero but for rounding.
        mean = one.mean if abs(one.mean) > ROUNDING * one.spread else 0.0
        facts = f"mean {number(mean, 4)}, standard deviation {number(one.spread, 4)}"
        charts += [
            {
                "svg": svg_chart(
                    f"agreement{k}",
                    f"Predicted against actual {name}; samples on the dashed line are predicted exactly",
                    4.2,
                    partial(_draw_cells, one.agreement, f"actual {name}", f"predicted {name}", True),
                ),
                "title": f"Predicted against actual {name}",
                "caption": "The area of a square is its number of samples; those further out are in the outer squares.",
            },
            {
                "svg": svg_chart(
                    f"residuals{k}",
                    f"Residuals against predicted {name}: {facts}",
                    3.4,
                    partial(_draw_cells, one.cells, f"predicted {name}", "actual \u2212 predicted", False),
                ),
                "title": f"Residuals of {name}",
                "caption": f"Actual minus predicted: {facts}.",
            },
        ]
    return charts


def _draw_roc(rankings: Sequence[Ranking], axes: Any) -> Any:
    for one in rankings:
        axes.plot(one.alarms, one.found, label=f"{label_of(one.label)}, area {one.area:.3f}", lw=1.6)
    axes.plot([0, 1], [0, 1], color=REFERENCE, lw=1, ls="--")
    return _finish(axes, "share of the other samples above the threshold", "share of the class above it")


def _draw_precision(rankings: Sequence[Ranking], axes: Any) -> Any:
    for hue, one in zip(HUES, rankings, strict=False):
        axes.plot(one.found, one.precision, label=label_of(one.label), lw=1.6, color=hue)
        axes.axhline(one.share, color=hue, lw=0.8, ls="--")
    return _finish(axes, "recall: share of the class that is found", "precision")


def _draw_calibration(calibrations: Sequence[Calibration], axes: Any) -> Any:
    for hue, one in zip(HUES, calibrations, strict=False):
        areas = LARGEST_POINT * one.weights / one.weights.max()
        axes.plot(one.predicted, one.observed, lw=1, alpha=0.6, color=hue)
        axes.scatter(one.predicted, one.observed, s=areas, color=hue, lw=0, label=label_of(one.label))
    axes.plot([0, 1], [0, 1], color=REFERENCE, lw=1, ls="--")
    return _finish(axes, "predicted probability", "share in the samples")


def _finish(axes: Any, across: str, upwards: str) -> Any:
    axes.set_xlabel(across)
    axes.set_ylabel(upwards)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.04)
    axes.grid(True, alpha=0.3)
    axes.legend(loc="best")
    return axes


def _draw_cells(cells: Cells, across: str, upwards: str, diagonal: bool, axes: Any) -> Any:
    """Squares whose areas are the numbers of samples; a line where predictions are exact."""
    column, row = cells.counts.nonzero()
    x, y = ((edges[:-1] + edges[1:]) / 2 for edges in (cells.across, cells.upwards))
    counts = cells.counts[column, row]
    axes.scatter(x[column], y[row], s=LARGEST_CELL * counts / counts.max(), marker="s", color=HUES[0], lw=0, alpha=0.8)
    if diagonal:
        ends = [min(x[column].min(), y[row].min()), max(x[column].max(), y[row].max())]
        axes.plot(ends, ends, color=REFERENCE, lw=1, ls="--")
    else:
        axes.axhline(0.0, color=REFERENCE, lw=1, ls="--")
    axes.set_xlabel(label_of(across))
    axes.set_ylabel(label_of(upwards))
    axes.grid(True, alpha=0.3)
    return axes
