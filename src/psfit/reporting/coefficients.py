"""Coefficients as a table that can be sorted, and as a chart of the largest."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from psfit.data.summary import ColumnSummary
from psfit.reporting.charts import svg_chart
from psfit.reporting.coefficient_plots import draw_coefficients
from psfit.reporting.formats import number

# A chart with more rows is hard to read; the table has all of them.
MOST_ROWS = 40
# Where spreads come from.
FIT = "the samples of the fit"
# A chart with more columns has no room for their names.
MOST_COLUMNS = 30


@dataclass(frozen=True)
class Cell:
    """A table cell: the text that is shown, and the value by which rows are sorted."""

    text: str
    value: float | str
    zero: bool = False


@dataclass(frozen=True)
class Table:
    """Headings with their meanings, and rows of cells; `minor` columns are left out where there is little room."""

    head: list[tuple[str, str]]
    rows: list[list[Cell]]
    minor: tuple[str, ...] = ()


def number_cell(value: float, digits: int = 6) -> Cell:
    """A cell with a number."""
    return Cell(number(value, digits) if value else "0", float(value), value == 0)


@dataclass(frozen=True)
class Spreads:
    """Standard deviations of the features ``(p,)``, their means if they are known, and of which samples they are."""

    values: np.ndarray
    means: np.ndarray | None
    place: str

    @classmethod
    def of(cls, columns: ColumnSummary, of_fit: bool | None) -> "Spreads":
        """Those of summarised samples."""
        return cls(columns.spreads, columns.means, FIT if of_fit else "the samples of the section Data")


class Coefficients:
    """The nonzero rows of ``coef (p, c)``, the largest first; sorted by effect if the `spreads` are known.

    The effect of a feature is its coefficient times its standard deviation: how much a typical difference between
    samples changes the predictor.
    """

    def __init__(
        self,
        coef: np.ndarray,
        intercept: np.ndarray,
        names: list[str],
        outputs: list[str],
        ratio: str | None,
        spreads: Spreads | None,
    ) -> None:
        self.coef, self.intercept, self.names, self.outputs = coef, intercept, names, outputs
        self.ratio, self.spreads = ratio, spreads
        used = np.flatnonzero((coef != 0).any(axis=1))
        self.sizes = coef if spreads is None else coef * spreads.values[:, None]
        self.order = used[np.argsort(-np.abs(self.sizes[used]).max(axis=1, initial=0.0), kind="stable")]

    @property
    def measure(self) -> str:
        """What the chart shows."""
        return "coefficient" if self.spreads is None else "effect"

    def table(self) -> Table:
        """A row for the intercept, then one for each feature that is used."""
        single = len(self.outputs) == 1
        head = [("feature", "")]
        head += [("coefficient", "")] if single else [(name, f"coefficient for {name}") for name in self.outputs]
        if self.ratio is not None:
            of = "coefficient" if self.spreads is None else "effect: the factor for one standard deviation more"
            name = self.ratio if self.spreads is None else f"{self.ratio} per SD"
            head.append((name, f"the exponential of the {of}"))
        if self.spreads is not None:
            head += [] if self.spreads.means is None else [("mean", f"of the feature in {self.spreads.place}")]
            head.append(("spread", f"standard deviation of the feature in {self.spreads.place}"))
            head += [("effect", "coefficient times spread")] if single else []
        rows = [self._row("(intercept)", self.intercept, None), *map(self._feature, self.order)]
        return Table(head, rows, () if self.spreads is None else ("mean", "spread"))

    def _feature(self, j: int) -> list[Cell]:
        return self._row(self.names[j], self.coef[j], j)

    def _row(self, name: str, values: np.ndarray, j: int | None) -> list[Cell]:
        cells = [Cell(name, name), *(number_cell(value, 6 if len(values) == 1 else 4) for value in values)]
        empty = Cell("", float("-inf"))
        if self.ratio is not None:
            with np.errstate(over="ignore"):
                cells.append(empty if j is None else number_cell(float(np.exp(self.sizes[j, 0])), 4))
        if self.spreads is not None:
            single, means = len(self.outputs) == 1, self.spreads.means
            at = 0 if j is None else j
            facts = [*([] if means is None else [means[at]]), self.spreads.values[at], *([self.sizes[at, 0]] * single)]
            cells += [empty if j is None else number_cell(float(fact), 4) for fact in facts]
        return cells

    def chart(self) -> dict[str, Any] | None:
        """The largest rows as a picture with its caption; None if there is nothing to draw, or too many columns."""
        if not len(self.order) or len(self.outputs) > MOST_COLUMNS:
            return None
        shown = self.order[:MOST_ROWS]
        names = [self.names[j] for j in shown]
        height = 0.9 + 0.24 * len(shown) + (0.5 if len(self.outputs) > 1 else 0.0)
        values = self.sizes[shown]
        picture: Markup = svg_chart(
            "coefficients",
            f"Chart of the {self.measure}s in the table below, the largest first",
            height,
            lambda axes: draw_coefficients(values, names, self.outputs, self.measure, axes),
        )
        rest = len(self.order) - len(shown)
        return {"svg": picture, "rest": rest, "shown": len(shown), "measure": self.measure}
