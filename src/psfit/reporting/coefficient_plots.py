"""Pictures of coefficients."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from psfit.comm import GridSpec
from psfit.data.summary import ColumnSummary
from psfit.estimators.model import SparseModel
from psfit.estimators.predictors import read_matrix
from psfit.reporting.drawing import label_of, pyplot
from psfit.reporting.names import feature_names, output_names

# Colours for the signs of coefficients that most people can distinguish.
POSITIVE, NEGATIVE = "#3b7dd8", "#dd7230"


def plot_coefficients(model: SparseModel, X: Any = None, most: int = 30, ax: Any = None) -> Any:
    """The largest nonzero coefficients of a fitted model; at most `most` features.

    With samples X these are effects, coefficients times the standard deviations of their features, which can be
    compared with each other. Several outputs are columns of squares, whose areas are the sizes.
    """
    if not hasattr(model, "result_"):
        raise ValueError(f"this {type(model).__name__} is not fitted yet; call fit first")
    coef = model.result_.coef
    sizes = coef
    if X is not None:
        grid = GridSpec(backend="serial", device="cpu").build()
        sizes = coef * ColumnSummary.of(read_matrix(model, model.learned_.features, X), grid).spreads[:, None]
    used = model.result_.support
    order = used[np.argsort(-np.abs(sizes[used]).max(axis=1, initial=0.0), kind="stable")]
    names = feature_names(getattr(model, "feature_names_in_", None), len(coef))
    shown = order[:most]
    outputs = output_names(model, coef.shape[1])
    label = "coefficient" if X is None else "effect"
    axes = draw_coefficients(sizes[shown], [names[j] for j in shown], outputs, label, ax)
    if len(order) > len(shown):
        axes.set_title(f"The largest {len(shown)} of {len(order)} {label}s", fontsize="medium")
    return axes


def draw_coefficients(
    coef: np.ndarray, names: Sequence[str], outputs: Sequence[str], label: str = "coefficient", ax: Any = None
) -> Any:
    """Coefficients ``(rows, c)``: bars for one output, else squares whose area is the size and whose colour the sign.

    Parameters
    ----------
    names : sequence of str, (rows,)
        What to write beside the rows, from the top.
    outputs : sequence of str, (c,)
        What to write above the columns.
    label : str
        What the numbers are.
    """
    rows, columns = coef.shape
    size = (6.4, 1.1 + 0.24 * rows)
    axes = ax if ax is not None else pyplot().subplots(figsize=size, layout="constrained")[1]
    if columns == 1:
        values = coef[:, 0]
        axes.barh(range(rows), values, height=0.7, color=[POSITIVE if value > 0 else NEGATIVE for value in values])
        axes.axvline(0.0, color="black", lw=0.8)
        axes.set_xlabel(label)
        axes.grid(True, axis="x", alpha=0.3)
    else:
        row, column = np.nonzero(coef)
        values = coef[row, column]
        # The largest square fills its row.
        areas = 13.0**2 * np.abs(values) / np.abs(coef).max()
        colors = [POSITIVE if value > 0 else NEGATIVE for value in values]
        axes.scatter(column, row, s=areas, marker="s", c=colors, lw=0)
        turned = 0 if sum(len(label_of(output)) + 2 for output in outputs) <= 60 else 90
        axes.set_xticks(range(columns), [label_of(output) for output in outputs], rotation=turned)
        axes.xaxis.tick_top()
        axes.set_xlim(-0.6, columns - 0.4)
        axes.set_xlabel(f"area: size of the {label}\nblue: positive, orange: negative")
        axes.grid(True, alpha=0.2)
        axes.set_axisbelow(True)
    axes.set_yticks(range(rows), [label_of(name) for name in names])
    axes.set_ylim(rows - 0.4, -0.6)
    return axes
